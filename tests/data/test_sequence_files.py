"""Pickled sequences: what is read, what is refused, and CMU-MOSI and CMU-MOSEI from files of their make."""

import collections
import io
import os
import pickle

import numpy as np
import pytest

from consilience.core.errors import InputError, UnknownNameError
from consilience.data import load_data
from consilience.data.files.array_pickles import read_sequences_pickle
from consilience.data.sets.cmu_sequences import to_front

rng = np.random.default_rng(0)
CONTENT = {
    "floats": rng.normal(size=(3, 4, 2)).astype(np.float32),
    "transposed": np.asfortranarray(rng.normal(size=(3, 5))),
    "big-endian": np.arange(6, dtype=">i4").reshape(2, 3),
    "booleans": np.array([True, False]),
    "bytes": np.array([b"one", b"eleven"]),
    "words": np.array(["eins", "fünf"]),
    "objects": np.asfortranarray(np.array([["a", b"b", 3], [None, 2.5, "c"]], dtype=object)),
    "empty": np.empty((0, 3)),
    "scalar": np.float64(0.25),
    "plain": [1, 2.5, ("a", None, True), {"b": b"\x00\xff"}],
    5: np.array(7),
}


def same(one, other):
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and one.tolist() == other.tolist()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_come_back_as_numpy_itself_would_read_them(tmp_path, protocol):
    path = tmp_path / "arrays.pkl"
    path.write_bytes(pickle.dumps(CONTENT, protocol=protocol))
    assert same(CONTENT, read_sequences_pickle(path))


def test_the_names_of_older_and_newer_numpy_are_known(tmp_path):
    path = tmp_path / "arrays.pkl"
    # At protocol 2 a name stands in the file as a line of text, whose length may change.
    written = pickle.dumps(CONTENT["floats"], protocol=2)
    ours = b"numpy._core" if b"numpy._core" in written else b"numpy.core"
    for name in (b"numpy._core", b"numpy.core"):
        path.write_bytes(written.replace(ours, name))
        np.testing.assert_array_equal(read_sequences_pickle(path), CONTENT["floats"])


def test_strings_of_python_2_are_read(tmp_path):
    # {'x': 'caf\xe9'} of Python 2 at protocol 1: SHORT_BINSTRING, which is neither text nor bytes.
    path = tmp_path / "old.pkl"
    path.write_bytes(b"}q\x00U\x01xq\x01U\x04caf\xe9q\x02s.")
    assert read_sequences_pickle(path) == {"x": "café"}


class Calls:
    def __init__(self, function, *arguments, state=None):
        self.called = (function, arguments, state)

    def __reduce__(self):
        return self.called


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (Calls(os.mkdir, "made-by-the-pickle"), r"holds (posix|nt)\.mkdir"),
        ([Calls(eval, "1")], r"holds builtins\.eval"),
        (collections.OrderedDict(a=1), r"holds collections\.OrderedDict"),
        (Calls(np.load, "x.npy"), r"holds numpy\.load"),
        ({"a": {1, 2}}, "holds a set"),
        (np.ndarray, "holds a type"),
        (np.array([1 + 2j]), "holds an array of complex128"),
        (np.zeros(2, dtype=[("a", "f4"), ("b", "O")]), "holds an array of "),
        (np.array(["2020-01-01"], dtype="M8[D]"), "holds an array of "),
        (np.array([{1}], dtype=object), "holds a set"),
    ],
)
def test_whatever_is_no_data_is_refused_by_name(tmp_path, monkeypatch, content, named):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pkl"
    path.write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(InputError, match=rf"evil\.pkl {named}.*nothing else"):
        read_sequences_pickle(path)
    assert not (tmp_path / "made-by-the-pickle").exists()


def test_a_reference_outside_the_file_is_refused(tmp_path):
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.persistent_id = lambda value: "elsewhere" if value == 3 else None
    pickler.dump([3])
    (tmp_path / "a.pkl").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="a reference to 'elsewhere' outside of itself"):
        read_sequences_pickle(tmp_path / "a.pkl")


def test_a_type_that_lies_about_its_memory_is_not_believed(tmp_path):
    # An array of objects whose flags deny that it is one, with pointers as plain bytes: numpy would follow them.
    make, arguments, _ = np.empty(0, dtype=object).__reduce__()
    state = (1, (1,), np.dtype(object), False, b"AAAAAAAA")
    honest = pickle.dumps(Calls(make, *arguments, state=state), protocol=2)
    forged = honest.replace(b"K\x3ft", b"K\x00t")
    assert forged != honest
    (tmp_path / "forged.pkl").write_bytes(forged)
    with pytest.raises(InputError, match="cannot reshape array of size 8"):
        read_sequences_pickle(tmp_path / "forged.pkl")


@pytest.mark.parametrize("change", [lambda raw: raw[:-40], lambda raw: b"", lambda raw: b"hello" + raw])
def test_damaged_files_are_said(tmp_path, change):
    path = tmp_path / "damaged.pkl"
    path.write_bytes(change(pickle.dumps(CONTENT)))
    with pytest.raises(InputError, match=r"damaged\.pkl is truncated or not a pickle"):
        read_sequences_pickle(path)


