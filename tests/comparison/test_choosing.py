"""A method is chosen by a proper score over all seeds, and the comparison says how sure that is."""

import json

import numpy as np
import pytest
from scipy.stats import binom

from consilience.comparison.choosing import choose_methods, rank_candidates, shares_of_first
from consilience.comparison.plan import Job
from consilience.comparison.store import Result
from consilience.core.errors import UnknownNameError
from consilience.report.choice_words import say_certainty
from consilience.report.recommendation import recommend
from report.factory import make_findings

PLAN = {"sets": {"toy": {"task": "classification"}}, "asked": {}}


def job_of(method, seed, source="toy"):
    return Job(source, method, seed, data="", key=f"{method}-{seed}-{source}")


def result_of(values, source="toy", samples=None, index=None):
    """A result with the validation metrics of each condition, clean first, and the scores of samples where given."""
    conditions = [
        {"part": "validation", "level": float(place), "array": place, "metrics": metrics}
        for place, metrics in enumerate(values)
    ]
    conditions.append({"part": "test", "level": 0.0, "array": 9, "metrics": {"accuracy": 0.0, "nll": 99.0}})
    result = Result({"set": source, "conditions": conditions})
    if samples is not None:
        result.arrays["validation_index"] = np.arange(len(samples[0])) if index is None else index
        result.arrays |= {f"validation/{place}/nll": each.astype(np.float32) for place, each in enumerate(samples)}
    return result


def finished_with(table):
    """Method → seed → [(accuracy, nll) of each condition]."""
    return [
        (job_of(method, seed), result_of([{"accuracy": accuracy, "nll": nll} for accuracy, nll in conditions]))
        for method, seeds in table.items()
        for seed, conditions in enumerate(seeds)
    ]


# `bold` is right more often, clean and corrupted, and pays for its sure errors: 0.9 against 0.6 in log-loss.
BOLD_OR_CAREFUL = {
    "bold": [[(0.9, 0.5), (0.7, 1.5)], [(0.8, 0.6), (0.6, 1.0)]],
    "careful": [[(0.8, 0.5), (0.6, 0.7)], [(0.7, 0.6), (0.5, 0.6)]],
}


def test_the_log_loss_chooses_and_not_the_accuracy():
    finished = finished_with(BOLD_OR_CAREFUL)
    (choice,) = choose_methods(finished, PLAN).values()
    assert (choice.method, choice.metric) == ("careful", "nll")
    assert choice.scores == pytest.approx({"careful": 0.6, "bold": 0.9})
    assert choice.score == pytest.approx(0.6)
    (other,) = choose_methods(finished, {**PLAN, "asked": {"choose_by": "accuracy"}}).values()
    assert (other.method, other.metric) == ("bold", "accuracy")
    assert other.scores == pytest.approx({"bold": 0.75, "careful": 0.65})


def test_a_regression_is_chosen_by_its_squared_error():
    plan = {"sets": {"toy": {"task": "regression"}}, "asked": {"choose_by": None}}
    errors = {"late": [{"mse": 4.0, "mae": 1.0}], "concat": [{"mse": 3.0, "mae": 1.5}]}
    finished = [(job_of(method, 0), result_of(values)) for method, values in errors.items()]
    assert choose_methods(finished, plan)["toy"].method == "concat"
    by_mae = {**plan, "asked": {"choose_by": "mae"}}
    assert choose_methods(finished, by_mae)["toy"].method == "late"


@pytest.mark.parametrize(
    ("losses", "median"), [([0.5], 0), ([0.5, 0.3], 0), ([0.5, 0.3, 0.4], 2), ([0.1, 0.4, 0.2, 0.3], 3)]
)
def test_the_median_seed_is_neither_the_easiest_nor_the_hardest(losses, median):
    finished = finished_with({"late": [[(0.5, loss)] for loss in losses]})
    assert rank_candidates(finished, PLAN)["toy"][0].median.seed == median


def test_all_seeds_count_and_not_the_best_of_them():
    finished = finished_with({"lucky": [[(0.9, 0.1)], [(0.5, 1.9)]], "steady": [[(0.8, 0.5)], [(0.8, 0.5)]]})
    assert [each.method for each in rank_candidates(finished, PLAN)["toy"]] == ["steady", "lucky"]


def test_a_method_that_failed_or_is_not_finite_comes_last():
    table = {"late": [[(0.5, 0.5)], [(0.5, 0.5)]], "wild": [[(0.9, np.nan)], [(0.9, 0.1)]]}
    finished = [*finished_with({**table, "brittle": [[(0.9, 0.1)]]}), (job_of("brittle", 1), Result({"error": "no"}))]
    assert rank_candidates(finished, PLAN)["toy"][0].method == "late"
    choice = choose_methods(finished, PLAN)["toy"]
    assert (choice.method, choice.share, choice.rivals) == ("late", 1.0, ())


def test_methods_of_a_stopped_comparison_are_compared_on_the_seeds_they_share():
    finished = finished_with({"late": [[(0.5, 0.5)], [(0.5, 9.0)]], "concat": [[(0.5, 0.6)]]})
    assert choose_methods(finished, PLAN)["toy"].scores == pytest.approx({"late": 0.5, "concat": 0.6})


def random_scores(rng, methods=3, seeds=4, rows=12, shared=True):
    """Scores whose best method is not sure."""
    samples = {seed: np.arange(rows) if shared else rng.choice(2 * rows, rows, replace=False) for seed in range(seeds)}
    scores = {
        f"m{m}": {seed: rng.normal(0.12 * m + rng.normal(scale=0.2), 1, size=rows) for seed in samples}
        for m in range(methods)
    }
    return scores, samples


