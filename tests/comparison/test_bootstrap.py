"""The paired bootstrap: against explicit resampling and Student's t, and its error rates in simulated comparisons."""

import time

import numpy as np
import pytest
from scipy import stats

from consilience.comparison.significance import (
    DISTINCT,
    Recomputed,
    _draw_counts,
    _draw_samples,
    _pool,
    compare_to_reference,
    paired_bootstrap,
    resample_metric,
    smallest_p,
)
from consilience.core.errors import InputError
from consilience.evaluation import METRICS, macro_f1

ALPHA = 0.05


def simulate(rng, *, seeds, n, test_sets, spread, effect=0.0):
    """Per-sample differences of two methods whose true mean difference is `effect`, and who the samples are.

    A sample's difficulty is common to all seeds, the rest is not; spread: of the seeds, in units of a seed's
    sampling error.
    """
    pool = {"own": n * seeds, "overlapping": 5 * n, "shared": n}[test_sets]
    difficulty = rng.normal(0, 0.7, pool)
    if test_sets == "overlapping":
        who = [rng.permutation(pool)[:n] for _ in range(seeds)]
    else:
        who = [(seed * n + np.arange(n)) % pool for seed in range(seeds)]
    shift = effect + rng.normal(0, spread / np.sqrt(n), seeds)
    return [difficulty[i] + rng.normal(0, 0.7, n) + move for i, move in zip(who, shift)], who


def explicit(differences, resamples, rng):
    """The nested bootstrap as it is told: draw seeds, in each drawn seed draw its samples, average."""
    seeds = len(differences)
    drawn = np.empty(resamples)
    for k in range(resamples):
        picked = [differences[seed] for seed in rng.integers(seeds, size=seeds)]
        drawn[k] = np.mean([rng.choice(sample, len(sample)).mean() for sample in picked])
    return drawn


@pytest.mark.parametrize("test_sets", ["own", "overlapping", "shared"])
@pytest.mark.parametrize("seeds", [6, 10])
@pytest.mark.parametrize("spread", [0, 1, 5])
def test_a_difference_is_found_where_there_is_none_no_more_often_than_alpha(test_sets, seeds, spread):
    rng = np.random.default_rng(seeds)
    trials = 300
    found = []
    for trial in range(trials):
        data = simulate(rng, seeds=seeds, n=80, test_sets=test_sets, spread=spread)
        found.append(paired_bootstrap(*data, resamples=999, random_state=trial))
    limit = stats.binom.ppf(0.999, trials, ALPHA)
    assert sum(result.p <= ALPHA for result in found) <= limit
    assert sum(not result.low <= 0 <= result.high for result in found) <= limit


def test_ten_seeds_on_one_test_set_are_not_ten_test_sets():
    rng = np.random.default_rng(0)
    wrong = {True: 0, False: 0}
    for _ in range(200):
        differences, who = simulate(rng, seeds=10, n=80, test_sets="shared", spread=0)
        for told in wrong:
            wrong[told] += paired_bootstrap(differences, who if told else None, resamples=499).p <= ALPHA
    assert wrong[True] <= stats.binom.ppf(0.999, 200, ALPHA)
    assert wrong[False] > 40  # what `samples` is there to prevent


def test_a_null_of_accuracies_is_kept():
    rng = np.random.default_rng(1)
    trials, seeds, n = 300, 8, 200
    rejected = 0
    for _ in range(trials):
        differences = [rng.choice([-1, 0, 1], n, p=[0.05, 0.9, 0.05]) for _ in range(seeds)]
        rejected += paired_bootstrap(differences, resamples=999).p <= ALPHA
    assert rejected <= stats.binom.ppf(0.999, trials, ALPHA)


@pytest.mark.parametrize("test_sets", ["own", "overlapping", "shared"])
def test_a_clear_effect_is_found_and_its_interval_holds_it(test_sets):
    rng = np.random.default_rng(2)
    # Ten seeds of 100 samples: the effect is some five standard errors even where all seeds share their samples.
    found = [
        paired_bootstrap(*simulate(rng, seeds=10, n=100, test_sets=test_sets, spread=0.5, effect=0.45), resamples=999)
        for _ in range(100)
    ]
    assert sum(result.p <= ALPHA for result in found) >= 98
    assert sum(result.low <= 0.45 <= result.high for result in found) >= 90
    assert np.mean([result.high - result.low for result in found]) < 0.45


