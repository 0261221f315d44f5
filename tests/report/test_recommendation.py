"""What a report recommends: the chosen method, how sure that is, what to watch, and how the model was trained."""

from dataclasses import replace

import polars as pl
import pytest

from consilience.comparison.summary import summarise
from consilience.report.choice_words import say_published
from consilience.report.recommendation import recommend, worst_condition
from consilience.report.wording import Scale
from report.factory import make_findings


def published(findings, **changes):
    choice = findings.choices["digits"]
    return replace(choice, published=replace(choice.published, **changes))


@pytest.fixture
def findings():
    return make_findings(["qmf", "late", "concat"], chosen="qmf")


def test_two_sentences_say_what_to_deploy_and_why(findings):
    (advice,) = recommend(findings)
    assert advice.deploy == "Deploy `qmf`: the trained model is `best/`."
    clean = findings.values.filter(method="qmf", metric="accuracy", level=0.0, corruption="gaussian")["value"].mean()
    worst = findings.values.filter(method="qmf", metric="accuracy", level=10.0, corruption="gaussian")["value"].mean()
    words = f"its accuracy is {100 * clean:.1f} % when clean and {100 * worst:.1f} % under gaussian at level 10"
    assert words in advice.why
    assert "`late`, which comes second" in advice.why


def test_the_second_method_is_quoted_under_the_conditions_that_are_named(findings):
    low = (pl.col("method") == "late") & (pl.col("corruption") != "gaussian") & (pl.col("level") > 0)
    findings.values = findings.values.with_columns(value=pl.when(low).then(0.01).otherwise(pl.col("value")))
    second = findings.values.filter(method="late", metric="accuracy", corruption="gaussian")
    clean, worst = (second.filter(level=level)["value"].mean() for level in (0.0, 10.0))
    (advice,) = recommend(findings)
    assert worst_condition(findings, summarise(findings)[0], "late")[0].corruption != "gaussian"
    scale = Scale.of_block(summarise(findings)[0])
    assert f"(`late`, which comes second: {scale.number(clean)} % and {scale.number(worst)} %)" in advice.why


def test_the_worst_condition_is_the_one_with_the_worst_mean(findings):
    condition, cell = worst_condition(findings, summarise(findings)[0], "qmf")
    means = findings.values.filter(method="qmf", metric="accuracy")
    means = means.group_by("corruption", "level").agg(pl.col("value").mean())
    assert cell.mean == pytest.approx(means["value"].min())
    assert (condition.corruption, condition.level) == ("gaussian", 10.0)
    watch = dict(recommend(findings)[0].points)["Watch"]
    assert "With the worst of 10 seeds its accuracy is" in watch
    assert f" and {100 * cell.worst:.1f} % under gaussian at level 10." in watch


def test_one_number_alone_is_said_to_cost_most(findings):
    keys = [{"set": "digits", "method": "qmf", "seed": seed, "metric": "accuracy"} for seed in range(10)]
    told = {"level": 10.0, "half_width": 0.01, "clean": 0.97, "samples": 359}
    findings.costs = pl.DataFrame(
        {**key, "modality": name, "corruption": how, "cost": cost, **told}
        for key in keys
        for name, how, cost in (
            ("top_left", "missing", 0.19),
            ("top_right", "missing", 0.05),
            ("top_left", "gaussian", 0.31),
        )
    )
    (advice,) = recommend(findings)
    assert " ".join(advice.sentences).count("costs") == 1
    losing = dict(advice.points)["Each modality"]
    assert losing == "Losing top_left costs `qmf` most: 19.0 ± 0.0 points of accuracy (top_right 5.0)."


def test_classes_that_are_rarely_found_are_named(findings):
    assert "finds only" not in dict(recommend(findings)[0].points)["Watch"]
    labels = ["ok", "leak", "short"]
    counts = [[980, 20, 0], [150, 350, 0], [92, 0, 8]]
    cells = [
        (a, b, counts[i][j], counts[i][j] / sum(counts[i])) for i, a in enumerate(labels) for j, b in enumerate(labels)
    ]
    findings.confusion = pl.DataFrame(
        {"set": "digits", "method": "qmf", "actual": a, "predicted": b, "share": share, "samples": count}
        for a, b, count, share in cells
    )
    watch = dict(recommend(findings)[0].points)["Watch"]
    assert watch.startswith("It finds only 8 % of class short in clean test samples; `--class-weight balanced` ")
    findings.settings["class_weight"] = "balanced"
    assert dict(recommend(findings)[0].points)["Watch"].startswith("It finds only 8 % of class short in clean test")
    assert "--class-weight" not in dict(recommend(findings)[0].points)["Watch"]


def test_rivals_make_the_choice_uncertain_unless_it_nearly_always_comes_first(findings):
    assert dict(recommend(findings)[0].points)["How sure"].startswith("Not certain: `qmf` comes first in ")
    often = {**findings.choices["digits"].shares, "qmf": 0.999}
    findings.choices = {"digits": replace(findings.choices["digits"], shares=often, seeds=5)}
    likely = dict(recommend(findings)[0].points)["How sure"]
    words = "Likely, but not proven: `qmf` comes first in more than 99 % of resamples of seeds and rows, but "
    assert likely.startswith(words + "5 seeds are too few for any significance; `--seeds ")
    findings.choices = {"digits": replace(findings.choices["digits"], rivals=(), seeds=10)}
    sure = dict(recommend(findings)[0].points)["How sure"]
    assert sure.startswith("As certain as these data allow: `qmf` comes first in more than 99 % of resamples")
    assert "and every other method is significantly worse. It was chosen by" in sure


def test_a_method_that_stands_alone_is_compared_with_none():
    findings = make_findings(["qmf"], chosen="qmf", skipped=())
    (advice,) = recommend(findings)
    assert advice.why.startswith("It is the only method with results; on test samples its accuracy is")
    assert dict(advice.points)["How sure"] == "No other method was compared."


def test_a_regression_and_a_single_level(findings):
    findings = make_findings(["qmf", "late"], task="regression", levels=(0.0,), chosen="qmf")
    (advice,) = recommend(findings)
    assert "mean squared error is" in advice.why
    assert "Watch" not in dict(advice.points)


def test_every_set_has_a_recommendation():
    findings = make_findings(["qmf", "late"], sets=("digits", "captions"), chosen="qmf")
    assert [advice.deploy for advice in recommend(findings)] == [
        "Deploy `qmf` on digits: the trained model is `best/`.",
        "Deploy `qmf` on captions: the trained model is `best/`.",
    ]


@pytest.mark.parametrize(
    ("steps", "stopped_by", "words"),
    [
        (((120,), (90,)), ("steps", "steps"), "for as many steps as early stopping found (90 to 120 in 2 runs);"),
        (((120,),), ("steps",), "for 120 steps, as many as early stopping found;"),
        (((120,), (90,)), ("held-out", "held-out"), "seed 0, its parts stopped by held-out samples of their own;"),
        (
            ((120,), (40,), (90,), (1,)),
            ("held-out", "steps", "steps", "fit"),
            "found (40 to 90 in 2 runs), 1 other run stopped by held-out samples;",
        ),
        (((1,), (1,)), ("fit", "fit"), "parts with seed 0;"),
        (((120,), (90,)), (), "parts with seed 0;"),  # of an earlier version, which does not know
        (((120,),), (), "for 120 steps, as many as early stopping found;"),
    ],
)
def test_only_runs_that_early_stopping_measured_are_said_to_take_its_steps(findings, steps, stopped_by, words):
    assert words in say_published(findings, published(findings, steps=steps, stopped_by=stopped_by))
