"""Opinions and labels in files: batches are the file's rows in order, whatever the format and the batch's size."""

from __future__ import annotations

import gzip

import numpy as np
import polars as pl
import pytest

from consilience.core.errors import InputError
from consilience.data.files.opinion_files import open_opinions, renamed
from consilience.data.files.opinion_labels import match_labels, open_labels
from consilience.data.files.posterior_writer import writing


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(0).normal(size=(23, 3))


def whole(opened, rows):
    """All batches of a file joined, after checking their sizes."""
    batches = list(opened.batches(rows))
    sizes = [len(next(iter(batch.values()))) for batch in batches]
    assert all(size == rows for size in sizes[:-1])
    return {name: np.concatenate([batch[name] for batch in batches]) for name in opened.names}


@pytest.mark.parametrize("rows", [1, 7, 23, 1000])
@pytest.mark.parametrize("ending", ["npy", "npz", "csv", "tsv", "csv.gz", "parquet"])
def test_every_format_in_batches(values, tmp_path, ending, rows):
    path = tmp_path / f"expert.{ending}"
    frame = pl.DataFrame(values, schema=["a", "b", "c"])
    if ending == "npy":
        np.save(path, values)
    elif ending == "npz":
        np.savez(path, some=values, y=np.arange(23))
    elif ending == "parquet":
        frame.write_parquet(path, row_group_size=5)
    else:
        text = frame.write_csv(separator="\t" if ending == "tsv" else ",").encode()
        path.write_bytes(gzip.compress(text) if ending == "csv.gz" else text)
    opened = open_opinions([path])
    assert (opened.names, opened.width) == (("expert",), 3)
    assert opened.classes == (None if ending in ("npy", "npz") else ("a", "b", "c"))
    np.testing.assert_allclose(whole(opened, rows)["expert"], values)


