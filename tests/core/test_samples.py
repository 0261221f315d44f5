"""Samples as a set: who is present, targets and weights, slicing as scikit-learn does it, data that stays on disk."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, cross_val_score, train_test_split
from sklearn.utils import _safe_indexing, indexable

from consilience.core.errors import InputError, UnknownNameError
from consilience.core.samples import MappedRows, Modality, Samples, as_rows, check_weight

NAN = float("nan")


def five() -> Samples:
    """Five samples of every kind, some missing, whose values tell their row."""
    vector = np.arange(10.0).reshape(5, 2)
    vector[3] = NAN
    return Samples.of(
        {
            "vector": vector,
            "image": np.arange(5 * 8, dtype=np.uint8).reshape(5, 2, 2, 2),
            "sequence": [np.full((length, 2), float(length)) for length in (3, 1, 2, 3, 1)],
            "tokens": [[1, 2], [3], None, [4, 5], [6]],
            "text": ["zero", "one", "two", None, "four"],
        },
        y=["a", "b", "a", "b", "a"],
        weight=[1.0, 2.0, 3.0, 4.0, 5.0],
        present={"image": [True, True, True, True, False]},
        index=[10, 11, 12, 13, 14],
    )


def same(one: Samples, other: Samples) -> bool:
    return (
        one.modalities == other.modalities
        and all(one.read(name).tolist() == other.read(name).tolist() for name in one.names)
        and all(np.array_equal(one.lengths[name], other.lengths[name]) for name in one.lengths)
        and np.array_equal(one.present, other.present)
        and np.array_equal(one.y, other.y)
        and np.array_equal(one.weight, other.weight)
        and np.array_equal(one.index, other.index)
    )


class TestTheDoor:
    @pytest.mark.parametrize("X", [np.ones((3, 2)), [1, 2], None, "ab"])
    def test_samples_are_a_mapping(self, X):
        with pytest.raises(InputError, match=f"mapping of modality name → values, got {type(X).__name__}"):
            Samples.of(X)

    def test_of_at_least_one_modality(self):
        with pytest.raises(InputError, match="at least one modality"):
            Samples.of({})

    @pytest.mark.parametrize("name", ["", 3, None, ("a",)])
    def test_named_by_strings(self, name):
        with pytest.raises(InputError, match="names must be non-empty strings"):
            Samples.of({name: np.ones((2, 2))})

    def test_every_modality_has_one_row_per_sample(self):
        with pytest.raises(InputError, match="one row per sample, but a has 3, b has 4"):
            Samples.of({"a": np.ones((3, 2)), "b": np.ones((4, 2))})

    @pytest.mark.parametrize("nothing", [np.ones((0, 3)), [], np.array([], dtype=object)])
    def test_there_must_be_samples(self, nothing):
        with pytest.raises(InputError, match="no samples"):
            Samples.of({"a": nothing})

    @pytest.mark.parametrize("argument", ["kinds", "lengths", "present"])
    def test_an_unknown_modality_says_where_it_was_given(self, argument):
        with pytest.raises(UnknownNameError, match=rf"'imag': did you mean 'image'\?.*given in {argument}"):
            Samples.of({"image": np.ones((2, 1, 2, 2))}, **{argument: {"imag": [True, True]}})

    @pytest.mark.parametrize("name", ["keys", "temp.1", "values", "y", "__len__", "a b", "ü"])
    def test_any_name_will_do(self, name):
        samples = Samples.of({name: np.ones((2, 3)), "other": np.zeros((2, 1))})
        assert samples[name].shape == (2, 3)
        assert name in samples
        assert samples.names == tuple(samples.keys()) == (name, "other")
        assert samples[:1].read(name).tolist() == [[1, 1, 1]]

    def test_samples_are_a_mapping_themselves(self):
        samples = five()
        assert list(dict(samples)) == list(samples) == list(samples.names)
        assert dict(samples)["vector"] is samples["vector"]

    def test_an_unknown_name_is_answered_with_the_known_ones(self):
        for ask in (five().__getitem__, five().present_in, five().read, lambda name: five().only([name])):
            with pytest.raises(UnknownNameError, match="unknown modality 'vektor': did you mean 'vector'"):
                ask("vektor")
        with pytest.raises(UnknownNameError, match="unknown modality 'new'"):
            five().replaced({"new": np.ones((5, 2))})


class TestPresent:
    def test_all_ways_to_be_missing(self):
        assert five().present.tolist() == [
            [True, True, True, True, True],
            [True, True, True, True, True],
            [True, True, True, False, True],
            [False, True, True, True, False],
            [True, False, True, True, True],
        ]

    @pytest.mark.parametrize("make", [np.array, torch.tensor, pd.DataFrame, lambda x: pl.DataFrame(x, orient="row")])
    @pytest.mark.parametrize("dtype", [bool, int, float])
    def test_an_array_in_the_order_of_the_modalities(self, make, dtype):
        mask = [[dtype(1), dtype(0)], [dtype(1), dtype(1)]]
        samples = Samples.of({"b": np.ones((2, 1)), "a": np.ones((2, 1))}, present=make(mask))
        assert samples.present_in("b").tolist() == [True, True]
        assert samples.present_in("a").tolist() == [False, True]
        assert samples.present_among(["b", "unknown", "a"]).tolist() == [[True, False, False], [True, False, True]]

    def test_the_mask_is_not_shared_with_the_caller(self):
        mask = np.array([[True], [True]])
        samples = Samples.of({"a": np.ones((2, 1))}, present=mask)
        mask[0] = False
        assert samples.present.all()

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            (np.ones((2, 3), bool), r"present must have shape \[n, modality\] = \[2, 1\], got \[2, 3\]"),
            (np.ones(2, bool), r"got \[2\]"),
            ({"a": [True]}, r"present\['a'\] have 1 rows, the samples have 2"),
            ({"a": [0.5, 1.0]}, r"present\['a'\] must hold booleans"),
            ([[NAN], [1.0]], "present must hold booleans"),
            ([["yes"], ["no"]], "present must hold booleans"),
        ],
    )
    def test_what_is_no_mask(self, mask, message):
        with pytest.raises(InputError, match=message):
            Samples.of({"a": np.ones((2, 1))}, present=mask)

    @given(hnp.arrays(bool, (6, 2)), hnp.arrays(bool, (6, 2)), hnp.arrays(bool, (6, 2)), hnp.arrays(bool, (6,)))
    def test_missing_in_any_way_is_missing(self, nan_rows, mask, again, short):
        values = np.where(nan_rows[:, [0]], NAN, np.ones((6, 3)))
        steps = np.where(nan_rows[:, 1, None, None], NAN, np.ones((6, 4, 2)))
        lengths = {"b": np.where(short, 0, 3)}
        samples = Samples.of({"a": values, "b": steps}, lengths=lengths, present={"a": mask[:, 0], "b": mask[:, 1]})
        samples = Samples.of(samples, present=again)
        assert np.array_equal(samples.present[:, 0], ~nan_rows[:, 0] & mask[:, 0] & again[:, 0])
        assert np.array_equal(samples.present[:, 1], ~nan_rows[:, 1] & ~short & mask[:, 1] & again[:, 1])
        assert not samples.read("a")[~samples.present_in("a")].any()
        assert np.isfinite(samples.read("a")).all()

    def test_reading_gives_zeros_and_empty_strings_and_leaves_the_data_alone(self):
        samples = five()
        assert samples.read("vector")[3].tolist() == [0, 0]
        assert samples.read("text").tolist() == ["zero", "one", "two", "", "four"]
        assert not samples.read("image")[4].any()
        assert np.isnan(samples["vector"][3]).all()
        assert samples["text"][3] is None
        assert samples["image"][4].any()


class TestTargetsAndWeights:
    @pytest.mark.parametrize("make", [list, np.array, pd.Series, pl.Series, torch.tensor])
    def test_targets_in_any_form(self, make):
        assert Samples.of({"a": np.ones((3, 1))}, y=make([2, 0, 1])).y.tolist() == [2, 0, 1]

    def test_targets_of_another_length(self):
        with pytest.raises(InputError, match="targets have 2 rows, the samples have 3"):
            Samples.of({"a": np.ones((3, 1))}, y=[0, 1])
        with pytest.raises(InputError, match="targets have no rows"):
            Samples.of({"a": np.ones((3, 1))}, y=1)

    def test_several_targets(self):
        assert Samples.of({"a": np.ones((3, 1))}, y=np.ones((3, 2))).y.shape == (3, 2)

    def test_numbers_among_strings_stay_numbers(self):
        assert Samples.of({"a": np.ones((3, 1))}, y=["x", NAN, 1]).y.tolist()[::2] == ["x", 1]

    @pytest.mark.parametrize("make", [list, np.array, pd.Series, pl.Series, torch.tensor])
    def test_weights_in_any_form(self, make):
        assert Samples.of({"a": np.ones((2, 1))}, weight=make([0.5, 2.0])).weight.tolist() == [0.5, 2.0]

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            ([1, -1, 1, -2], r"finite and ≥ 0 \(rows 1, 3\)"),
            ([1, NAN, 1, np.inf], r"finite and ≥ 0 \(rows 1, 3\)"),
            ([1, None, 1, 1], r"finite and ≥ 0 \(row 1\)"),
            ([0, 0, 0, 0], "all zero"),
            ([1, 1], "sample weights have 2 rows, the samples have 4"),
            (np.ones((4, 1)), r"sample weights must have shape \[n\], got \[4, 1\]"),
            (["a"] * 4, "sample weights must be numbers, got <U1"),
        ],
    )
    def test_what_is_no_weight(self, weight, message):
        with pytest.raises(InputError, match=message):
            check_weight(weight, 4)

    def test_the_index_holds_whole_numbers(self):
        with pytest.raises(InputError, match="index must hold whole numbers, got float64"):
            Samples.of({"a": np.ones((2, 1))}, index=[0.5, 1.5])

    def test_samples_may_be_given_targets_later(self):
        bare = Samples.of({"a": np.ones((2, 1))})
        full = Samples.of(bare, y=[1, 2], weight=[1, 3], index=[7, 8])
        assert (full.y.tolist(), full.weight.tolist(), full.index.tolist()) == ([1, 2], [1.0, 3.0], [7, 8])
        assert bare.y is None
        assert Samples.of(full).y.tolist() == [1, 2]
        with pytest.raises(InputError, match="kinds"):
            Samples.of(bare, kinds={"a": "vector"})


class TestSlicing:
    @pytest.mark.parametrize(
        ("key", "rows"),
        [
            (2, [2]),
            (-1, [4]),
            (np.int64(3), [3]),
            (slice(1, 3), [1, 2]),
            (slice(None, None, -2), [4, 2, 0]),
            ([4, 0, 0], [4, 0, 0]),
            ([], []),
            (np.array([], dtype=int), []),
            (range(2), [0, 1]),
            (torch.tensor([1, 3]), [1, 3]),
            (pd.Series([False, True, False, False, True]), [1, 4]),
            (np.array([True, False, False, False, True]), [0, 4]),
            ([False] * 5, []),
            ((np.array([1, 2]), ...), [1, 2]),
            ((slice(3, None), ...), [3, 4]),
        ],
    )
    def test_every_kind_of_rows(self, key, rows):
        chosen = five()[key]
        assert len(chosen) == len(rows)
        assert chosen.shape == (len(rows),)
        assert chosen.index.tolist() == [10 + row for row in rows]
        assert chosen.weight.tolist() == [1.0 + row for row in rows]
        assert chosen.present.tolist() == five().present[rows].tolist()
        for name in chosen.names:
            everything = five().read(name).tolist()
            assert chosen.read(name).tolist() == [everything[row] for row in rows]

    @pytest.mark.parametrize(
        ("key", "message"),
        [
            ((1, 2), r"samples\[\[0, 1\]\]"),
            ((1, 2, 3), "rows alone"),
            ([True, False], "mask of 2 entries cannot select from 5 samples"),
            (np.array([], dtype=bool), "mask of 0 entries"),
            ([0.5], "got float64"),
            (["vector", "text"], r"only\(names\) chooses modalities"),
            (np.zeros((2, 2), int), r"of shape \[2, 2\]"),
        ],
    )
    def test_what_is_no_row(self, key, message):
        with pytest.raises(InputError, match=message):
            five()[key]

    def test_a_row_that_does_not_exist(self):
        with pytest.raises(IndexError):
            five()[5]
        with pytest.raises(IndexError):
            five()[[0, -6]]

    @given(st.lists(st.integers(-5, 4)), st.data())
    def test_slicing_commutes_with_reading_and_with_slicing(self, rows, data):
        samples = five()
        chosen = samples[rows]
        for name in samples.names:
            assert chosen.read(name).tolist() == samples.read(name, as_rows(rows, 5)).tolist()
        if rows:
            again = data.draw(st.lists(st.integers(0, len(rows) - 1)))
            assert same(chosen[again], samples[[rows[row] for row in again]])

    @given(hnp.arrays(bool, 5))
    def test_a_mask_is_its_rows(self, mask):
        assert same(five()[mask], five()[np.flatnonzero(mask)])

    def test_fewer_modalities_in_another_order(self):
        samples = five().only(["text", "vector"])
        assert samples.names == ("text", "vector")
        assert np.array_equal(samples.present, five().present[:, [4, 0]])
        assert samples.lengths == {}
        assert five().only(["tokens"]).lengths["tokens"].tolist() == [2, 1, 0, 2, 1]
        for names in ([], ["text", "text"]):
            with pytest.raises(InputError, match="at least one modality, each once"):
                five().only(names)

    def test_replaced_changes_a_copy(self):
        samples = five()
        changed = samples.replaced({"vector": np.zeros((5, 2))}, present=np.ones((5, 5), bool))
        assert changed.present.all()
        assert not changed["vector"].any()
        assert samples["vector"][1].tolist() == [2.0, 3.0]
        assert changed["image"] is samples["image"]


class Majority(ClassifierMixin, BaseEstimator):
    """The least a classifier can do, and it checks that it was handed samples."""

    def fit(self, X, y):
        assert isinstance(X, Samples)
        assert X.y.tolist() == list(y)
        self.classes_, counts = np.unique(y, return_counts=True)
        self.answer_ = self.classes_[counts.argmax()]
        return self

    def predict(self, X):
        return np.full(len(X), self.answer_)


class TestScikitLearn:
    def samples(self):
        y = np.array([0, 0, 1] * 10)
        return Samples.of({"a": np.arange(60.0).reshape(30, 2), "t": [str(i) for i in range(30)]}, y=y), y

    def test_safe_indexing(self):
        samples, _ = self.samples()
        for key in ([3, 1], np.array([3, 1]), slice(2, 4), samples.y == 1, 3):
            assert _safe_indexing(samples, key).index.tolist() == samples[key].index.tolist()
        assert indexable(samples)[0] is samples

    def test_train_test_split(self):
        samples, y = self.samples()
        train, test, y_train, y_test = train_test_split(samples, y, stratify=y, random_state=0)
        assert isinstance(train, Samples)
        assert sorted([*train.index, *test.index]) == list(range(30))
        assert np.array_equal(train.y, y_train)
        assert np.array_equal(test.y, y_test)
        assert train["a"][:, 0].tolist() == (2.0 * train.index).tolist()

    @pytest.mark.parametrize("splitter", [KFold(3), StratifiedKFold(3), GroupKFold(3)])
    def test_cross_validation(self, splitter):
        samples, y = self.samples()
        groups = np.arange(30) % 5 if isinstance(splitter, GroupKFold) else None
        scores = cross_val_score(Majority(), samples, y, cv=splitter, groups=groups, error_score="raise")
        splits = splitter.split(np.zeros(30), y, groups)
        expected = [np.mean(y[test] == np.bincount(y[train]).argmax()) for train, test in splits]
        assert scores.tolist() == expected


@pytest.fixture(params=["load", "memmap"])
def mapped(request, tmp_path):
    """The numbers 0 … 47 as twelve vectors, on disk."""
    values = np.arange(48, dtype=np.float32).reshape(12, 4)
    path = tmp_path / "values.npy"
    np.save(path, values)
    if request.param == "load":
        return np.load(path, mmap_mode="r")
    values.tofile(tmp_path / "values.bin")
    return np.memmap(tmp_path / "values.bin", dtype=np.float32, mode="r", shape=(12, 4))


class TestOnDisk:
    def test_slices_stay_there(self, mapped):
        samples = Samples.of({"a": mapped, "b": np.ones((12, 1))})
        assert samples.on_disk
        assert samples["a"] is mapped
        for part in (samples[2:8], samples[[7, 3]], samples[samples.index > 4], samples[3:][1:][[0, 2]]):
            assert part.on_disk
            assert isinstance(part["a"], MappedRows)
            assert part["a"].base is mapped
            assert part["a"].shape == (len(part), 4)
            assert part.read("a").tolist() == mapped[part.index].tolist()
            assert part.read("a", [1, 0]).tolist() == mapped[part.index[[1, 0]]].tolist()
            assert np.asarray(part["a"]).dtype == np.float32
        assert not samples.only(["b"]).on_disk

    def test_rows_of_a_mapped_array_are_read_again_as_such(self, mapped):
        rows = Samples.of({"a": mapped})[4:]["a"]
        again = Samples.of({"a": rows})
        assert again["a"] is rows
        assert again[1:].on_disk
        assert again[1:].read("a").tolist() == mapped[5:].tolist()

    @pytest.mark.parametrize(("kind", "shape"), [("sequence", (4, 1)), ("vector", (4,))])
    def test_an_axis_is_added_without_reading(self, mapped, kind, shape):
        for values in (mapped, Samples.of({"a": mapped})[4:]["a"]):
            samples = Samples.of({"a": values}, kinds={"a": kind})
            assert samples.modalities["a"].shape == shape
            assert samples.on_disk
            assert samples[[2]].on_disk
            assert samples[[2]].read("a").ravel().tolist() == values[2].tolist()

    def test_one_number_a_sample_and_grey_images(self, tmp_path):
        np.save(tmp_path / "one.npy", np.arange(3.0))
        np.save(tmp_path / "grey.npy", np.arange(12.0).reshape(3, 2, 2))
        on_disk = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("one", "grey")}
        on_disk |= {"rest": Samples.of({"grey": on_disk["grey"]}, kinds={"grey": "image"})[:]["grey"]}
        samples = Samples.of(on_disk, kinds={"grey": "image"})
        assert [samples.modalities[name].shape for name in on_disk] == [(1,), (1, 2, 2), (1, 2, 2)]
        assert all(isinstance(value, np.memmap | MappedRows) for value in samples.values.values())

    def test_missing_rows_and_tokens_are_found(self, tmp_path):
        values = np.ones((5, 2))
        values[2] = NAN
        np.save(tmp_path / "a.npy", values)
        np.save(tmp_path / "ids.npy", np.arange(10).reshape(5, 2))
        on_disk = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("a", "ids")}
        samples = Samples.of(on_disk, kinds={"ids": "tokens"})
        assert samples.modalities["ids"] == Modality("ids", "tokens", (2,), 10)
        assert samples.present_in("a").tolist() == [True, True, False, True, True]
        assert samples[1:4].read("a").tolist() == [[1, 1], [0, 0], [1, 1]]
        assert Samples.of(dict(samples[1:4]), kinds={"ids": "tokens"}).modalities["ids"].vocabulary == 8

    def test_in_memory_data_is_not_on_disk(self):
        assert not five().on_disk
        assert five().only(["vector", "image"]).nbytes == 4 * (10 + 40)


def test_arrays_are_taken_as_they_are():
    values = np.arange(6.0).reshape(3, 2)
    samples = Samples.of({"a": values})
    assert samples["a"] is values
    assert samples.modalities == {"a": Modality("a", "vector", (2,))}