def test_moved_sequences_are_what_a_loop_over_samples_gives():
    n, steps = 60, 7
    values = {name: rng.normal(size=(n, steps, width)) for name, width in (("text", 3), ("audio", 2))}
    first, last = rng.integers(0, steps, size=n), rng.integers(0, 3, size=n)
    for row in range(n):
        for one in values.values():
            one[row, : first[row]] = 0
            one[row, steps - last[row] :] = 0
    values["text"][:5] = 0
    values["audio"][5:9] = 0
    values["text"][9, first[9]] = 0  # a word without a vector
    moved, lengths = to_front(values, "text")
    for row in range(n):
        text, audio = values["text"][row], values["audio"][row]
        leading = text if text.any() else audio
        inside = np.flatnonzero(np.concatenate([text, audio], axis=1).any(axis=1))
        begin = np.flatnonzero(leading.any(axis=1))[0] if leading.any() else 0
        end = inside[-1] + 1 if len(inside) else 0
        for name, one in (("text", text), ("audio", audio)):
            kept = one[begin:end]
            np.testing.assert_array_equal(moved[name][row, : len(kept)], kept)
            assert not moved[name][row, len(kept) :].any()
            assert lengths[name][row] == (len(kept) if kept.any() else 0)


def part(n, start=2, time=6):
    """As published: words at the end, zeros in front, labels [n, 1, 1], who spoke as bytes."""
    arrays = {name: rng.normal(size=(n, time, width)) for name, width in (("text", 4), ("vision", 3), ("audio", 2))}
    for one in arrays.values():
        one[:, :start] = 0
    arrays["audio"][0, -1, 0] = -np.inf
    arrays["labels"] = np.linspace(-3, 3, n).reshape(n, 1, 1).astype(np.float32)
    arrays["id"] = np.array([[b"video", b"0.5", b"1.5"]] * n)
    return arrays


def published(folder, name, **changes):
    content = {"train": part(21), "valid": part(7, start=1), "test": part(9)}
    for where, value in changes.items():
        part_name, _, key = where.partition("_")
        if value is None:
            del content[part_name][key]
        else:
            content[part_name][key] = value
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(pickle.dumps(content))
    return content


@pytest.mark.parametrize(
    ("name", "file"), [("mosi-sequences", "mosi/mosi_data.pkl"), ("mosei-sequences", "mosei/mosei_senti_data.pkl")]
)
def test_published_sequences(tmp_path, name, file):
    content = published(tmp_path, file)
    content["train"]["vision"][3] = 0  # nobody's face was found
    content["train"]["video"] = content["train"].pop("vision")
    (tmp_path / file).write_bytes(pickle.dumps(content))
    data = load_data(name, data_dir=tmp_path)
    assert data.task == "regression"
    assert data.sizes == {"train": 21, "validation": 7, "test": 9}
    assert data.official_split
    assert not data.drawn_validation
    assert {one: m.shape for one, m in data.modalities.items()} == {"text": (6, 4), "audio": (6, 2), "video": (6, 3)}
    np.testing.assert_allclose(data.test.y, np.linspace(-3, 3, 9), rtol=1e-6)
    assert data.validation.lengths["text"].tolist() == [5] * 7
    np.testing.assert_allclose(data.test["video"][4, :4], content["test"]["vision"][4, 2:], rtol=1e-6)
    assert not data.test["video"][4, 4:].any()
    assert np.flatnonzero(~data.samples.present_in("video")).tolist() == [3]
    assert data.test["audio"][0, 3, 0] == 0  # −∞ in the file


def test_the_sign_of_an_opinion(tmp_path):
    published(tmp_path, "mosi/mosi_data.pkl")
    data = load_data("mosi-sequences", data_dir=tmp_path, label="binary")
    assert data.task == "classification"
    assert data.sizes == {"train": 20, "validation": 6, "test": 8}  # without the middle one, which is neither
    assert data.test.y.tolist() == ["negative"] * 4 + ["positive"] * 4
    with pytest.raises(UnknownNameError, match="label 'sign'"):
        load_data("mosi-sequences", data_dir=tmp_path, label="sign")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_audio": None}, r"test of mosi_data\.pkl lacks the array audio; it holds text, vision, labels, id"),
        ({"valid_text": np.zeros((7, 6))}, r"valid of mosi_data\.pkl: aligned sequences .* got text \[7, 6\]"),
        ({"test_audio": np.zeros((9, 5, 2))}, r"of one n and time, got .*audio \[9, 5, 2\]"),
        ({"test_vision": np.ones((9, 6, 5))}, r"video differs from part to part, \[\(6, 3\), \(6, 5\)\]"),
        ({"train_labels": np.zeros((21, 2, 1))}, r"labels are one number a sample, .* got \[21, 2, 1\]"),
        ({"train_labels": np.array(1.0)}, r"labels are one number a sample, .* got \[\]"),
        (
            {"train_labels": np.full((21, 1, 1), 4.0)},
            "labels lie from −3 to 3, got 4.0 in rows 0, 1, 2, 3, 4 and 16 more",
        ),
        ({"train_labels": np.full((21, 1), np.nan)}, "labels lie from −3 to 3, got nan"),
    ],
)
def test_other_files_are_refused(tmp_path, changes, message):
    published(tmp_path, "mosi/mosi_data.pkl", **changes)
    with pytest.raises(InputError, match=message):
        load_data("mosi-sequences", data_dir=tmp_path)


def test_a_pickle_of_something_else(tmp_path):
    (tmp_path / "mosi").mkdir()
    path = tmp_path / "mosi" / "mosi_data.pkl"
    for content, found in (([1], "a list"), ({"train": {}, "dev": {}}, "train, dev")):
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(InputError, match=f"must be a dict with the dicts train, valid and test, it holds {found}"):
            load_data("mosi-sequences", data_dir=tmp_path)
