"""From samples to batches: what is learned from training data, applied to any data, saved and read back."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from sklearn.preprocessing import StandardScaler

from consilience.core.errors import InputError, SavedModelError, UnknownNameError
from consilience.core.samples import MappedRows, Modality, Samples
from consilience.core.targets import Task
from consilience.preparation import Preparation, transforms
from consilience.preparation.transforms import Standardise, Tokens, Words

NAN = float("nan")
CLASSES = Task.of_labels(np.array(["a", "b"]))


def of_kinds(n: int = 12, seed: int = 0) -> Samples:
    """Samples of every kind with every way to be missing, and NaN in the padding."""
    random = np.random.default_rng(seed)
    vector = random.normal(5, 3, (n, 3))
    vector[1] = NAN
    lengths = random.integers(1, 5, n)
    sequence = random.normal(-2, 4, (n, 4, 2)).astype(np.float32)
    sequence[np.arange(4) >= lengths[:, None]] = NAN
    words = np.array(["red", "green", "blue", "square", "circle"])
    text = [" ".join(random.choice(words, random.integers(1, 4))) for _ in range(n)]
    text[2], text[3] = None, ""
    tokens = [random.integers(1, 7, random.integers(1, 4)) for _ in range(n)]
    tokens[4] = None
    tokens[0] = np.array([1, 6, 2])
    return Samples.of(
        {
            "temp.1": vector,
            "image": random.integers(0, 255, (n, 2, 3, 3), dtype=np.uint8),
            "keys": sequence,
            "tokens": tokens,
            "text": text,
        },
        y=np.where(np.arange(n) % 3, "a", "b"),
        lengths={"keys": lengths},
        weight=random.uniform(0.5, 2, n),
        present={"image": np.arange(n) != 5},
        index=100 + np.arange(n),
    )


def fit(values, task=CLASSES, **options) -> tuple[Preparation, Samples]:
    samples = Samples.of({"m": values}, **options)
    return Preparation.fit(samples, task), samples


def assert_same_batch(one, other, up_to_padding=()):
    """Equal in everything; the named modalities may have more padding in one of them."""
    assert one.names == other.names
    for name in one.names:
        a, b = one[name], other[name]
        if name in up_to_padding:
            steps = min(a.shape[1], b.shape[1])
            assert not a[:, steps:].any()
            assert not b[:, steps:].any()
            a, b = a[:, :steps], b[:, :steps]
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    assert one.lengths.keys() == other.lengths.keys()
    for name, length in one.lengths.items():
        assert torch.equal(length, other.lengths[name])
    for part in ("present", "index", "weight"):
        assert torch.equal(getattr(one, part), getattr(other, part))
    assert (one.y is None) == (other.y is None)
    assert one.y is None or torch.equal(one.y, other.y)


class TestStandardisation:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool", ">f4", ">i2"])
    def test_vectors_of_every_type_agree_with_scikit_learn(self, dtype):
        values = np.random.default_rng(0).integers(0, 100, (50, 3)).astype(dtype)
        preparation, samples = fit(values)
        batch = preparation.batch(samples)
        assert batch["m"].dtype == torch.float32
        expected = StandardScaler().fit_transform(values.astype(np.float64))
        assert batch["m"].numpy() == pytest.approx(expected, abs=1e-5)

    @pytest.mark.parametrize("size", [1e8, -1e8, 1e12])
    def test_a_large_mean_costs_no_digits(self, size):
        values = size + np.array([[-1.0], [1.0], [-1.0], [1.0]])
        preparation, samples = fit(values)
        assert preparation.batch(samples)["m"][:, 0].numpy() == pytest.approx([-1, 1, -1, 1], abs=1e-4)

    def test_small_numbers_are_no_constant(self):
        preparation, samples = fit(np.array([[1e-30], [3e-30]]))
        assert preparation.batch(samples)["m"][:, 0].tolist() == [-1, 1]

    @pytest.mark.parametrize("shape", [(9, 4), (9, 5, 3), (9, 2, 3, 3)])
    def test_weights_count_as_repetitions(self, shape):
        random = np.random.default_rng(1)
        values, times = random.normal(3, 2, shape), random.integers(0, 4, 9)
        weighted, _ = fit(values, weight=times)
        repeated, _ = fit(np.repeat(values, times, axis=0))
        for moment in ("mean", "std"):
            one, other = (getattr(each.transforms["m"], moment).numpy() for each in (weighted, repeated))
            assert one == pytest.approx(other, rel=1e-12)
        if len(shape) == 2:
            oracle = StandardScaler().fit(values, sample_weight=times)
            assert weighted.transforms["m"].mean.numpy() == pytest.approx(oracle.mean_)
            assert weighted.transforms["m"].std.numpy() == pytest.approx(oracle.scale_)

    def test_missing_rows_do_not_count(self):
        values = np.array([[1.0, 2.0], [NAN, NAN], [3.0, 6.0], [1e9, 1e9]])
        preparation, samples = fit(values, present={"m": [True, True, True, False]})
        assert preparation.transforms["m"].mean.tolist() == [2.0, 4.0]
        batch = preparation.batch(samples)
        assert batch["m"].tolist() == [[-1, -1], [0, 0], [1, 1], [0, 0]]
        assert batch.present[:, 0].tolist() == [True, False, True, False]
        assert batch.complete == frozenset()

    def test_sequences_without_their_padding(self):
        random = np.random.default_rng(2)
        rows = [random.normal([10, -3], [1, 5], (length, 2)) for length in (1, 4, 2, 7)]
        preparation, samples = fit(rows)
        scaler = StandardScaler().fit(np.concatenate(rows))
        batch = preparation.batch(samples)
        assert batch.lengths["m"].tolist() == [1, 4, 2, 7]
        for row, one in enumerate(rows):
            assert batch["m"][row, : len(one)].numpy() == pytest.approx(scaler.transform(one), abs=1e-5)
            assert not batch["m"][row, len(one) :].any()

    def test_what_lies_in_the_padding_changes_nothing(self):
        values, lengths = np.random.default_rng(3).normal(size=(6, 4, 2)), [1, 2, 3, 4, 2, 1]
        clean, samples = fit(values, lengths={"m": lengths})
        dirty = np.where((np.arange(4) >= np.array(lengths)[:, None])[..., None], [NAN, np.inf], values)
        other, dirty_samples = fit(dirty, lengths={"m": lengths})
        assert_same_batch(clean.batch(samples), other.batch(dirty_samples))

    def test_images_per_channel(self):
        values = np.random.default_rng(4).normal([[[1.0]], [[50.0]]], [[[1.0]], [[9.0]]], (20, 2, 4, 5))
        preparation, samples = fit(values)
        assert preparation.transforms["m"].mean.numpy() == pytest.approx(values.mean((0, 2, 3)))
        batch = preparation.batch(samples)["m"]
        assert batch.mean((0, 2, 3)).numpy() == pytest.approx([0, 0], abs=1e-5)
        assert batch.std((0, 2, 3), correction=0).numpy() == pytest.approx([1, 1], abs=1e-5)

    def test_in_pieces_as_in_one(self, monkeypatch):
        whole, samples = fit(np.random.default_rng(5).normal(1e6, 1, (40, 3)), weight=np.arange(40))
        monkeypatch.setattr(transforms, "SCAN_BYTES", 7 * 3 * 8)
        pieces = Preparation.fit(samples, CLASSES)
        assert pieces.transforms["m"].mean.numpy() == pytest.approx(whole.transforms["m"].mean.numpy(), rel=1e-14)
        assert pieces.transforms["m"].std.numpy() == pytest.approx(whole.transforms["m"].std.numpy(), rel=1e-9)
        assert pieces.batch(samples)["m"].numpy() == pytest.approx(whole.batch(samples)["m"].numpy(), abs=1e-6)

    def test_data_on_disk_as_in_memory(self, tmp_path):
        values = np.random.default_rng(6).normal(size=(20, 3)).astype(np.float32)
        np.save(tmp_path / "m.npy", values)
        memory, samples = fit(values)
        disk, mapped = fit(np.load(tmp_path / "m.npy", mmap_mode="r"))
        assert mapped.on_disk
        for rows in (slice(None), slice(3, 9), [4, 1, 1]):
            assert_same_batch(memory.batch(samples, rows), disk.batch(mapped, rows))
            assert_same_batch(memory.batch(samples, rows), disk.batch(mapped[rows]))

    def test_what_many_samples_share_is_prepared_once_and_counts_for_all(self, monkeypatch):
        random = np.random.default_rng(7)
        base, rows = random.integers(0, 256, size=(5, 1, 4, 4), dtype=np.uint8), random.integers(0, 5, size=40)
        weight = random.random(40)
        memory, samples = fit(base[rows], weight=weight)
        shared, mapped = fit(MappedRows(base, rows), weight=weight)
        for learned in ("mean", "std", "low", "high"):
            got, expected = (getattr(one.transforms["m"], learned).numpy() for one in (shared, memory))
            assert got == pytest.approx(expected, rel=1e-12)
        seen = []
        transform = Standardise.__call__
        monkeypatch.setattr(Standardise, "__call__", lambda *given: seen.append(len(given[1])) or transform(*given))
        for some in (slice(None), [4, 1, 1]):
            assert_same_batch(memory.batch(samples, some), memory.batch(mapped, some))
        assert seen == [40, 5, 3, len({*rows[[4, 1, 1]]})]

    @pytest.mark.parametrize("constant", [0.0, 0.1, 1e8, -3.3])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_a_constant_feature_becomes_zero(self, constant, dtype):
        values = np.stack([np.full(1000, constant), np.arange(1000.0)], axis=1).astype(dtype)
        preparation, samples = fit(values)
        assert preparation.transforms["m"].std[0] == 0
        assert not preparation.batch(samples)["m"][:, 0].any()

    def test_a_constant_that_met_rounding_is_constant(self):
        values = np.stack([np.tile([0.1 + 0.2, 0.3], 50), np.arange(100.0)], axis=1)
        assert np.ptp(values[:, 0]) > 0
        assert fit(values)[0].transforms["m"].std[0] == 0

    @pytest.mark.parametrize("shape", [(5, 3), (5, 4, 3), (5, 2, 3, 3)])
    def test_a_constant_modality_is_refused(self, shape):
        with pytest.raises(InputError, match=r"modality 'm' is constant over the training samples.*Drop it"):
            fit(np.full(shape, 0.7))

    def test_a_single_sample_is_no_constant(self):
        preparation, samples = fit(np.array([[3.0, 4.0]]))
        assert preparation.batch(samples)["m"].tolist() == [[0, 0]]

    def test_numbers_too_large_to_square(self):
        with pytest.raises(InputError, match="modality 'm' holds numbers too large to square"):
            fit(np.array([[1e200], [-1e200], [0.0]]))

    def test_what_is_absurdly_far_away_can_still_be_squared(self):
        preparation, _ = fit(np.array([[1.0], [3.0]]))
        far = preparation.batch(Samples.of({"m": np.array([[1e30], [-1e30], [2e5], [2.5]])}))["m"]
        assert far[:, 0].tolist() == [1e6, -1e6, 199998.0, 0.5]

    def test_a_number_beyond_32_bits_at_prediction(self):
        preparation, _ = fit(np.array([[1.0], [2.0]]))
        with pytest.raises(InputError, match=r"modality 'm' holds a number of size 1e\+50, .*32-bit"):
            preparation.batch(Samples.of({"m": np.array([[1e50]])}))


class TestWords:
    texts = ("The cat, the dog", "the CAT", None, "", "a bird!")

    def test_ids_by_falling_frequency(self):
        preparation, samples = fit(list(self.texts))
        words = preparation.transforms["m"]
        assert words.words == ["the", "cat", "!", ",", "a", "bird", "dog"]
        assert preparation.modalities["m"] == Modality("m", "tokens", (5,), 9)
        batch = preparation.batch(samples)
        assert batch["m"].dtype == torch.int64
        assert batch["m"].tolist() == [[2, 3, 5, 2, 8], [2, 3, 0, 0, 0], [0] * 5, [1, 0, 0, 0, 0], [6, 7, 4, 0, 0]]
        assert batch.lengths["m"].tolist() == [5, 2, 0, 1, 3]
        assert batch.present[:, 0].tolist() == [True, True, False, True, True]

    def test_an_unknown_word_is_one_and_a_longer_text_is_read(self):
        preparation, _ = fit(list(self.texts))
        batch = preparation.batch(Samples.of({"m": ["zebra the " * 4, "dog"]}))
        assert batch["m"].tolist() == [[1, 2] * 4, [8] + [0] * 7]

    def test_the_vocabulary_and_the_texts_are_bounded(self, monkeypatch):
        monkeypatch.setattr(Words, "longest", 3)
        monkeypatch.setattr(Words, "largest", 2)
        preparation, samples = fit(["a b a c c c", "b a"])
        assert preparation.transforms["m"].words == ["a", "b"]
        assert preparation.modalities["m"].shape == (3,)
        assert preparation.batch(samples)["m"].tolist() == [[2, 3, 2], [3, 2, 0]]

    def test_all_missing_in_a_batch(self):
        preparation, samples = fit(list(self.texts))
        batch = preparation.batch(samples, [2])
        assert batch["m"].tolist() == [[0]]
        assert batch.lengths["m"].tolist() == [0]

    @pytest.mark.parametrize("texts", [["a b", "A  b", None], ["", " "], ["same", "same"]])
    def test_constant_texts_are_refused(self, texts):
        with pytest.raises(InputError, match="modality 'm' is constant over the training samples"):
            fit(texts)

    def test_one_word_in_different_numbers_is_no_constant(self):
        preparation, samples = fit(["no", "no no"])
        assert preparation.batch(samples)["m"].tolist() == [[2, 0], [2, 2]]


class TestTokens:
    def test_ids_pass_through_and_padding_is_zero(self):
        ids = np.array([[3, 1, -7], [2, 99, 99], [1, 1, 1]], dtype=np.int16)
        preparation, samples = fit(ids, kinds={"m": "tokens"}, lengths={"m": [2, 1, 3]})
        batch = preparation.batch(samples)
        assert batch["m"].tolist() == [[3, 1, 0], [2, 0, 0], [1, 1, 1]]
        assert batch["m"].dtype == torch.int64
        assert preparation.modalities["m"].vocabulary == 4

    def test_the_batch_shares_no_memory_with_the_samples(self):
        ids = np.array([[3, 1], [2, 2]])
        preparation, samples = fit(ids, kinds={"m": "tokens"})
        batch = preparation.batch(samples)
        batch["m"].zero_()
        batch.index.zero_()
        assert ids.tolist() == [[3, 1], [2, 2]]
        assert samples.index.tolist() == [0, 1]

    def test_an_id_that_training_never_saw(self):
        preparation, _ = fit([[1, 2], [3]])
        with pytest.raises(InputError) as error:
            preparation.batch(Samples.of({"m": [[1], [2, 9], [4]]}))
        assert "modality 'm' holds token id 9 (rows 1, 2), which training never saw" in str(error.value)
        assert "ids from 0 to 3 are known" in str(error.value)

    def test_a_forbidden_id_in_the_padding_or_a_missing_row_is_none(self):
        preparation, _ = fit([[1, 2], [3]])
        given = Samples.of(
            {"m": np.array([[1, 50], [60, 1]])},
            kinds={"m": "tokens"},
            lengths={"m": [1, 2]},
            present={"m": [True, False]},
        )
        assert preparation.batch(given)["m"].tolist() == [[1, 0], [0, 0]]

    def test_constant_tokens_are_refused_unless_their_lengths_differ(self):
        with pytest.raises(InputError, match="modality 'm' is constant"):
            fit(np.array([[1, 2, 8], [1, 2, 9]]), kinds={"m": "tokens"}, lengths={"m": [2, 2]})
        fit(np.array([[1, 0], [1, 0]]), kinds={"m": "tokens"}, lengths={"m": [1, 2]})

    def test_tokens_on_disk(self, tmp_path):
        np.save(tmp_path / "m.npy", np.arange(12).reshape(6, 2))
        mapped = np.load(tmp_path / "m.npy", mmap_mode="r")
        preparation, samples = fit(mapped, kinds={"m": "tokens"})
        assert preparation.batch(samples[2:4])["m"].tolist() == [[4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (np.full((3, 2), NAN), {}),
        ([None, None, None], {"kinds": {"m": "text"}}),
        (np.ones((3, 2), dtype=int), {"kinds": {"m": "tokens"}, "lengths": {"m": [0, 0, 0]}}),
        (["a", "b", "c"], {"present": {"m": [False] * 3}}),
    ],
)
def test_a_modality_that_is_never_there_is_refused(values, options):
    with pytest.raises(InputError, match="modality 'm' is missing in every training sample"):
        fit(values, **options)


class TestBatch:
    def test_everything_is_in_it(self):
        samples = of_kinds()
        batch = Preparation.fit(samples, CLASSES).batch(samples)
        assert batch.names == ("temp.1", "image", "keys", "tokens", "text")
        assert len(batch) == 12
        assert np.array_equal(batch.present.numpy(), samples.present)
        assert batch.index.tolist() == list(range(100, 112))
        assert batch.weight.numpy() == pytest.approx(samples.weight)
        assert batch.y.tolist() == [int(label == "b") for label in samples.y]
        assert batch.complete == {"keys"}
        assert set(batch.lengths) == {"keys", "tokens", "text"}
        for column, name in enumerate(batch.names):
            assert torch.isfinite(batch[name]).all()
            assert not batch[name][~batch.present[:, column]].any()

    def test_without_targets_and_weights(self):
        preparation, _ = fit(np.eye(3))
        batch = preparation.batch(Samples.of({"m": np.eye(3)}))
        assert batch.y is None
        assert batch.weight.tolist() == [1, 1, 1]
        assert batch.whole

    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 11), min_size=1, max_size=8))
    def test_the_batch_of_some_rows_is_some_rows_of_the_batch(self, rows):
        samples = of_kinds()
        preparation = Preparation.fit(samples, CLASSES)
        some = preparation.batch(samples, rows)
        chosen = preparation.batch(samples).select(torch.tensor(rows))
        # Texts are padded to the longest of the batch, not of the set.
        assert_same_batch(some, chosen, up_to_padding=("text",))
        assert_same_batch(some, preparation.batch(samples[rows]))

    @pytest.mark.parametrize(
        ("rows", "index"), [(3, [103]), (slice(2, 4), [102, 103]), (np.arange(12) > 9, [110, 111])]
    )
    def test_rows_of_every_kind(self, rows, index):
        samples = of_kinds()
        assert Preparation.fit(samples, CLASSES).batch(samples, rows).index.tolist() == index

    def test_an_empty_batch_is_empty_and_an_empty_set_of_targets_an_error(self):
        samples = of_kinds()
        preparation = Preparation.fit(samples, CLASSES)
        with pytest.raises(InputError, match="no targets: the set is empty"):
            preparation.batch(samples, [])
        samples.y = None
        empty = preparation.batch(samples, [])
        assert len(empty) == 0
        assert [empty[name].shape[0] for name in empty.names] == [0] * 5

    def test_modalities_in_another_order(self):
        samples = of_kinds()
        preparation = Preparation.fit(samples, CLASSES)
        turned = samples.only(samples.names[::-1])
        assert_same_batch(preparation.batch(turned), preparation.batch(samples))

    def test_a_modality_that_is_absent_is_missing_for_every_sample(self):
        samples = of_kinds()
        preparation = Preparation.fit(samples, CLASSES)
        full = preparation.batch(samples)
        for name in samples.names:
            rest = [other for other in samples.names if other != name]
            batch = preparation.batch(samples.only(rest))
            assert batch.names == full.names
            assert not batch[name].any()
            assert batch[name].dtype == full[name].dtype
            assert batch[name].shape[2:] == full[name].shape[2:]
            assert not batch.present_in(name).any()
            assert name not in batch.complete
            assert (name in batch.lengths) == (name in full.lengths)
            for other in rest:
                assert torch.equal(batch[other], full[other])

    def test_a_modality_that_training_did_not_know(self):
        preparation, _ = fit(np.eye(3))
        with pytest.raises(UnknownNameError, match=r"unknown modality 'n'.*The model was trained on the known ones"):
            preparation.batch(Samples.of({"m": np.eye(3), "n": np.eye(3)}))

    @pytest.mark.parametrize(
        ("trained", "given", "message"),
        [
            (np.eye(3), np.ones((2, 1)), r"trained on m \(vector 3\), got m \(vector 1\)"),
            (np.eye(3), np.ones((2, 3, 1)), r"trained on m \(vector 3\), got m \(sequence 3×1\)"),
            (np.eye(3)[:, None, None], np.ones((2, 1, 3, 1)), r"image 1×1×3\), got m \(image 1×3×1\)"),
            (np.eye(3)[:, :, None], np.ones((2, 3, 2)), r"sequence 3×1\), got m \(sequence 3×2\)"),
            (["a", "b"], np.ones((2, 1)), r"trained on m \(text\), got m \(vector 1\)"),
            ([[1], [1, 2]], ["a", "b"], r"tokens 2\), got m \(text\)"),
        ],
    )
    def test_another_shape_than_in_training(self, trained, given, message):
        preparation, _ = fit(trained)
        other = Samples.of({"m": given})
        with pytest.raises(InputError, match=message):
            preparation.check(other)
        with pytest.raises(InputError, match=message):
            preparation.batch(other)

    @pytest.mark.parametrize("steps", [1, 6])
    def test_another_number_of_time_steps_is_fine(self, steps):
        preparation, _ = fit(np.random.default_rng(0).normal(size=(3, 4, 2)))
        assert preparation.batch(Samples.of({"m": np.ones((2, steps, 2))}))["m"].shape == (2, steps, 2)

    def test_an_unseen_class(self):
        preparation, _ = fit(np.eye(3))
        with pytest.raises(InputError, match=r"label 'c' \(row 1\) does not occur"):
            preparation.batch(Samples.of({"m": np.eye(2, 3)}, y=["a", "c"]))

    def test_regression_targets_are_standardised(self):
        y = np.array([1.0, 2.0, 6.0])
        preparation, samples = fit(np.eye(3), Task.of_numbers(y), y=y)
        assert preparation.batch(samples).y.numpy() == pytest.approx(StandardScaler().fit_transform(y[:, None]))


class TestSaving:
    def through_files(self, preparation: Preparation) -> Preparation:
        tensors, described = preparation.state()
        return Preparation.from_state(read_tensors(write_tensors(tensors)), json.loads(json.dumps(described)))

    @pytest.mark.parametrize("task", [CLASSES, Task.of_labels(np.array(["b", "a", "c"], dtype=object))])
    def test_the_same_batches_come_out(self, task):
        samples = of_kinds()
        preparation = Preparation.fit(samples, task)
        again = self.through_files(preparation)
        assert again.modalities == preparation.modalities
        assert again.raw == preparation.raw
        assert again.task == task
        for data in (samples, of_kinds(seed=7).only(["temp.1", "image", "keys", "text"]), samples[3:5]):
            assert_same_batch(again.batch(data), preparation.batch(data))
        assert [type(one) for one in again.transforms.values()] == [
            Standardise,
            Standardise,
            Standardise,
            Tokens,
            Words,
        ]

    def test_all_digits_of_a_large_mean_are_kept(self):
        preparation, samples = fit(1e12 + np.array([[-1.0], [1.0]]))
        assert self.through_files(preparation).batch(samples)["m"].tolist() == [[-1], [1]]

    def test_an_unknown_transform_names_the_modality(self):
        tensors, described = fit(np.eye(3))[0].state()
        described["modalities"][0]["transform"] = "eval"
        with pytest.raises(SavedModelError, match="modality 'm' was saved with an unknown transform 'eval'"):
            Preparation.from_state(tensors, described)

    def test_what_was_cut_off_is_named(self):
        tensors, described = fit(np.eye(3))[0].state()
        with pytest.raises(SavedModelError, match="cannot be read: KeyError: 'mean'"):
            Preparation.from_state({}, described)
        with pytest.raises(SavedModelError, match="cannot be read: KeyError: 'task'"):
            Preparation.from_state(tensors, {"modalities": described["modalities"]})
        entry = {key: value for key, value in described["modalities"][0].items() if key != "output"}
        with pytest.raises(SavedModelError, match="cannot be read: KeyError: 'output'"):
            Preparation.from_state(tensors, described | {"modalities": [entry]})

    def test_moments_of_another_shape_would_broadcast_in_silence(self):
        tensors, described = fit(np.eye(3))[0].state()
        with pytest.raises(SavedModelError, match=r"mean of modality m \(vector 3\) has shape \[1\], not \[3\]"):
            Preparation.from_state(tensors | {"0.mean": torch.zeros(1)}, described)
