"""What is watched in rows, against values counted and computed by hand."""

from collections import Counter

import numpy as np
import pytest
import torch

from consilience import BayesFusion
from consilience.estimators.monitored_values import Measured, Quantity, Repetitions, conflict_of, measure
from consilience.evaluation.change_detection import CELLS


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90)
    return BayesFusion().fit({name: np.eye(3)[y] + rng.normal(size=(90, 3)) for name in ("a", "b", "c")}, y)


def rows(count, seed=1):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(count, 3)) for name in ("a", "b", "c")}


def test_the_cell_of_each_row_follows_how_often_its_opinion_was_given():
    rng = np.random.default_rng(2)
    codes = np.concatenate([rng.integers(12, size=150), np.full(CELLS + 20, 99)])  # one of them more often than cells
    quantities, n = (Quantity("absence", "a"), Quantity("repetition", "a")), len(codes)
    measured = Measured(
        quantities,
        np.zeros((n, 2)),
        np.zeros((n, 2), dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.stack([np.zeros(n, dtype=np.int64), codes], axis=1),
        None,
    )
    repetitions, counts, own = Repetitions(quantities), np.zeros((2, CELLS), dtype=np.int64), np.arange(2)
    for row in range(n):
        repetitions.count(measured, row, np.ones(2, dtype=bool), own, counts)
        counts[1, measured.cells[row, 1]] += 1  # as the detector does
        if row % 20 and row != n - 1:
            continue
        sizes = Counter(codes[: row + 1].tolist())
        expected = np.bincount([min(size - 1, CELLS - 1) for size in sizes.values() for _ in range(size)])
        np.testing.assert_array_equal(counts[1, : len(expected)], expected)
        assert counts[1].sum() == row + 1
    repeated = [code in codes[:row] for row, code in enumerate(codes)]
    np.testing.assert_array_equal(measured.values[:, 1], repeated)
    assert not counts[0].any()


def test_conflict_is_the_squared_hellinger_distance_of_two():
    p, q, hidden = np.random.default_rng(8).dirichlet(np.ones(4), size=(3, 20))
    opinions = torch.tensor(np.log(np.stack([p, q, hidden], axis=1)))
    there = torch.tensor([[True, True, False]] * 20)
    distance = 0.5 * ((np.sqrt(p) - np.sqrt(q)) ** 2).sum(axis=1)
    np.testing.assert_allclose(conflict_of(opinions, there), distance, atol=1e-12)
    np.testing.assert_allclose(conflict_of(opinions, torch.zeros_like(there)), 0)


def test_conflict_is_one_between_certain_experts_and_zero_between_equal_ones():
    certain = torch.tensor([[[0.0, -2000.0], [-2000.0, 0.0]], [[3.0, 1.0], [13.0, 11.0]]])
    np.testing.assert_allclose(conflict_of(certain, torch.ones(2, 2, dtype=torch.bool)), [1, 0], atol=1e-9)


def test_what_an_absent_modality_has_not_is_unknown(model):
    there = np.array([[True, True, True], [True, True, False], [True, False, False], [False, False, False]])
    measured = measure(model, rows(4), there)
    known = {each.name: np.isfinite(column).tolist() for each, column in zip(measured.quantities, measured.values.T)}
    assert known["absence of c"] == [True] * 4
    assert known["trust of a"] == [True, True, False, False]  # alone, it is trusted whatever it says
    assert known["trust of c"] == [True, False, False, False]
    assert known["repetition of b"] == [True, True, False, False]
    assert known["conflict"] == [True, True, False, False]
    assert known["confidence"] == [True, True, True, False]
    assert measured.posterior is not None
    assert len(measured.posterior) == 3
    assert len(set(measured.patterns.tolist())) == 4


def test_values_are_those_of_the_model_and_rows_do_not_depend_on_each_other(model):
    X = rows(12)
    measured = measure(model, X)
    columns = {each.name: column for each, column in zip(measured.quantities, measured.values.T)}
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(columns["confidence"], probabilities.max(axis=1))
    np.testing.assert_allclose(columns["trust of b"], model.trust(X)[:, 1])
    np.testing.assert_array_equal(columns["class shares"], probabilities.argmax(axis=1))
    for row in range(12):
        alone = measure(model, {name: values[row : row + 1] for name, values in X.items()})
        np.testing.assert_allclose(alone.values[0], measured.values[row], atol=1e-9)
        np.testing.assert_array_equal(alone.codes[0], measured.codes[row])


def test_shares_that_a_model_estimates_from_all_rows_are_left_out(model):
    X = rows(12)
    plain = measure(model, X).values
    shifting = BayesFusion(target_prior="em")
    shifting.__dict__.update({**model.__dict__, "target_prior": "em"})
    assert not np.allclose(shifting.predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(measure(shifting, X).values, plain)
    assert shifting.target_prior == "em"


def test_only_the_same_opinion_has_the_same_code(model):
    X = rows(30)
    X["a"][10:20] = X["a"][0]
    X["a"][20] = X["a"][0] + [2e-6, 0, 0]  # differs by rounding only
    measured = measure(model, X)
    place = [each.name for each in measured.quantities].index("repetition of a")
    codes = measured.codes[:, place]
    assert (codes[[*range(10, 21)]] == codes[0]).all()
    assert len(set(codes.tolist())) == 30 - 11
