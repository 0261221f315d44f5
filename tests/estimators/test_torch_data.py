"""Datasets and DataLoaders of torch: the same models and predictions as from arrays, a few samples at a time."""

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from consilience import Monitor, Samples
from consilience.core.errors import InputError
from consilience.estimators import torch_data
from consilience.estimators.torch_data import read_torch_data, torch_batches


class Items(Dataset):
    """Pairs of (mapping, y) by position; `gaps`: rows without audio."""

    def __init__(self, X, y=None, gaps=()):
        self.X, self.y, self.gaps, self.asked = X, y, set(gaps), []

    def __len__(self):
        return len(self.X["image"])

    def __getitem__(self, row):
        self.asked.append(row)
        item = {name: torch.as_tensor(values[row]) for name, values in self.X.items()}
        if row in self.gaps:
            item["audio"] = None
        return item if self.y is None else (item, self.y[row])


class Stream(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return (self.items[row] for row in range(len(self.items)))


def loaders(X, y):
    items = Items(X, y)
    return {"dataset": items, "stream": Stream(items), "loader": DataLoader(items, batch_size=7)}


@pytest.mark.parametrize("form", ["dataset", "stream", "loader"])
def test_the_same_model_as_from_arrays(toy, classifier, form):
    expected = classifier(epochs=2).fit(toy.X, toy.y)
    given = loaders(toy.X, toy.y)[form]
    model = classifier(epochs=2).fit(given)
    assert np.array_equal(model.predict_proba(toy.X), expected.predict_proba(toy.X))
    np.testing.assert_allclose(model.predict_proba(given), expected.predict_proba(toy.X), atol=1e-6)
    assert np.array_equal(model.predict(given), expected.predict(toy.X))
    assert model.score(given) == expected.score(toy.X, toy.y)


def test_predictions_hold_a_batch_at_a_time(toy, classifier, monkeypatch):
    model = classifier(epochs=1).fit(toy.X, toy.y)
    monkeypatch.setattr(torch_data, "_AT_ONCE", 32)
    items, seen = Items(toy.X), []
    whole = model._decoded

    def watched(X, present):
        seen.append(len(items.asked))
        return whole(X, present)

    monkeypatch.setattr(model, "_decoded", watched)
    model.predict(items)
    assert seen == [32, 64, 80]  # the next batch is read after the one before it is predicted


def test_missing_modalities_and_targets(toy, classifier):
    items = Items(toy.X, toy.y, gaps=[1, 5])
    samples = read_torch_data(items)
    assert np.flatnonzero(~samples.present_in("audio")).tolist() == [1, 5]
    assert np.array_equal(samples.y, toy.y)
    np.testing.assert_array_equal(samples.read("image"), toy.X["image"])
    present = np.ones((80, 2), dtype=bool)
    present[[1, 5], 1] = False
    model = classifier(epochs=1).fit(items)
    np.testing.assert_allclose(model.predict_proba(items), model.predict_proba(toy.X, present), atol=1e-6)
    held = classifier(epochs=1, validation=Items(toy.X, toy.y)).fit(items)
    assert np.isfinite(held.predict_proba(toy.X)).all()


def test_text_and_sequences_of_different_lengths():
    class Talks(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, row):
            return {"note": f"talk {row}", "sound": np.full((row + 2, 2), row, dtype=np.float32)}, "ab"[row % 2]

    samples = read_torch_data(Talks())
    assert samples.lengths["sound"].tolist() == [2, 3, 4]
    assert list(samples["note"]) == ["talk 0", "talk 1", "talk 2"]
    assert samples.y.tolist() == ["a", "b", "a"]


def test_what_cannot_be_read(toy, classifier, monkeypatch):
    tensors = TensorDataset(torch.zeros(4, 3), torch.zeros(4))
    with pytest.raises(
        InputError, match=r"an item of the Dataset must be a mapping .* pair \(mapping, y\), got a tuple of 2"
    ):
        classifier().fit(tensors)
    with pytest.raises(InputError, match="y is given beside a Items"):
        classifier().fit(Items(toy.X, toy.y), toy.y)
    with pytest.raises(InputError, match="requires y"):
        classifier().fit(Items(toy.X))
    with pytest.raises(InputError, match="Stream is empty"):
        read_torch_data(Stream([]))
    with pytest.raises(InputError, match=r"more than .* GiB.*load_data"):
        read_torch_data(Items(toy.X, toy.y), most=100)

    class Endless(IterableDataset):
        def __iter__(self):
            while True:
                yield {"image": np.zeros(100_000)}

    monkeypatch.setattr(torch_data, "_AT_ONCE", 8)
    with pytest.raises(InputError, match="Endless: its samples take more than"):
        read_torch_data(Endless(), most=2**24)
    padded = [({"sound": torch.zeros(2, length, 1)}, torch.zeros(2)) for length in (3, 4)]

    class Padded(IterableDataset):
        def __iter__(self):
            return iter(padded)

    with pytest.raises(InputError, match=r"'sound'.*padded batch by batch.*loader\.dataset"):
        read_torch_data(DataLoader(Padded(), batch_size=None))


def test_a_loader_gives_its_batches_as_they_are(toy):
    sizes = [len(batch["image"]) for batch, _ in torch_batches(DataLoader(Items(toy.X, toy.y), batch_size=30))]
    assert sizes == [30, 30, 20]
    assert isinstance(read_torch_data(DataLoader(Items(toy.X, toy.y), batch_size=30)), Samples)


def batches_of(*batches):
    class Batches(IterableDataset):
        def __iter__(self):
            return iter(batches)

    return DataLoader(Batches(), batch_size=None)


def test_a_whole_batch_may_lack_a_modality(toy, classifier):
    """As None, or not in the mapping: the same as a mask of what is present."""
    halves = [{name: values[rows] for name, values in toy.X.items()} for rows in (slice(0, 40), slice(40, 80))]
    present = np.ones((80, 2), dtype=bool)
    present[40:, 1] = False
    expected = classifier(epochs=1).fit(toy.X, toy.y, present=present)
    for lacking in ({"image": halves[1]["image"], "audio": None}, {"image": halves[1]["image"]}):
        loader = batches_of((halves[0], toy.y[:40]), (lacking, toy.y[40:]))
        model = classifier(epochs=1).fit(loader)
        np.testing.assert_allclose(model.predict_proba(loader), expected.predict_proba(toy.X, present), atol=1e-6)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (({"image": 5, "audio": 4}, 5), "batch 1 of the DataLoader must have .* it has 5 of image, 4 of audio, 5 of y"),
        (({"image": 5, "audio": 5}, 4), "it has 5 of image, 5 of audio, 4 of y"),
        (({"image": 5, "audio": 5}, None), "batch 1 of the DataLoader has no target, and others have one"),
        (({}, 5), "batch 1 of the DataLoader has no modality that is not None"),
    ],
)
def test_a_batch_that_does_not_fit_is_named(toy, classifier, second, said):
    sizes, targets = second
    wrong = ({name: toy.X[name][:size] for name, size in sizes.items()}, None if targets is None else toy.y[:targets])
    with pytest.raises(InputError, match=said):
        classifier(epochs=1).fit(batches_of((toy.X, toy.y), wrong))