@pytest.mark.parametrize("seeds", [3, 6, 10])
def test_where_only_seeds_vary_the_interval_is_students(seeds):
    rng = np.random.default_rng(3)
    ratio, covered, trials = [], 0, 300
    for _ in range(trials):
        values = rng.normal(0.3, 1, seeds)
        one = paired_bootstrap([np.array([value]) for value in values], resamples=2000)
        covered += one.low <= 0.3 <= one.high
        t = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        ratio.append((one.high - one.low) / (t.high - t.low))
    assert covered / trials == pytest.approx(0.95, abs=0.04)
    assert np.median(ratio) == pytest.approx(1, abs=0.1)


def test_few_distinct_values_are_drawn_as_explicit_resampling_draws_them():
    rng = np.random.default_rng(4)
    values = rng.choice([-1.0, 0.0, 1.0], 90, p=[0.1, 0.7, 0.2])
    drawn = values.mean() + _draw_samples(_pool([values], None)[0], 4000, rng)
    direct = rng.choice(values, (4000, 90)).mean(axis=1)
    # Both live on multiples of 1/90; rounding makes ties of what floating point made neighbours.
    assert stats.ks_2samp(np.round(drawn, 6), np.round(direct, 6)).pvalue > 0.01


@pytest.mark.parametrize("n", [DISTINCT, 400])
def test_many_distinct_values_are_drawn_as_explicit_resampling_draws_them(n):
    rng = np.random.default_rng(5)
    values = rng.normal(0.2, 1, n) ** 2 - rng.normal(0, 1, n) ** 2
    drawn = values.mean() + _draw_samples(_pool([values], None)[0], 4000, rng)
    direct = rng.choice(values, (4000, n)).mean(axis=1)
    assert stats.ks_2samp(drawn, direct).pvalue > 0.01


def test_the_normal_limit_is_near_already_where_it_begins():
    rng = np.random.default_rng(6)
    values = rng.exponential(1, DISTINCT + 1) - 0.5
    drawn = values.mean() + _draw_samples(_pool([values], None)[0], 20_000, rng)
    direct = rng.choice(values, (20_000, DISTINCT + 1)).mean(axis=1)
    ours, told = (np.quantile(values, [0.025, 0.975]) for values in (drawn, direct))
    assert ours == pytest.approx(told, abs=0.1 * (told[1] - told[0]))
    assert drawn.std() == pytest.approx(direct.std(), rel=0.03)


def test_both_paths_agree(monkeypatch):
    rng = np.random.default_rng(6)
    differences = [rng.choice([-1, 0, 1], 300, p=[0.05, 0.8, 0.15]) for _ in range(8)]
    counted = paired_bootstrap(differences)
    monkeypatch.setattr("consilience.comparison.significance.DISTINCT", 0)
    limit = paired_bootstrap(differences)
    assert limit.difference == counted.difference
    assert (limit.low, limit.high) == pytest.approx((counted.low, counted.high), abs=0.002)


def test_many_seeds_agree_with_the_nested_bootstrap_told_in_loops():
    # With many seeds the widening vanishes, and what is left must be the textbook's distribution.
    rng = np.random.default_rng(7)
    differences = [
        rng.choice([-1.0, 0.0, 1.0], 30 + seed, p=[0.2, 0.5, 0.3]) + rng.normal(0, 0.2) for seed in range(50)
    ]
    ours = paired_bootstrap(differences)
    told = explicit(differences, 1000, rng)
    assert ours.difference == pytest.approx(np.mean([seed.mean() for seed in differences]))
    assert (ours.low, ours.high) == pytest.approx(np.quantile(told, [0.025, 0.975]), abs=0.008)
    assert ours.high - ours.low == pytest.approx(np.subtract(*np.quantile(told, [0.975, 0.025])), rel=0.08)


def test_p_agrees_with_the_interval():
    rng = np.random.default_rng(8)
    for effect in np.linspace(0, 0.5, 30):
        one = paired_bootstrap(*simulate(rng, seeds=9, n=50, test_sets="own", spread=1, effect=effect), resamples=1999)
        if abs(one.p - ALPHA) > 0.002:
            assert (one.p < ALPHA) == (one.low > 0 or one.high < 0)


