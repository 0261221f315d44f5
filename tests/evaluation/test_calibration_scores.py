"""Thresholds by pattern: exact for samples whose modalities are missing at random, and for every pattern by itself."""

import numpy as np
import pytest
from scipy.stats import binom

from consilience.core.errors import InputError
from consilience.evaluation.calibration_scores import CalibrationScores

PATTERNS = np.array([[True, False], [False, True], [True, True]])


def collect(noise, present):
    """Scores |mean noise of the present modalities|, which are larger where fewer are present."""

    def evaluate(rows, mask):
        mean = (noise[rows] * mask).sum(1) / mask.sum(1)
        return {"lac": np.abs(mean), "reliability": mask.mean(1), "absolute": np.stack([mean, -mean], axis=1)}

    return CalibrationScores.collect(present, evaluate, "given")


def score(noise, present):
    return np.abs((noise * present).sum(1) / present.sum(1))


@pytest.mark.parametrize("complete", [True, False])
def test_coverage_of_every_pattern_over_many_draws(complete):
    rng = np.random.default_rng(0)
    scale, n, repeats = np.array([1.0, 3.0]), 120, 800
    covered = np.zeros(3)
    for _ in range(repeats):
        noise, new = rng.normal(size=(n, 2)) * scale, rng.normal(size=(3, 2)) * scale
        present = np.ones((n, 2), dtype=bool) if complete else PATTERNS[rng.integers(0, 3, n)]
        most = collect(noise, present).quantiles("lac", PATTERNS, 0.9)
        covered += score(new, PATTERNS) <= most
    low, high = binom.interval(0.9999, repeats, 0.9)
    assert (covered >= low).all()
    assert (covered <= high + repeats / 80).all()  # the (n + 1) rule adds at most 1/(n + 1)


def test_missingness_that_depends_on_the_target_is_covered_by_samples_of_the_same_pattern():
    """Hidden modalities simulate missingness at random; with 100 samples of its own, a pattern needs no such thing."""
    rng = np.random.default_rng(0)
    noise = np.concatenate([rng.normal(size=(500, 2)), 10 * rng.normal(size=(100, 2))])
    present = np.ones((600, 2), dtype=bool)
    present[500:, 1] = False  # missing where the noise is large
    known = collect(noise, present)
    assert known.groups(PATTERNS[:1], 0.9)[0].rule == "own"
    assert known.quantiles("lac", PATTERNS[:1], 0.9)[0] == np.sort(np.abs(noise[500:, 0]))[90]


def test_a_sample_without_modalities_has_no_finite_threshold():
    known = collect(np.random.default_rng(0).normal(size=(50, 2)), np.ones((50, 2), dtype=bool))
    most = known.quantiles("lac", np.array([[False, False], [True, True]]), 0.9)
    assert np.isinf(most[0])
    assert np.isfinite(most[1])
    assert known.quantiles("absolute", np.zeros((1, 2), dtype=bool), 0.9).tolist() == [[np.inf, np.inf]]


def test_rows_and_batches_do_not_matter():
    rng = np.random.default_rng(0)
    known = collect(rng.normal(size=(300, 2)), PATTERNS[rng.integers(0, 3, 300)])
    present, rho = PATTERNS[rng.integers(0, 3, 40)], rng.random(40)
    for given in (None, rho):
        most = known.quantiles("lac", present, 0.8, given)
        order = rng.permutation(40)
        again = known.quantiles("lac", present[order], 0.8, None if given is None else given[order])
        np.testing.assert_array_equal(most[order], again)
        alone = [
            known.quantiles("lac", present[[row]], 0.8, None if given is None else given[[row]])[0] for row in range(40)
        ]
        np.testing.assert_array_equal(most, alone)


def test_too_few_samples_name_the_coverage():
    known = collect(np.random.default_rng(0).normal(size=(50, 2)), np.ones((50, 2), dtype=bool))
    with pytest.raises(InputError, match=r"coverage=0\.99: the calibration set has 50 .* at least 99 are needed"):
        known.quantiles("lac", PATTERNS, 0.99)


def test_state_and_back():
    rng = np.random.default_rng(0)
    known = collect(rng.normal(size=(60, 2)), PATTERNS[rng.integers(0, 3, 60)])
    again = CalibrationScores.from_state(*known.state())
    assert again.source == "given"
    assert len(again) == 60
    for name, table in known.values.items():
        np.testing.assert_array_equal(again.values[name], table)
    np.testing.assert_array_equal(again.quantiles("lac", PATTERNS, 0.9), known.quantiles("lac", PATTERNS, 0.9))
