"""Shapley values and interactions, compared with brute force over orders of the modalities, and with their axioms."""

from itertools import combinations, permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consilience.core.errors import InputError
from consilience.evaluation.contributions import (
    all_masks,
    explain_values,
    mean_contributions,
    relate_pairs,
    shapley_interactions,
    shapley_values,
    values_of_masks,
)

NUMBERS = st.floats(-100, 100, allow_nan=False, width=32)


def games(players):
    return arrays(np.float64, 2**players, elements=NUMBERS)


def code_of(subset):
    return sum(1 << player for player in subset)


def by_orders(values, players):
    """The mean over all orders of what each player adds when it comes."""
    totals = np.zeros(players)
    for order in permutations(range(players)):
        for place, player in enumerate(order):
            before = code_of(order[:place])
            totals[player] += values[before | 1 << player] - values[before]
    return totals / factorial(players)


def pairs_by_definition(values, players):
    found = np.zeros((players, players))
    for i, j in combinations(range(players), 2):
        others = [player for player in range(players) if player not in (i, j)]
        for size in range(len(others) + 1):
            weight = factorial(size) * factorial(players - size - 2) / factorial(players - 1)
            for subset in combinations(others, size):
                s = code_of(subset)
                delta = values[s | 1 << i | 1 << j] - values[s | 1 << i] - values[s | 1 << j] + values[s]
                found[i, j] += weight * delta
        found[j, i] = found[i, j]
    return found


@pytest.mark.parametrize("players", [1, 2, 3, 5])
def test_values_are_those_of_brute_force_over_orders(players):
    values = np.random.default_rng(players).normal(size=2**players)
    np.testing.assert_allclose(shapley_values(values), by_orders(values, players), atol=1e-12)


@pytest.mark.parametrize("players", [2, 3, 5])
def test_interactions_are_those_of_the_definition(players):
    values = np.random.default_rng(players).normal(size=2**players)
    np.testing.assert_allclose(shapley_interactions(values), pairs_by_definition(values, players), atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6).flatmap(games))
