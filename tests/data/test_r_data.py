"""What is made of files of R's save()."""

import bz2
import gzip
import lzma
import sys

import numpy as np
import pytest

from consilience.core.errors import InputError, UnsupportedError
from consilience.data.files.r_data import read_r_data
from r_files import factor, integers, items, matrix, named, reals, saved, strings

pytest.importorskip("rdata", reason="rdata, which reads files of R, is not installed: pip install 'consilience[rdata]'")


@pytest.fixture
def read(tmp_path):
    def write_and_read(content):
        (tmp_path / "some.rda").write_bytes(content)
        return read_r_data(tmp_path / "some.rda")

    return write_and_read


def test_vectors_lists_matrices_and_factors(read):
    x = np.random.default_rng(0).normal(size=(3, 2))
    missing = integers([2, -(2**31), 1], levels=strings(["a", "b"]), **{"class": strings(["factor"])})
    content = read(
        saved(
            {
                "x": matrix(x),
                "counts": integers([1, 2, 3]),
                "gaps": integers([1, -(2**31)]),
                "flags": integers([1, 0], kind=10),
                "words": strings(["a", "é", ""]),
                "kind": factor(["b", "a", "b"]),
                "missing": missing,
                "list": named({"u": reals([1, np.nan]), "inner": named({"v": integers([7])})}),
                "plain": items([reals([5])]),
                "frame": items(
                    [reals([1, 2]), factor(["p", "q"])],
                    names=strings(["n", "f"]),
                    **{"class": strings(["data.frame"]), "row.names": integers([-(2**31), -2])},
                ),
            }
        )
    )
    np.testing.assert_array_equal(content["x"], x)
    assert type(content["x"]) is np.ndarray
    assert content["counts"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(content["gaps"], [1, np.nan])
    assert content["flags"].tolist() == [True, False]
    assert content["words"].tolist() == ["a", "é", ""]
    assert content["kind"].tolist() == ["b", "a", "b"]
    assert content["kind"].dtype.kind == "U"
    assert [content["missing"][0], content["missing"][2]] == ["b", "a"]
    np.testing.assert_array_equal(content["list"]["u"], [1, np.nan])
    assert content["list"]["inner"]["v"].tolist() == [7]
    assert content["plain"][0].tolist() == [5]
    assert content["frame"]["n"].tolist() == [1, 2]
    assert content["frame"]["f"].tolist() == ["p", "q"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("version", [2, 3])
def test_any_compression_and_version(read, pack, version):
    assert read(pack(saved({"n": integers([5])}, version)))["n"].tolist() == [5]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not of R",
        gzip.compress(saved({"x": reals([1])}), mtime=0)[:-12],
        saved({"x": reals([1, 2])})[:-9],
        saved({"x": reals([1, 2, 3], dim=integers([2, 2]))}),
    ],
    ids=["empty", "foreign", "truncated gzip", "truncated", "wrong shape"],
)
def test_damaged_files_are_named(read, content):
    with pytest.raises(InputError, match=r"some\.rda is damaged, or not a file of R's save\(\)"):
        read(content)


def test_a_missing_package_is_named(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdata", None)
    with pytest.raises(
        UnsupportedError, match=r"some\.rda needs the package rdata: pip install 'consilience\[rdata\]'"
    ):
        read(saved({}))