def test_single_items_of_a_loader_are_refused(toy, classifier):
    single = [({"image": torch.zeros(3), "audio": torch.zeros(3)}, torch.tensor(1.0))]
    with pytest.raises(
        InputError, match=r"batch 0 of the DataLoader holds a single value of y, .* give it a batch_size"
    ):
        classifier(epochs=1).fit(batches_of(*single))


def test_predictions_refuse_a_loader_whose_answers_belong_to_unknown_rows(toy, classifier):
    items = Items(toy.X, toy.y)
    model = classifier(epochs=1).fit(toy.X, toy.y)
    own = BatchSampler(RandomSampler(items), 10, drop_last=False)
    weighted = WeightedRandomSampler(np.ones(80), 80)
    refused = [
        (DataLoader(items, batch_size=30, shuffle=True), "random order: .* shuffle=False"),
        (DataLoader(items, batch_sampler=own), "random order"),
        (DataLoader(items, sampler=weighted), "random order"),
        (DataLoader(items, batch_size=30, drop_last=True), "leaves out the rows of its last batch: .*drop_last=False"),
        (DataLoader(Stream(items), batch_size=30, drop_last=True), "drop_last=False"),
        (DataLoader(Stream(items), batch_size=10, num_workers=2), "once for each worker, .* num_workers=0"),
    ]
    for loader, message in refused:
        for answer in (model.predict, model.predict_proba, model.full_prediction):
            with pytest.raises(InputError, match=message):
                answer(loader)
    assert len(model.predict(DataLoader(items, batch_size=20, drop_last=True))) == 80  # nothing is left out


def test_training_and_scores_take_a_loader_that_shuffles(toy, classifier):
    loader = DataLoader(Items(toy.X, toy.y), batch_size=30, shuffle=True, drop_last=True)
    model = classifier(epochs=1, calibration=None).fit(loader)
    assert 0 <= model.score(loader) <= 1
    Monitor(model, loader).update(loader)