def brute_force_shares(scores, samples, resamples, rng):
    """The same drawn one by one, with lists."""
    everyone = sorted({row for rows in samples.values() for row in rows.tolist()})
    counts = dict.fromkeys(scores, 0)
    for _ in range(resamples):
        drawn_rows = rng.choice(everyone, len(everyone)).tolist()
        means = dict.fromkeys(scores, 0.0)
        for seed in rng.choice(sorted(samples), len(samples)).tolist():
            place = {row: position for position, row in enumerate(samples[seed].tolist())}
            here = [place[row] for row in drawn_rows if row in place]
            for method in scores:
                means[method] += sum(scores[method][seed][position] for position in here) / max(1, len(here))
        counts[max(means, key=means.get)] += 1
    return {method: count / resamples for method, count in counts.items()}


@pytest.mark.parametrize("shared", [True, False], ids=["one split", "a split per seed"])
def test_shares_are_those_of_a_brute_force_bootstrap(shared):
    rng = np.random.default_rng(3)
    scores, samples = random_scores(rng, shared=shared)
    found = shares_of_first(scores, samples, resamples=4000)
    wanted = brute_force_shares(scores, samples, 2000, rng)
    assert sum(found.values()) == pytest.approx(1)
    assert max(wanted.values()) < 0.95
    assert found == pytest.approx(wanted, abs=0.04)  # three standard deviations of a share over 2000 draws


def test_where_only_seeds_vary_the_share_is_binomial():
    """One method is better by 1 with three seeds of five, worse by 1 with two: it leads if it is better in most."""
    signs = [1.0, 1.0, 1.0, -1.0, -1.0]
    scores = {
        "a": {seed: np.array([sign]) for seed, sign in enumerate(signs)},
        "b": {seed: np.array([0.0]) for seed in range(5)},
    }
    expected = 1 - binom.cdf(2, 5, 0.6)
    assert shares_of_first(scores, resamples=20_000)["a"] == pytest.approx(expected, abs=0.015)


def test_equal_methods_share_every_resample():
    same = {seed: np.arange(5.0) for seed in range(3)}
    samples = {seed: np.arange(5) for seed in range(3)}
    assert shares_of_first({"a": same, "b": dict(same)}, samples) == {"a": 0.5, "b": 0.5}


def test_very_many_samples_are_drawn_in_groups(monkeypatch):
    scores, samples = random_scores(np.random.default_rng(5), seeds=3, rows=3000)
    whole = shares_of_first(scores, samples)
    monkeypatch.setattr("consilience.comparison.choosing._MOST_GROUPS", 500)
    assert shares_of_first(scores, samples) == pytest.approx(whole, abs=0.06)


def with_samples(gap, seeds=8, rows=60):
    """`late` and `close` are alike, `far` is worse by `gap` on every sample; two conditions."""
    rng = np.random.default_rng(0)
    finished = []
    for seed in range(seeds):
        base = rng.gamma(2, 0.3, size=(2, rows))
        for method, shift in (("late", 0.0), ("close", rng.normal(scale=0.05, size=(2, rows))), ("far", gap)):
            losses = base + shift
            values = [{"nll": float(each.mean()), "accuracy": 0.5} for each in losses]
            finished.append((job_of(method, seed), result_of(values, samples=losses)))
    return finished


def test_what_is_not_distinguishable_is_named_and_what_is_worse_is_not():
    choice = choose_methods(with_samples(gap=0.5), PLAN)["toy"]
    near = ({"late", "close"} - {choice.method}).pop()
    assert choice.rivals == (near,)
    assert choice.by_rows
    assert choice.seeds == 8
    assert choice.shares["far"] == 0
    assert choice.shares[choice.method] + choice.shares[near] == pytest.approx(1)
    said = say_certainty(choice)
    assert "of resamples of seeds and rows, " in said
    assert said.endswith(f" its lead over `{near}` is not significant.")


def test_results_without_scores_of_samples_resample_seeds_alone():
    finished = with_samples(gap=0.5)
    for _, result in finished:
        result.arrays.clear()
    choice = choose_methods(finished, PLAN)["toy"]
    assert not choice.by_rows
    assert choice.method == choose_methods(with_samples(gap=0.5), PLAN)["toy"].method
    assert "of resamples of seeds, " in say_certainty(choice)


def test_a_metric_that_is_no_mean_over_samples_resamples_seeds_alone():
    finished = with_samples(gap=0.5)
    for job, result in finished:
        for condition in result.about["conditions"]:
            condition["metrics"]["macro_f1"] = 0.9 if job.method == "far" else 0.5
    choice = choose_methods(finished, {**PLAN, "asked": {"choose_by": "macro_f1"}})["toy"]
    assert (choice.method, choice.by_rows, choice.share, choice.rivals) == ("far", False, 1.0, ())


def test_each_set_has_its_own_choice():
    plan = {**PLAN, "sets": {name: {"task": "classification"} for name in ("one", "two")}}
    finished = [
        (job_of(method, 0, name), result_of([{"nll": loss, "accuracy": 0.5}], name))
        for name, losses in {"one": {"late": 0.1, "concat": 0.2}, "two": {"late": 0.4, "concat": 0.3}}.items()
        for method, loss in losses.items()
    ]
    assert {name: choice.method for name, choice in choose_methods(finished, plan).items()} == {
        "one": "late",
        "two": "concat",
    }


def test_an_unknown_metric_is_refused_before_training(tmp_path):
    from consilience import compare

    with pytest.raises(UnknownNameError, match="did you mean 'nll'"):
        compare("digits", ["late"], choose_by="nl", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nothing_is_said_where_nothing_was_chosen():
    findings = make_findings(["late"])
    assert recommend(findings) == []
    json.dumps(findings.settings)
