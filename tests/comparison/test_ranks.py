"""Ranks against scipy and against the worked example of Demšar (2006)."""

import numpy as np
import pytest
from scipy.stats import chi2, rankdata

from consilience.comparison.ranks import critical_difference, friedman, mean_ranks
from consilience.core.errors import InputError

# Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, 2006, Table 6: AUC of C4.5, with its
# parameters m, cf, both tuned, on 14 sets. The last two methods' "voting" is printed as 0.975 but ranked 2 and 3.
AUC = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def test_mean_ranks_are_the_published_ones():
    assert mean_ranks(AUC) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    assert mean_ranks(1 - AUC, larger_is_better=False) == pytest.approx(mean_ranks(AUC))


def test_friedman_is_the_published_one_corrected_for_ties():
    sets, methods = AUC.shape
    squares = np.sum(mean_ranks(AUC) ** 2) - methods * (methods + 1) ** 2 / 4
    statistic = 12 * sets / (methods * (methods + 1)) * squares
    assert statistic == pytest.approx(9.28, abs=5e-3)
    tied = 3 * (2**3 - 2) + (4**3 - 4)  # iris, lung cancer, primary tumor; mushroom
    corrected = statistic / (1 - tied / (sets * methods * (methods**2 - 1)))
    assert friedman(AUC) == pytest.approx(chi2.sf(corrected, methods - 1))


def test_ranks_are_scipys():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (20, 7)).astype(float)
    assert mean_ranks(scores) == pytest.approx(rankdata(-scores, axis=1).mean(axis=0))
    assert mean_ranks(scores, False) == pytest.approx(rankdata(scores, axis=1).mean(axis=0))


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_methods_that_failed_share_the_worst_rank(larger_is_better):
    scores = np.array([[0.5, np.nan, 0.5, np.nan], [0.1, np.nan, 0.1, 0.1]])
    assert mean_ranks(scores[:1], larger_is_better).tolist() == [1.5, 3.5, 1.5, 3.5]
    assert mean_ranks(scores[1:], larger_is_better).tolist() == [2, 4, 2, 2]


@pytest.mark.parametrize(
    ("alpha", "published"),
    [
        (0.05, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]),
        (0.10, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]),
    ],
)
def test_critical_values_are_those_of_the_papers_table_5(alpha, published):
    q = [critical_difference(k, 1, alpha) / np.sqrt(k * (k + 1) / 6) for k in range(2, 11)]
    assert q == pytest.approx(published, abs=1.1e-3)


def test_the_critical_difference_is_the_published_one():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)
    assert critical_difference(4, 14, 0.10) == pytest.approx(1.12, abs=5e-3)


def test_friedman_of_nothing_but_ties_and_of_failures():
    assert friedman(np.ones((5, 3))) == 1
    assert friedman(np.array([[0.9, 0.8, np.nan]] * 12)) < 1e-4


@pytest.mark.parametrize("scores", [np.ones(3), np.ones((0, 3))])
def test_ranks_need_sets_and_methods(scores):
    with pytest.raises(InputError, match=r"\[set, method\]"):
        mean_ranks(scores)


def test_what_cannot_be_tested_is_refused():
    with pytest.raises(InputError, match="at least 2 sets and 3 methods, got 4 and 2"):
        friedman(np.ones((4, 2)))
    for wrong in ((1, 5, 0.05), (3, 0, 0.05), (3, 5, 5)):
        with pytest.raises(InputError, match="critical difference"):
            critical_difference(*wrong)