def test_values_sum_to_what_they_explain(values):
    assert shapley_values(values).sum() == pytest.approx(values[-1] - values[0], abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(games(4), st.integers(0, 3))
def test_a_player_that_changes_nothing_gets_nothing_and_changes_no_other(values, dummy):
    codes = np.arange(16)
    values = values[codes & ~(1 << dummy)]
    found = shapley_values(values)
    assert found[dummy] == pytest.approx(0, abs=1e-9)
    kept = [player for player in range(4) if player != dummy]
    rest = values[[code_of(kept[bit] for bit in range(3) if code >> bit & 1) for code in range(8)]]
    np.testing.assert_allclose(found[kept], shapley_values(rest), atol=1e-9)
    np.testing.assert_allclose(shapley_interactions(values)[dummy], 0, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(games(4))
def test_players_that_are_alike_get_the_same(values):
    codes = np.arange(16)
    swapped = (codes & ~0b11) | (codes >> 1 & 1) | (codes << 1 & 0b10)
    values = values + values[swapped]
    found = shapley_values(values)
    assert found[0] == pytest.approx(found[1], abs=1e-9)


def test_interactions_of_known_games():
    both, either = np.array([0.0, 0, 0, 1]), np.array([0.0, 1, 1, 1])
    assert shapley_interactions(both)[0, 1] == 1
    assert shapley_interactions(either)[0, 1] == -1
    additive = all_masks(4) @ np.array([3.0, -1, 0.5, 2])
    np.testing.assert_allclose(shapley_interactions(additive), 0, atol=1e-12)


def random_game(n, modalities, seed=0):
    """A value that depends on the sample and on which modalities it has."""
    table = np.random.default_rng(seed).normal(size=(n, 2**modalities))
    return table, lambda rows, masks: table[rows, masks @ (1 << np.arange(modalities))]


def test_missing_modalities_are_no_players():
    table, evaluate = random_game(6, 4)
    present = np.random.default_rng(1).random((6, 4)) < 0.6
    present[0], present[1] = True, False
    found = explain_values(evaluate, present)
    assert (found.values[~present] == 0).all()
    assert (found.interactions[~present] == 0).all()
    for row, there in enumerate(present):
        players = np.flatnonzero(there)
        codes = [
            code_of(players[bit] for bit in range(len(players)) if code >> bit & 1) for code in range(2 ** len(players))
        ]
        np.testing.assert_allclose(found.values[row, players], by_orders(table[row, codes], len(players)), atol=1e-12)
    np.testing.assert_allclose(found.none, table[:, 0])
    np.testing.assert_allclose(found.values.sum(axis=1), found.all - found.none, atol=1e-12)


def test_no_mask_is_evaluated_twice_nor_with_what_is_missing():
    asked = []

    def evaluate(rows, masks):
        asked.extend((row, *mask) for row, mask in zip(rows.tolist(), masks.tolist()))
        return masks.sum(axis=1)

    present = np.array([[True, True, False], [True, True, True]])
    explain_values(evaluate, present, at_once=3)
    assert len(asked) == len(set(asked)) == 4 + 8
    assert not any(mask[2] for row, *mask in asked if row == 0)


@pytest.mark.parametrize("at_once", [1, 7, 8192])
def test_the_size_of_the_pieces_changes_nothing(at_once):
    _, evaluate = random_game(5, 3)
    present = np.random.default_rng(2).random((5, 3)) < 0.7
    masks = all_masks(3)
    expected = values_of_masks(evaluate, present, masks)
    np.testing.assert_array_equal(values_of_masks(evaluate, present, masks, at_once), expected)


def test_sampled_values_have_intervals_that_hold_the_exact_ones():
    _, evaluate = random_game(40, 6)
    present = np.random.default_rng(3).random((40, 6)) < 0.8
    present[0] = True
    exact = explain_values(evaluate, present)
    sampled = explain_values(evaluate, present, permutations=64, most_exact=0)
    assert not sampled.exact
    assert sampled.interactions is None
    np.testing.assert_allclose(sampled.values.sum(axis=1), sampled.all - sampled.none, atol=1e-9)
    assert (sampled.values[~present] == 0).all()
    covered = np.abs(sampled.values - exact.values) <= sampled.errors
    assert 0.9 < covered[present].mean() < 0.99


def test_reversed_orders_are_exact_where_pairs_alone_interact():
    pairs = np.triu(np.random.default_rng(4).normal(size=(12, 12)), 1)
    evaluate = lambda rows, masks: np.einsum("ki,ij,kj->k", masks, pairs, masks)  # noqa: E731
    found = explain_values(evaluate, np.ones((2, 12), dtype=bool), permutations=4)
    np.testing.assert_allclose(found.values[0], (pairs + pairs.T).sum(axis=0) / 2, atol=1e-9)
    assert found.errors.max() < 1e-9


def test_the_mean_is_the_game_of_the_mean():
    table, evaluate = random_game(30, 3)
    found = mean_contributions(explain_values(evaluate, np.ones((30, 3), dtype=bool)), ("a", "b", "c"))
    np.testing.assert_allclose(found.values, shapley_values(table.mean(axis=0)), atol=1e-12)
    np.testing.assert_allclose(found.interactions, shapley_interactions(table.mean(axis=0)), atol=1e-12)
    each = shapley_values(table.T)
    np.testing.assert_allclose(found.errors, 1.96 * each.std(axis=1, ddof=1) / np.sqrt(30))
    assert found.values.sum() == pytest.approx(found.all - found.none)


def test_relations_follow_the_stated_rule():
    values = np.array([0.5, 0.4, -0.2, 0.001])
    interactions = np.zeros((4, 4))
    interactions[0, 1] = interactions[1, 0] = -0.3
    interactions[1, 3] = interactions[3, 1] = 0.1
    interactions[0, 2] = interactions[2, 0] = 0.4
    relations = relate_pairs(values, interactions)
    assert relations[0].tolist() == ["", "redundant", "conflicting", "independent"]
    assert relations[1, 3] == "complementary"
    assert (relations == relations.T).all()
    # What both of them lower is seen from below.
    assert relate_pairs(-values, -interactions)[0].tolist() == relations[0].tolist()
    # An effect within its interval does not count.
    assert relate_pairs(values, interactions, interaction_errors=0.35)[0, 1] == "independent"
    assert relate_pairs(values, interactions, errors=0.3)[0, 2] == "complementary"


def test_bad_input_is_named():
    with pytest.raises(InputError, match="2\\^modalities"):
        shapley_values(np.zeros(6))
    with pytest.raises(InputError, match="permutations must be at least 4, got 2"):
        explain_values(lambda rows, masks: masks.sum(axis=1), np.ones((1, 11), dtype=bool), permutations=2)
    with pytest.raises(InputError, match="not finite"):
        explain_values(lambda rows, masks: np.full(len(rows), np.nan), np.ones((1, 2), dtype=bool))
