"""Samples that were learned from are recognised, and no others."""

import numpy as np
import pytest
import torch

import consilience as cs
from consilience.bayes.learned_rows import LearnedRows
from consilience.bayes.reliability import Reliability

FOLDS = np.arange(60) % 3


def by_hand(marks, known, seen, present):
    """The first sample learned from that has two modalities of the sample seen, or all that it has; else −1."""
    found = np.full(present.shape, -1)
    for row in range(len(seen)):
        same = (np.abs(marks - seen[row]) < 1e-5).all(axis=2) & known & present[row]
        best = same.sum(axis=1).argmax()
        if same[best].sum() >= max(1, min(2, present[row].sum())):
            found[row, same[best]] = best
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recognised_as_by_comparing_all(dtype):
    random = np.random.default_rng(0)
    marks, known = random.normal(size=(50, 3, 4)), random.random((50, 3)) < 0.8
    donors = np.where(random.random((300, 3)) < 0.8, np.repeat(np.arange(300) % 50, 3).reshape(300, 3), 7)
    seen, present = marks[donors, np.arange(3)], random.random((300, 3)) < 0.8
    seen[random.random((300, 3)) < 0.2] += 1e-3
    rows = LearnedRows([4] * 3, []).to(dtype)
    rows.fit(split(marks), torch.from_numpy(known), split(marks), None)
    found = rows.find(split(seen), torch.from_numpy(present)).numpy()
    expected = by_hand(marks, known, seen, present)
    np.testing.assert_array_equal(found, expected)
    assert 100 < (expected >= 0).any(axis=1).sum() < 250


def split(marks):
    return list(torch.from_numpy(marks).unbind(dim=1))


def wide(n, seed):
    """Three modalities with more features than samples, of which one determines the class."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, size=n)
    shared = np.eye(3)[y] + 0.5 * random.normal(size=(n, 3))
    maps = np.random.default_rng(99).normal(size=(3, 3, 300))
    return [torch.from_numpy(shared @ each + random.normal(size=(n, 300))) for each in maps], y


@pytest.fixture(scope="module")
def fitted():
    views, y = wide(60, seed=0)
    present = np.random.default_rng(1).random((60, 3)) < 0.9
    reliability = Reliability([300] * 3, 3)
    own = reliability.fit(lambda fold: [view.numpy() for view in views], y, present, FOLDS)
    return reliability, own, views, torch.from_numpy(present)


def forgetful(reliability):
    """The same without what it knows of the samples learned from."""
    other = Reliability([300] * 3, 3)
    state = {name: value for name, value in reliability.state_dict().items() if not name.startswith("learned")}
    other.load_state_dict(state)
    return other


def test_samples_learned_from_look_as_they_did_out_of_fold(fitted):
    reliability, own, views, present = fitted
    for found, expected in zip(reliability.signals(views, present), own):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert own.sound[present].mean() > 0.7
    assert forgetful(reliability).signals(views, present).sound[present].mean() < 0.1  # what it is for


def test_some_modalities_of_a_sample_learned_from(fitted):
    reliability, own, views, present = fitted
    for m in range(3):
        only = present & (torch.arange(3) == m)
        found = reliability.signals(views, only)
        torch.testing.assert_close(found.excess[only], own.excess[only], atol=1e-4, rtol=1e-4)


def test_new_samples_are_judged_as_before(fitted):
    reliability, _, views, _ = fitted
    new, _ = wide(80, seed=3)
    there = torch.from_numpy(np.random.default_rng(2).random((80, 3)) < 0.8)
    # One modality of each may be that of a sample learned from: swapped in.
    swapped = [new[0], views[1].repeat(2, 1)[:80], new[2]]
    for shown, mask in ((new, there), (swapped, torch.ones(80, 3, dtype=torch.bool))):
        for found, expected in zip(reliability.signals(shown, mask), forgetful(reliability).signals(shown, mask)):
            torch.testing.assert_close(found, expected, atol=0, rtol=0)


def test_what_is_spoilt_in_a_sample_learned_from_is_found(fitted):
    reliability, _, views, _ = fitted
    there = torch.ones(60, 3, dtype=torch.bool)
    found = reliability.signals([20 * views[0], *views[1:]], there).sound
    assert found[:, 0].max() < 0.1
    assert found[:, 1:].mean() > 0.7


def test_predictions_and_explanations_of_training_samples(tmp_path):
    views, y = wide(150, seed=4)
    X = {name: view.float().numpy() for name, view in zip("abc", views)}
    train, new = ({name: values[rows] for name, values in X.items()} for rows in (slice(0, 90), slice(90, 150)))
    model = cs.FusionClassifier("bayes-robust", settings={"folds": 2}, epochs=2, device="cpu").fit(train, y[:90])
    again = cs.load(model.save(tmp_path / "model"))
    for rows in (train, new):
        rho, loaded = (each.full_prediction(rows).extra["reliability"] for each in (model, again))
        torch.testing.assert_close(loaded, rho, atol=1e-5, rtol=1e-5)
    assert (model.full_prediction(train).extra["reliability"] < 0.5).float().mean() < 0.05
    first = {name: values[:5] for name, values in train.items()}
    why = model.explain(first)
    np.testing.assert_allclose(why.reliability, model.full_prediction(first).extra["reliability"], atol=1e-6)
    assert why.reliability.min() > 0.5