def test_the_order_of_seeds_and_samples_does_not_matter():
    rng = np.random.default_rng(9)
    for values in ([-1, 0, 1], np.linspace(-1, 1, 500)):
        differences, who = (
            [rng.choice(values, 40 + seed) for seed in range(7)],
            [rng.permutation(99)[: 40 + s] for s in range(7)],
        )
        one = paired_bootstrap(differences, who)
        mixed = [rng.permutation(len(d)) for d in differences]
        order = rng.permutation(7)
        other = paired_bootstrap([differences[s][mixed[s]] for s in order], [who[s][mixed[s]] for s in order])
        assert (other.difference, other.low, other.high, other.p) == pytest.approx(
            (one.difference, one.low, one.high, one.p), abs=2e-4
        )


def test_swapping_the_methods_turns_the_sign():
    rng = np.random.default_rng(10)
    differences = [rng.normal(0.1, 1, 300) for _ in range(8)]
    one, other = paired_bootstrap(differences), paired_bootstrap([-value for value in differences])
    assert other.difference == pytest.approx(-one.difference)
    assert (-other.high, -other.low) == pytest.approx((one.low, one.high), abs=0.01)
    assert other.p == pytest.approx(one.p, abs=0.03)


def test_one_seed_has_p_one_and_an_interval_from_its_samples():
    rng = np.random.default_rng(11)
    values = rng.normal(1, 1, 400)
    one = paired_bootstrap([values])
    assert one.p == 1
    half = 1.96 * values.std() / np.sqrt(400)
    assert (one.low, one.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.01)


def test_methods_that_never_differ_have_no_difference():
    one = paired_bootstrap([np.zeros(50)] * 10)
    assert (one.difference, one.low, one.high, one.p) == (0, 0, 0, 1)


def test_p_is_never_below_what_the_seeds_can_show():
    for seeds in (2, 5, 8):
        assert paired_bootstrap([np.ones(100)] * seeds).p == smallest_p(seeds) == 2 / 2**seeds
    assert paired_bootstrap([np.ones(100)] * 30, resamples=999).p == pytest.approx(2 / 1000)


def test_p_is_never_below_what_the_differing_samples_can_show():
    value = np.zeros(200)
    value[:4] = 1
    assert paired_bootstrap([value] * 10, [np.arange(200)] * 10).p == smallest_p(4)
    assert paired_bootstrap([value] * 10).p == smallest_p(10)


def test_the_same_random_state_gives_the_same_answer():
    differences = [np.random.default_rng(seed).normal(0.1, 1, 80) for seed in range(6)]
    assert paired_bootstrap(differences) == paired_bootstrap(differences)
    assert paired_bootstrap(differences) != paired_bootstrap(differences, random_state=1)


@pytest.mark.parametrize("kind", ["accuracies", "numbers"])
def test_a_million_samples_take_seconds(kind):
    rng = np.random.default_rng(12)
    draw = {"accuracies": lambda: rng.integers(-1, 2, 100_000), "numbers": lambda: rng.normal(size=100_000)}[kind]
    differences = [draw() for _ in range(10)]
    started = time.perf_counter()
    paired_bootstrap(differences, [np.arange(100_000)] * 10)
    assert time.perf_counter() - started < 5  # some 0.1 s; a loop over resamples would take minutes


@pytest.mark.parametrize(
    ("differences", "samples", "options", "message"),
    [
        ([], None, {}, "at least one seed"),
        ([np.ones(3), np.ones(0)], None, {}, r"seed 1 must be one number a test sample, got shape \[0\]"),
        ([np.ones((3, 2))], None, {}, r"shape \[3, 2\]"),
        ([np.array([1.0, np.nan])], None, {}, r"seed 0 must be finite \(row 1\)"),
        ([np.ones(3)], [np.arange(2)], {}, r"\[3\] of them, got \[2\]"),
        ([np.ones(3)] * 2, [np.arange(3)], {}, r"\[3, 3\] of them, got \[3\]"),
        ([np.ones(3)], None, {"confidence": 95}, "confidence between 0 and 1"),
        ([np.ones(3)], None, {"resamples": 0}, "resamples ≥ 1"),
    ],
)
def test_what_cannot_be_resampled_is_refused(differences, samples, options, message):
    with pytest.raises(InputError, match=message):
        paired_bootstrap(differences, samples, **options)


def test_there_is_no_p_of_no_seeds():
    with pytest.raises(InputError, match="at least one seed"):
        smallest_p(0)


