"""The answer in words says no more than the findings do."""

from dataclasses import replace

import polars as pl

from consilience.report import headline, render_page
from consilience.report.sentences import say_test
from report.factory import make_findings


def test_names_the_leader_of_each_condition():
    clean, gaussian, salt = headline(make_findings())
    assert clean.startswith("On digits, `")
    assert "on clean data" in clean
    assert gaussian.startswith("Under gaussian at level 10, `qmf` is best (accuracy ")
    assert "difference to `late` is significant (+" in gaussian
    assert ", followed by `late-probs` (" in gaussian
    assert salt.startswith("Under salt-and-pepper at level 10, ")


def test_best_is_said_only_where_it_was_marked():
    findings = make_findings()
    findings.best.clear()
    assert not any("is best" in sentence for sentence in headline(findings))
    assert all("the highest accuracy" in sentence for sentence in headline(findings))


def alike(*methods, reference):
    """Findings in which some methods have the numbers of the first of them."""
    findings = make_findings([*methods, *({reference} - set(methods))], levels=(0.0,), seeds=3)
    first = findings.values.filter(pl.col("method") == methods[0])
    copies = [first.with_columns(method=pl.lit(method)) for method in methods]
    others = findings.values.filter(~pl.col("method").is_in(methods))
    return replace(
        findings,
        values=pl.concat([*copies, others]),
        reference=reference,
        differences=findings.differences.clear(),
        best={},
    )


def test_methods_of_one_mean_are_named_together():
    sentence = headline(alike("concat", "align", "early", reference="late"))[0]
    assert sentence.startswith("On digits, `concat`, `align` and `early` share the highest accuracy on clean data (")
    assert sentence.endswith("the difference of `concat` to `late` was not tested.")
    sentence = headline(alike("concat", "late", reference="late"))[0]
    assert sentence.startswith("On digits, `concat` and `late` share the highest accuracy on clean data (")
    assert sentence.endswith(" %); `late` is the reference, and no other method is significantly worse.")


def test_methods_that_differ_in_digits_not_shown_are_not_level():
    findings = alike("concat", "align", reference="late")
    lower = pl.when(pl.col("method") == "align").then(pl.col("value") - 1e-6).otherwise(pl.col("value"))
    sentence = headline(replace(findings, values=findings.values.with_columns(value=lower)))[0]
    assert sentence.startswith("On digits, `concat` has the highest accuracy on clean data (")


def test_too_few_seeds_are_not_significant():
    assert "is not significant" in headline(make_findings(seeds=3))[0]


def test_a_smaller_error_leads():
    sentence = headline(make_findings(["late", "early"], task="regression", levels=(0.0,)))[0]
    assert "`early`" in sentence
    assert "mean squared error" in sentence


def test_the_reference_may_lead():
    sentence = headline(make_findings(["late", "best-unimodal"], levels=(0.0,)))[0]
    assert sentence.endswith("it is the reference, and significantly better than 1 of 1 other.")


def test_every_set_has_its_answer():
    sentences = headline(make_findings(["late", "qmf"], sets=("digits", "captions")))
    assert [sentence.split(",")[0] for sentence in sentences[::3]] == ["On digits", "On captions"]


def test_nothing_finished():
    assert headline(make_findings([], corruptions=())) == ["On digits no method has results."]


def test_how_the_metric_was_tested_is_said():
    findings = make_findings(["late", "qmf"], levels=(0.0,))
    assert "accuracy is a mean over test samples" in say_test(findings)
    assert "macro F1 is not a mean over test samples, so it is recomputed" in say_test(
        replace(findings, metric="macro_f1")
    )
    assert say_test(findings) in render_page(findings)
