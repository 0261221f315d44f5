"""Summaries, Holm's correction, how many seeds are needed, and methods against a reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.comparison.significance import (
    compare_to_reference,
    holm,
    mark_best,
    paired_bootstrap,
    reachable,
    smallest_p,
    too_few_seeds,
)
from consilience.core.errors import InputError

chances = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def right(seeds, accuracy, n=400, start=0):
    """Which test samples a method of this accuracy classifies correctly, with each seed."""
    return {seed: np.random.default_rng([start, seed]).random(n) < accuracy for seed in seeds}


def mended(scores, share, start=100):
    """The same method with a share of its mistakes put right."""
    return {
        seed: right | (np.random.default_rng([start, seed]).random(len(right)) < share)
        for seed, right in scores.items()
    }


def holm_by_definition(p):
    """The adjusted p-value of H is the least level at which the step-down procedure rejects H."""

    def rejected(level):
        gone = set()
        for rank, which in enumerate(np.argsort(p, kind="stable")):
            # p (m − rank) ≤ level, as m − rank hypotheses are left
            if p[which] * (len(p) - rank) > level:
                break
            gone.add(int(which))
        return gone

    levels = sorted({value * times for value in p for times in range(1, len(p) + 1)} | {1.0})
    return [
        min([level for level in levels if level <= 1 and which in rejected(level)], default=1.0)
        for which in range(len(p))
    ]


@given(chances)
def test_holm_is_the_least_level_of_rejection(p):
    assert holm(np.array(p)) == pytest.approx(holm_by_definition(p))


@given(chances, st.randoms())
def test_holm_keeps_order_bounds_and_does_not_mind_it(p, random):
    adjusted = holm(np.array(p))
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-15).all()
    mixed = random.sample(range(len(p)), len(p))
    assert holm(np.array(p)[mixed]) == pytest.approx(adjusted[mixed])


@given(chances, st.integers(0, 12), st.integers(1, 3))
def test_comparisons_that_could_not_be_made_do_not_count(p, position, failures):
    position = min(position, len(p))
    with_failures = holm(np.insert(np.array(p), position, [np.nan] * failures))
    assert np.isnan(with_failures[position : position + failures]).all()
    assert with_failures[~np.isnan(with_failures)] == pytest.approx(holm(np.array(p)))


def test_holm_by_hand():
    # statsmodels.stats.multitest.multipletests(p, method="holm") documents the same arithmetic.
    p = np.array([0.01, 0.005, 0.03, 0.04])
    assert holm(p) == pytest.approx([0.03, 0.02, 0.06, 0.06])
    assert len(holm(np.array([]))) == 0
    assert np.isnan(holm(np.array([np.nan]))).all()


@pytest.mark.parametrize("p", [[1.5], [-0.1, 0.5], [[0.5]]])
def test_what_is_no_p_value_is_refused(p):
    with pytest.raises(InputError, match="between 0 and 1"):
        holm(np.array(p))


@given(st.integers(1, 30), st.integers(1, 40), st.floats(0.001, 0.5))
def test_what_is_reachable_is_what_holm_makes_of_the_smallest_p(seeds, comparisons, alpha):
    best_case = holm(np.full(comparisons, smallest_p(seeds))).min()
    assert reachable(seeds, comparisons, alpha) == (best_case <= alpha)
    sentence = too_few_seeds(seeds, comparisons, alpha)
    assert (sentence is None) == reachable(seeds, comparisons, alpha)
    if sentence is not None:
        enough = int(sentence.split(". ")[-1].split()[0])
        assert reachable(enough, comparisons, alpha)
        assert not reachable(enough - 1, comparisons, alpha)


def test_the_sentence_reads_well():
    assert too_few_seeds(1, 1) == (
        "1 seed cannot reach significance here: with 1 comparison the smallest possible p is 1, above 0.05. "
        "6 seeds would do."
    )
    assert too_few_seeds(10, 7) is None


@pytest.mark.parametrize(("comparisons", "alpha"), [(0, 0.05), (2, 5), (2, 0)])
def test_nothing_is_reachable_without_comparisons_or_alpha(comparisons, alpha):
    with pytest.raises(InputError, match="at least one comparison"):
        reachable(5, comparisons, alpha)


def test_every_method_against_the_reference():
    late = right(range(8), 0.7)
    scores = {"concat": mended(late, 0.3), "late": late, "early": right(range(8), 0.6, start=1), "copy": late}
    rows = {row["method"]: row for row in compare_to_reference(scores, "late")}
    assert list(rows) == ["concat", "early", "copy"]
    assert all(row["reference"] == "late" for row in rows.values())
    alone = paired_bootstrap([scores["concat"][seed].astype(float) - late[seed] for seed in range(8)])
    concat = rows["concat"]
    assert (concat["difference"], concat["low"], concat["high"], concat["p"]) == (
        alone.difference,
        alone.low,
        alone.high,
        alone.p,
    )
    assert concat["low"] > 0
    assert rows["early"]["high"] < 0
    assert concat["significant"]
    assert rows["early"]["significant"]
    assert (rows["copy"]["difference"], rows["copy"]["p_holm"], rows["copy"]["significant"]) == (0, 1, False)
    assert [row["p_holm"] for row in rows.values()] == holm(np.array([row["p"] for row in rows.values()])).tolist()


def test_methods_are_compared_on_the_seeds_they_share():
    late = right(range(8), 0.7)
    better = mended(late, 0.3)
    late_short, better_short = ({seed: scores[seed] for seed in (1, 2, 5, 6)} for scores in (late, better))
    [full] = compare_to_reference({"late": late_short, "concat": better_short}, "late")
    [partial] = compare_to_reference({"late": late, "concat": better_short}, "late")
    [other] = compare_to_reference({"late": late_short, "concat": better}, "late")
    assert full == partial == other
    assert full["p"] == smallest_p(4)


def test_a_method_without_common_seeds_is_nan_and_does_not_count():
    late = right(range(8), 0.7)
    better = mended(late, 0.3)
    rows = compare_to_reference({"late": late, "concat": better, "failed": {}, "strange": right([99], 0.9)}, "late")
    assert [row["method"] for row in rows] == ["concat", "failed", "strange"]
    assert rows[0]["p_holm"] == rows[0]["p"]
    for row in rows[1:]:
        assert np.isnan([row[name] for name in ("difference", "low", "high", "p", "p_holm")]).all()
        assert row["significant"] is False


@pytest.mark.parametrize("scores", [{"a": {0: np.ones(3)}, "b": {0: np.ones(3)}}, {"a": {0: np.ones(3)}, "late": {}}])
def test_a_reference_that_failed_throughout_leaves_nothing_to_compare(scores):
    rows = compare_to_reference(scores, "late")
    assert np.isnan([row["p"] for row in rows]).all()
    assert mark_best(scores, "late", rows) is None


def test_scores_on_other_samples_are_refused():
    with pytest.raises(InputError, match=r"with seed 3 their scores have shapes \[5\] and \[4\]"):
        compare_to_reference({"late": {3: np.ones(4)}, "concat": {3: np.ones(5)}}, "late")


def test_seeds_that_share_their_test_samples_say_less():
    late = right([0], 0.7, n=60)
    better = mended(late, 0.2)
    scores = {"late": dict.fromkeys(range(8), late[0]), "concat": dict.fromkeys(range(8), better[0])}
    [own] = compare_to_reference(scores, "late")
    [shared] = compare_to_reference(scores, "late", samples=dict.fromkeys(range(8), np.arange(60)))
    assert shared["difference"] == own["difference"]
    assert shared["high"] - shared["low"] == pytest.approx(np.sqrt(8) * (own["high"] - own["low"]), rel=0.1)


def best_of(scores, **options):
    return mark_best(scores, "late", compare_to_reference(scores, "late", **options), **options)


def test_the_best_is_marked_where_it_is_significant():
    late = right(range(8), 0.7)
    assert best_of({"late": late, "concat": mended(late, 0.1), "early": mended(late, 0.3)}) == "early"


def test_the_best_is_not_marked_where_it_is_not():
    late = right(range(8), 0.7)
    slightly = {seed: right | (np.arange(len(right)) < 10 * (seed < 2)) for seed, right in late.items()}
    assert any((slightly[seed] != late[seed]).any() for seed in late)
    assert best_of({"late": late, "concat": slightly}) is None
    clearly = mended(late, 0.3)
    assert best_of({"late": late, "concat": clearly}) == "concat"
    assert best_of({"late": late, "concat": clearly}, alpha=0.001) is None
    few = {name: {seed: scores[seed] for seed in range(5)} for name, scores in (("late", late), ("concat", clearly))}
    assert best_of(few) is None


def test_the_reference_is_marked_where_it_beats_the_runner_up():
    late = right(range(8), 0.9)
    bad, worse = right(range(8), 0.7, start=1), right(range(8), 0.5, start=2)
    assert best_of({"bad": bad, "late": late, "worse": worse}) == "late"
    nearly = {seed: right & (np.arange(len(right)) >= 10 * (seed < 2)) for seed, right in late.items()}
    assert best_of({"bad": bad, "late": late, "nearly": nearly}) is None


def test_a_lucky_single_seed_is_not_marked():
    late = right(range(8), 0.7)
    assert best_of({"late": late, "concat": mended(late, 0.3), "lucky": {0: np.ones(400)}}) is None


def test_nothing_is_best_alone():
    assert best_of({"late": right(range(8), 0.7)}) is None