def labelled(seeds, n, pool, rng):
    """Labels and the predictions of two methods for each seed, tested on samples out of one pool."""
    y = rng.integers(0, 3, pool)
    samples = {seed: rng.permutation(pool)[:n] for seed in range(seeds)}
    methods: dict = {"late": {}, "qmf": {}}
    for seed, who in samples.items():
        for method, skill in (("late", 0.5), ("qmf", 0.7)):
            methods[method][seed] = np.where(rng.random(n) < skill, y[who], rng.integers(0, 3, n))
    return y, samples, methods


def recomputed(metric, y, samples, methods):
    return {
        method: {seed: Recomputed(metric.resampler(y[samples[seed]], made), made) for seed, made in seeds.items()}
        for method, seeds in methods.items()
    }


@pytest.mark.parametrize("pool", [80, 200])
def test_a_metric_that_is_no_mean_is_recomputed_as_explicit_resampling_does(pool, monkeypatch):
    """The same draws of samples, repeated row by row and measured by the metric's own function."""
    y, samples, methods = labelled(4, 80, pool, np.random.default_rng(13))
    everyone = np.unique(np.concatenate([*samples.values()]))
    monkeypatch.setattr("consilience.comparison.significance._ENTRIES_AT_ONCE", 7 * len(everyone))  # several batches
    moved = resample_metric(recomputed(METRICS["macro_f1"], y, samples, methods), samples, resamples=30)
    counts = np.concatenate([batch for _, batch in _draw_counts(len(everyone), 30, 0)])
    assert (counts.sum(axis=1) == len(everyone)).all()
    for draw, row in enumerate(counts.astype(int)):
        times = dict(zip(everyone, row))
        for seed, who in samples.items():
            rows = np.repeat(np.arange(80), [times[sample] for sample in who])
            for method in methods:
                made = methods[method][seed]
                shift = macro_f1(y[who[rows]], made[rows]) - macro_f1(y[who], made)
                assert moved[method][seed][draw] == pytest.approx(shift, abs=1e-12)


def test_samples_are_drawn_with_replacement():
    counts = np.concatenate([batch for _, batch in _draw_counts(50, 4000, 1)])
    assert counts.mean(axis=0) == pytest.approx(np.ones(50), abs=0.1)
    assert counts.var() == pytest.approx(1 - 1 / 50, abs=0.02)


def test_a_mean_gives_the_same_answer_when_it_is_recomputed():
    y, samples, methods = labelled(8, 100, 300, np.random.default_rng(14))
    scores = {
        method: {seed: (made == y[samples[seed]]).astype(float) for seed, made in seeds.items()}
        for method, seeds in methods.items()
    }
    means = {method: {seed: np.array([row.mean()]) for seed, row in seeds.items()} for method, seeds in scores.items()}
    again = recomputed(METRICS["accuracy"], y, samples, methods)
    [wanted] = compare_to_reference(scores, "late", samples=samples)
    [found] = compare_to_reference(means, "late", samples=samples, recompute=again)
    assert found["difference"] == pytest.approx(wanted["difference"])
    assert (found["low"], found["high"]) == pytest.approx((wanted["low"], wanted["high"]), abs=0.015)
    assert found["significant"] == wanted["significant"]


def test_few_test_samples_are_not_significant_however_many_seeds_there_are():
    """Ten seeds on the same twelve samples: macro F1 differs in each of them, and still on few samples only."""
    rng = np.random.default_rng(15)
    y = np.arange(12) % 3
    late, better = (y + 1) % 3, (y + 1) % 3
    late[3:], better[1:] = y[3:], y[1:]  # two samples more are right
    samples = {seed: np.arange(12) for seed in range(10)}
    methods = {"late": dict.fromkeys(samples, late), "qmf": dict.fromkeys(samples, better)}
    again = recomputed(METRICS["macro_f1"], y, samples, methods)
    noise = {seed: rng.normal(0, 1e-3) for seed in samples}
    scores = {
        method: {seed: np.array([macro_f1(y, made) + noise[seed] * (method == "qmf")]) for seed, made in seeds.items()}
        for method, seeds in methods.items()
    }
    [alone] = compare_to_reference(scores, "late")
    [counted] = compare_to_reference(scores, "late", samples=samples, recompute=again)
    assert alone["p"] == smallest_p(10)
    assert counted["p"] >= smallest_p(2)
    assert counted["low"] <= 0.02 < alone["low"]