@pytest.mark.parametrize(
    ("kind", "read_as"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64"), ("int8", "float64")]
)
def test_numbers_are_at_least_32_bits_wide(tmp_path, kind, read_as):
    np.save(tmp_path / "a.npy", np.ones((4, 2), dtype=kind))
    assert next(open_opinions([tmp_path / "a.npy"]).batches(9))["a"].dtype == read_as


def test_records_over_several_lines_stay_whole(tmp_path):
    words = ["plain", 'two\nlines "quoted"', "a,b", "NA"] * 5
    frame = pl.DataFrame({"word": words, "x": np.arange(20.0), "y": np.arange(20.0)})
    frame.write_csv(tmp_path / "a.csv")
    opened = open_opinions([tmp_path / "a.csv"], reserved=["word"])
    np.testing.assert_array_equal(whole(opened, 3)["a"][:, 0], np.arange(20))
    labels = open_labels(tmp_path / "a.csv", "word")
    assert [label for batch in labels.read(3) for label in batch.tolist()] == words
    assert labels.count()["NA"] == 5  # a name, in a column of names


def test_a_table_is_not_read_further_than_needed(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 100 + "1,x\n")
    batches = open_opinions([tmp_path / "a.csv"]).batches(10)
    assert len(next(batches)["a"]) == 10
    with pytest.raises(InputError, match=r"a\.csv cannot be read as a table: could not parse `x`"):
        list(batches)


def test_columns_are_brought_into_one_order(values, tmp_path):
    frame = pl.DataFrame(values, schema=["a", "b", "c"])
    both = [frame.rename(lambda one: f"x_{one}_p"), frame.select("c", "a", "b").rename(lambda one: f"y_{one}")]
    pl.concat(both, how="horizontal").write_parquet(tmp_path / "both.parquet")
    opened = open_opinions([tmp_path / "both.parquet"], experts={"x": ["x_*_p"], "y": ["y_*"]})
    assert opened.classes == ("a", "b", "c")
    read = whole(opened, 10)
    np.testing.assert_array_equal(read["x"], values)
    np.testing.assert_array_equal(read["y"], values)
    turned = renamed(opened, ["p", "q"], ("b", "c", "a"))
    np.testing.assert_array_equal(whole(turned, 10)["q"], values[:, [1, 2, 0]])


@pytest.mark.parametrize(
    ("labels", "width", "names", "places"),
    [
        ([0, 2], 3, None, {0: 0, 2: 2}),
        ([1, 2, 3], 3, None, {1: 0, 2: 1, 3: 2}),
        (["10", "9", "8"], 3, None, {"8": 0, "9": 1, "10": 2}),
        (["b", "a"], 2, None, {"a": 0, "b": 1}),
        (["b"], 2, ["b", "a"], {"b": 0}),
        ([1.0, 2.0], 2, ["2", "1"], {1.0: 1, 2.0: 0}),
        (["1", "0"], 2, ["class_0", "class_1"], {"0": 0, "1": 1}),
        ([True, False], 2, None, {False: 0, True: 1}),
    ],
)
def test_labels_find_their_classes(labels, width, names, places):
    assert match_labels(dict.fromkeys(labels, 1), width, names) == places


@pytest.mark.parametrize(
    ("labels", "names", "said"),
    [
        ([0, 3], None, "the opinions are on 3 classes, the labels are '0', '3'"),
        ([-1, 0], None, "use labels from 0 to 2"),
        (["a", "b"], None, "name the classes in the order of the columns"),
        ([0, 1, 2], ["1", "2", "3"], "label 0 (1 of 3 labels) is none of the classes '1', '2', '3'"),
    ],
)
def test_labels_that_are_no_classes(labels, names, said):
    with pytest.raises(InputError) as raised:
        match_labels(dict.fromkeys(labels, 1), 3, names)
    assert said in str(raised.value)


def test_labels_are_refused_with_their_rows(tmp_path):
    pl.DataFrame({"y": ["a", "b", None, "a"]}).write_parquet(tmp_path / "y.parquet")
    with pytest.raises(InputError, match=r"y\.parquet: column 'y' is empty in row 2"):
        list(open_labels(tmp_path / "y.parquet").read(2))
    np.save(tmp_path / "y.npy", np.array([0.5, 1.0]))
    with pytest.raises(InputError, match=r"y\.npy: labels must be whole numbers or strings, got 0\.5"):
        open_labels(tmp_path / "y.npy").count()
    np.save(tmp_path / "two.npy", np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"two\.npy: labels must have shape \[n\], got \[3, 2\]"):
        open_labels(tmp_path / "two.npy")


def test_a_header_without_rows(tmp_path):
    np.save(tmp_path / "none.npy", np.empty((0, 3)))
    with pytest.raises(InputError, match=r"none\.npy has no rows"):
        open_opinions([tmp_path / "none.npy"])


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_npy_that_grew(tmp_path, kind):
    posterior = np.log(np.random.default_rng(0).dirichlet([1, 1], size=30)).astype(kind)
    with writing(tmp_path / "a.npy", ["a", "b"]) as write:
        for rows in np.split(posterior, [10, 20]):
            write(rows)
    written = np.load(tmp_path / "a.npy")
    assert written.dtype == kind
    np.testing.assert_array_equal(written, np.exp(posterior))


def test_columns_named_outright_are_called_what_their_classes_are(tmp_path):
    pl.DataFrame({"id": [1.0], "dog": [0.2], "cat": [0.8]}).write_csv(tmp_path / "a.csv")
    pl.DataFrame({"cat": [0.7], "dog": [0.3]}).write_csv(tmp_path / "b.csv")
    opened = open_opinions([tmp_path / "a.csv", tmp_path / "b.csv"], columns=["dog", "cat"])
    assert opened.classes == ("dog", "cat")
    assert {name: said.tolist() for name, said in next(opened.batches(9)).items()} == {
        "a": [[0.2, 0.8]],
        "b": [[0.3, 0.7]],
    }
    with pytest.raises(InputError, match=r"a.csv has 3, b.csv 2 \(not in both: 'id'\). .* \(--columns\)"):
        open_opinions([tmp_path / "a.csv", tmp_path / "b.csv"])


@pytest.mark.parametrize(
    ("ending", "mark", "found"), [("csv", ";", "semicolons"), ("csv", "\t", "tabs"), ("tsv", ",", "commas")]
)
def test_another_separator_is_recognised(tmp_path, ending, mark, found):
    path = tmp_path / f"a.{ending}"
    path.write_text(f"cat{mark}dog\n1{mark}2\n")
    with pytest.raises(InputError, match=f"a.{ending} seems to have {found} between its cells") as caught:
        open_opinions([path])
    assert ("decimal_comma=True" in str(caught.value)) == (mark == ";")


@pytest.mark.parametrize("first", ["0.2,0.3,0.5", "1.257e-01,-3,2", "0.5,0.5,0", "nan,1,2", "0,1,0"])
def test_a_table_without_names_loses_no_row(tmp_path, first):
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\n0.1,0.8,0.1\n")
    with pytest.raises(InputError, match=r"a.csv: the first line holds numbers \(.*insert a line of names before it"):
        open_opinions([path])


@pytest.mark.parametrize("names", ["0,1,2", "0.0,1.0,2.0", "400.5,500.5,class"])
def test_names_that_are_numbers_are_names(tmp_path, names):
    path = tmp_path / "a.csv"
    path.write_text(f"{names}\n0.1,0.8,0.1\n")
    assert open_opinions([path]).classes == tuple(names.split(","))
