"""What is made of files of R's save()."""

import bz2
import gzip
import lzma
import struct

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.data.files.rda import read_rda
from r_files import (
    HAS_ATTRIBUTES,
    HAS_TAG,
    NIL,
    factor,
    flags,
    integers,
    items,
    matrix,
    named,
    reals,
    saved,
    sized,
    strings,
    text,
    vector,
)


@pytest.fixture
def read(tmp_path):
    def write_and_read(content):
        (tmp_path / "some.rda").write_bytes(content)
        return read_rda(tmp_path / "some.rda")

    return write_and_read


def test_vectors_lists_matrices_and_factors(read):
    x = np.random.default_rng(0).normal(size=(3, 2))
    found = read(
        saved(
            {
                "x": matrix(x),
                "counts": integers([1, 2, 3]),
                "some": integers([1, -(2**31)]),
                "flags": integers([1, 0], kind=10),
                "words": strings(["a", "é", ""]),
                "gaps": strings(["a", None]),
                "kind": factor(["b", "a", "b"]),
                "frame": named({"u": reals([1, np.nan]), "inner": named({"v": integers([7])})}),
                "plain": items([reals([]), NIL]),
                "twice": items([reals([1]), reals([2])], names=strings(["a", "a"])),
            }
        )
    )
    np.testing.assert_array_equal(found["x"], x)
    assert found["counts"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(found["some"], [1, np.nan])
    assert found["flags"].tolist() == [True, False]
    assert found["words"].tolist() == ["a", "é", ""]
    assert found["gaps"].tolist() == ["a", None]
    assert found["kind"].tolist() == ["b", "a", "b"]
    np.testing.assert_array_equal(found["frame"]["u"], [1, np.nan])
    assert found["frame"]["inner"]["v"].tolist() == [7]
    assert len(found["plain"][0]) == 0
    assert found["plain"][1] is None
    assert [one.tolist() for one in found["twice"]] == [[1], [2]]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("version", [2, 3])
def test_any_compression_and_version(read, pack, version):
    assert read(pack(saved({"n": integers([5])}, version)))["n"].tolist() == [5]


def test_symbols_are_written_once_and_referred_to(read):
    second = flags(13, HAS_ATTRIBUTES) + struct.pack(">2i", 1, 4)
    second += flags(2, HAS_TAG) + flags(255, 2 << 8) + integers([1, 1]) + NIL  # symbols so far: x, dim, y
    content = saved({"x": integers([3], dim=integers([1, 1]))})[:-4]
    content += flags(2, HAS_TAG) + flags(1) + text("y") + second + NIL
    found = read(content)
    assert found["x"].tolist() == [[3]]
    assert found["y"].tolist() == [[4]]


def test_a_missing_label_of_a_factor(read):
    codes = integers([2, -(2**31), 1], levels=strings(["a", "b"]))
    assert read(saved({"f": codes}))["f"].tolist() == ["b", None, "a"]


def test_latin_letters(read):
    word = flags(9, 1 << 14) + sized("é".encode("latin-1"))
    assert read(saved({"w": vector(16, 1, word, {})}))["w"].tolist() == ["é"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"some\.rda is not a file of R's save\(\)"),
        (b"RDA2\nA\n2\n", "it starts with b'RDA2"),
        (gzip.compress(saved({}), mtime=0)[:-12], "truncated or damaged"),
        (saved({"x": reals([1, 2])})[:-9], "truncated or damaged: 16 bytes wanted, 11 are there"),
        (saved({"x": reals([1])}) + b"more", "4 bytes are left over"),
        (saved({"x": flags(4)}), "holds an environment, which is no data"),
        (saved({"x": flags(99)}), "holds an object of type 99"),
        (saved({"x": flags(238)}), r"save\(\.\.\., version=2\)"),
        (saved({"x": flags(14) + struct.pack(">3i", -1, 1, 1)}), "more than 2³¹ − 1 values"),
        (saved({"x": flags(255, 9 << 8)}), "refers to a symbol 9 of 1"),
        (saved({"x": integers([3], levels=strings(["a", "b"]))}), "a factor of 2 labels holds number 3"),
        (saved({"x": integers([0], levels=strings(["a", "b"]))}), "a factor of 2 labels"),
        (saved({"x": reals([1, 2, 3], dim=integers([2, 2]))}), "truncated or damaged: cannot reshape"),
        (saved({"x": items([reals([1])], names=strings(["a", "b"]))}), "truncated or damaged"),
        (b"RDX2\nX\n" + struct.pack(">3i", 3, 0, 0), "it says to be of version 3"),
        (saved({})[:-4] + flags(13), "a list of pairs ends in type 13"),
    ],
)
def test_what_cannot_be_read(read, content, message):
    with pytest.raises(InputError, match=message):
        read(content)


def test_bytes_gone_wrong_are_never_another_error(read):
    whole = saved({"x": matrix(np.eye(2)), "f": factor(["a", "b"]), "l": named({"u": strings(["v"])})})
    random = np.random.default_rng(0)
    said = []
    for _ in range(150):
        broken = bytearray(whole)
        broken[random.integers(7, len(whole))] = random.integers(256)
        try:
            read(bytes(broken))
        except InputError as error:
            said.append(str(error))
    assert len(said) > 50
    assert all(one.startswith("some.rda") for one in said)
