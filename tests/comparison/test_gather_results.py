"""From results to findings: what does not show in a comparison of one set."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import rankdata

from consilience.comparison.gather_results import _ranks, _validation_losses, misplaced_trust, stored_value
from consilience.comparison.plan import Job
from consilience.comparison.store import Result
from consilience.core.errors import InputError
from consilience.evaluation import Metric
from report.factory import make_findings

METHODS = ["late", "concat", "early"]


def of_two_sets(labels):
    """Findings of two sets, each with the corruptions it has met; clean stands under each of them."""
    findings = make_findings(METHODS, sets=("one", "two"), corruptions=("gaussian", "blank"), skipped=())
    rng = np.random.default_rng(0)
    clean = {(name, method): float(rng.random()) for name in labels for method in METHODS}
    rows = [
        {"set": name, "method": method, "seed": seed, "corruption": corruption, "level": level, "metric": "accuracy"}
        | {"value": clean[name, method] - 0.01 * level + (0.001 * seed if level else 0)}
        for name, corruptions in labels.items()
        for method in METHODS
        for seed in range(2)
        for corruption in corruptions
        for level in (0.0, 5.0)
    ]
    findings.values = pl.DataFrame(rows)
    table = np.array([[clean[name, method] for method in METHODS] for name in labels])
    return findings, dict(zip(METHODS, rankdata(-table, axis=1).mean(axis=0)))


@pytest.mark.parametrize(
    ("labels", "under"),
    [
        ({"one": ["gaussian"], "two": ["gaussian"]}, {"gaussian": {0.0, 5.0}}),
        ({"one": ["gaussian"], "two": ["blank"]}, {"gaussian": {0.0}}),
        ({"one": ["gaussian", "blank"], "two": ["blank"]}, {"blank": {0.0, 5.0}}),
    ],
    ids=["the same", "none shared", "one shared"],
)
def test_clean_ranks_do_not_depend_on_what_goes_wrong_afterwards(labels, under):
    findings, expected = of_two_sets(labels)
    ranks = pl.DataFrame(list(_ranks(findings)))
    clean = ranks.filter(pl.col("level") == 0)
    for corruption, levels in under.items():
        assert set(ranks.filter(pl.col("corruption") == corruption)["level"]) == levels
        found = clean.filter(pl.col("corruption") == corruption)
        assert dict(zip(found["method"], found["rank"])) == pytest.approx(expected)
        assert set(found["sets"]) == {2}
    assert set(ranks["corruption"]) == set(under)


def job_of(method, seed):
    return Job("handwritten", method, seed, data="", key=f"{method}-{seed}")


def test_misplaced_trust_is_told_once_where_half_of_the_seeds_have_it():
    found = [{"pix": 0.31, "fou": 0.2}, {}, {"pix": 0.42, "mor": 0.5}, {"fou": 0.1}]
    finished = [(job_of("qmf", seed), Result({"misplaced_trust": one})) for seed, one in enumerate(found)]
    once = [{}, {"pix": 0.3}, {}]
    finished += [(job_of("late", seed), Result({"misplaced_trust": one})) for seed, one in enumerate(once)]
    finished += [(job_of("concat", 0), Result({}))]  # measured before trust was looked at
    (note,) = misplaced_trust(finished)
    assert note.startswith("qmf on handwritten trusts pix, fou more when wrong")
    assert "r up to +0.42, in 3 of 4 seeds" in note
    assert note.endswith(".")


def test_a_metric_without_terms_is_recomputed_on_repeated_samples():
    metric = Metric("largest", "regression", lambda y, prediction, weight=None: float(np.abs(y - prediction).max()))
    y, prediction = np.arange(5.0), np.array([0.0, 1.5, 2.0, 3.0, 9.0])
    counts = np.array([[1, 1, 1, 1, 1], [2, 2, 1, 0, 0], [5, 0, 0, 0, 0]], dtype=float)
    assert metric.resampler(y, prediction)(counts).tolist() == [5.0, 0.5, 0.0]


def test_a_metric_that_the_jobs_did_not_compute_is_named():
    metric = Metric("unheard_of", "classification", lambda y, prediction, weight=None: 0.0)
    with pytest.raises(InputError, match=r"metric 'unheard_of' was not known to the process that ran these jobs"):
        stored_value(metric, {"metrics": {"accuracy": 0.5}})


def test_losses_of_a_log_are_told_apart_by_run():
    log = [{"phase": "fit", "epoch": epoch, "validation_loss": loss} for epoch, loss in ((0, 3.0), (1, 2.0), (0, 1.0))]
    assert _validation_losses([*log, {"phase": "head", "epoch": 1}]) == [[3.0, 2.0], [1.0], []]
