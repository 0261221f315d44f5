"""Explanations in words, tables and pictures, of samples that the tests make by hand."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from consilience.evaluation.contributions import MeanContributions
from consilience.evaluation.explained_sample import ExplainedSample, ModalityPart, PairPart
from consilience.report import render_page
from consilience.report.explanation_figure import draw_mean, draw_sample
from consilience.report.explanation_page import explanation_page
from consilience.report.explanation_words import mean_table, sample_table, say_mean, say_sample
from report.factory import HOSTILE, MODALITIES, make_findings
from report.test_page import Page

IMAGE = ModalityPart("image", True, 0.5, 0.0, "cat", 0.8, 0.8, 0.9, 0.7, "dog", 0.6, 0.3)
SOUND = ModalityPart("sound", True, -0.1, 0.0, "dog", 0.9, 0.05, 0.2, 0.3, "cat", 0.95, 0.95)
TEXT = ModalityPart("text", False, 0.0, 0.0)
SAMPLE = ExplainedSample(
    row=17,
    value="probability",
    of="cat",
    decision="cat",
    probability=0.9,
    none=0.5,
    all=0.9,
    parts=(IMAGE, SOUND, TEXT),
    pairs=(PairPart("image", "sound", 0.1, "conflicting"),),
    conflict=0.85,
    excluded=False,
    prediction_set=("cat", "dog"),
    coverage=0.9,
)


def test_the_sentences_say_everything():
    assert say_sample(SAMPLE) == [
        "Row 17: the decision is cat, with probability 0.900.",
        "With no modality, the probability of cat would be 0.500; with all that are present it is 0.900.",
        "image (+0.500) raises the probability of cat.",
        "sound (−0.100) lowers the probability of cat.",
        "text is missing and contributes nothing.",
        "Without image the decision would be dog.",
        "The expert of image says cat; that of sound says dog (0.90).",
        "The experts contradict each other: conflict 0.85 of 1.",
        "sound is probably broken: ρ = 0.20.",
        "Conflicting (one lowers what the other raises): image and sound.",
        "The conformal set with coverage 0.9 is {cat, dog}.",
    ]


def test_the_table_has_a_line_for_each_modality():
    table = sample_table(SAMPLE)
    assert table.header == ("modality", "contribution", "expert says", "trust", "ρ", "without it")
    assert table.rows == (
        ("image", "+0.500", "cat (0.80)", "0.70", "0.90", "dog (0.60)"),
        ("sound", "−0.100", "dog (0.90)", "0.30", "0.20", "cat (0.95)"),
        ("text", "missing", "–", "–", "–", "–"),
    )
    bare = replace(SAMPLE, parts=(ModalityPart("image", True, 0.4, 0.0, without="cat", without_value=0.5), TEXT))
    assert sample_table(bare).header == ("modality", "contribution", "without it")


def test_a_regression_is_said_in_numbers():
    parts = (ModalityPart("a", True, 1.5, 0.25, opinion=3.0, without=2.0, without_value=2.0),)
    sample = ExplainedSample(0, "output", 0, 3.5, None, 2.0, 3.5, parts, prediction_set=(1.0, 6.0), coverage=0.8)
    sentences = say_sample(sample)
    assert sentences[0] == "Row 0: the prediction is 3.500."
    assert "a (+1.500 ± 0.250) raises the prediction." in sentences
    assert sentences[-1] == "The conformal interval with coverage 0.8 is 1.000 to 6.000."
    assert sample_table(sample).rows == (("a", "+1.500 ± 0.250", "3.000", "2.000"),)


def test_sets_that_are_empty_infinite_or_absent():
    assert say_sample(replace(SAMPLE, prediction_set=()))[-1] == "The conformal set with coverage 0.9 is empty."
    absent = replace(SAMPLE, prediction_set=None, set_absence="no calibration\ndata")
    assert say_sample(absent)[-1] == "There is no conformal set: no calibration data"
    endless = ExplainedSample(
        0, "output", 0, 3.5, None, 3.5, 3.5, (TEXT,), (), prediction_set=(-np.inf, np.inf), coverage=0.9
    )
    assert endless.to_json()["prediction_set"] == (None, None)
    assert say_sample(endless)[-1] == "The conformal interval with coverage 0.9 is −inf to inf."


def mean_of(values, interactions=None, errors=None):
    names = tuple(f"m{place}" for place in range(len(values)))
    values = np.array(values)
    errors = np.full(len(values), 0.01) if errors is None else np.array(errors)
    return MeanContributions(
        names, values, errors, interactions, None if interactions is None else np.full(interactions.shape, 0.01), 0.1,
        0.1 + values.sum(), 50,
    )  # fmt: skip


def test_means_name_the_relations_of_pairs():
    interactions = np.array([[0, -0.2, 0.1], [-0.2, 0, 0], [0.1, 0, 0]])
    said = say_mean(mean_of([0.4, 0.3, 0.1], interactions), "accuracy")
    assert said == [
        "Over 50 samples, the mean accuracy is 0.100 with no modality and 0.900 with all that are present.",
        "Mean contributions: m0 +0.400, m1 +0.300 and m2 +0.100.",
        "Redundant (together they add less than apart): m0 and m1.",
        "Complementary (together they add more than apart): m0 and m2.",
    ]
    assert mean_table(mean_of([0.4, 0.3], interactions[:2, :2])).rows[0] == ("m0", "+0.400 ± 0.010", "–", "−0.200")
    assert mean_table(mean_of([0.4, 0.3], errors=[np.inf, np.inf])).rows[0] == ("m0", "+0.400 ± –")


def test_many_pairs_are_counted():
    interactions = np.where(np.eye(10, dtype=bool), 0.0, 0.5)
    interactions[0, 1] = interactions[1, 0] = 0.0
    said = say_mean(mean_of([0.1] * 10, interactions), "accuracy")
    assert said[-1].endswith("; and 41 other pairs.")


@pytest.mark.parametrize("narrow", [False, True])
def test_the_picture_shows_names_and_numbers(narrow):
    drawing = draw_sample(SAMPLE)
    svg = drawing.narrow_svg() if narrow else drawing.svg()
    for text in (
        "no modality",
        "image",
        "+0.500",
        "−0.100",
        "missing",
        "0.900",
        "says dog",
        "trust (bar), ρ (diamond)",
    ):
        assert f">{text}<" in svg
    assert "no modality 0.500; image +0.500; sound −0.100; text missing; all 0.900" in drawing.alt
    ticks = [float(tick) for tick in re.findall(r">(\d\.\d)<", svg)]
    assert max(ticks) <= 1.0  # a probability has no tick beyond 1


def test_pictures_of_extreme_contributions_are_drawn():
    for values in ([0.0, 0.0], [1e-12, -1e9], [np.pi]):
        svg = draw_mean(mean_of(values), "mse").svg()
        assert svg.startswith("<svg")
        assert "nan" not in svg.lower()


def test_the_page_is_whole_and_harmless():
    hostile = replace(SAMPLE, parts=(replace(IMAGE, name=HOSTILE, opinion=HOSTILE), SOUND, TEXT), decision=HOSTILE)
    source = explanation_page([hostile, replace(SAMPLE, row=3)], None, "probability", HOSTILE, "consilience explain")
    page = Page(source)
    assert "<script>alert" not in source
    assert "explanation" in page.text
    assert [len(table) for table in page.tables] == [4, 2, 4, 2]
    mean = explanation_page([], mean_of([0.4, 0.3]), "accuracy", "Title", "consilience explain")
    assert "Mean contributions" in Page(mean).text


def with_contributions(findings):
    """Contributions of modalities whose pairs are redundant, for every method and seed."""
    rows, pairs = [], []
    for method in findings.values["method"].unique(maintain_order=True):
        for seed in findings.seeds:
            key = {"set": "digits", "method": method, "seed": seed}
            for place, name in enumerate(MODALITIES):
                value = 0.2 + 0.01 * place + 0.001 * seed
                rows.append(
                    {**key, "metric": "accuracy", "modality": name, "contribution": value, "half_width": 0.01,
                     "none": 0.1, "all": 0.96 + 0.004 * seed, "samples": 359}
                )  # fmt: skip
            pairs += [
                {**key, "first": first, "second": second, "interaction": -0.1 - 0.001 * seed, "half_width": 0.01}
                for place, second in enumerate(MODALITIES)
                for first in MODALITIES[:place]
            ]
    findings.contributions, findings.interactions = pl.DataFrame(rows), pl.DataFrame(pairs)
    return findings


def test_the_report_says_what_each_modality_contributes():
    source = render_page(with_contributions(make_findings(["late", "concat", HOSTILE], seeds=3)))
    section = source[source.index('<section id="contributions">') : source.index('<section id="trust">')]
    assert "All pairs of modalities are redundant" in section
    assert 'id="figure-contributions-digits"' in section
    table, pairs = Page(section).tables
    assert table[0] == ["method", "no modality", *MODALITIES, "all present"]
    assert table[1] == ["late", "10.00", *(f"+{20.1 + place:.2f} ± 0.10" for place in range(4)), "96.40"]
    assert pairs[1][:2] == ["top_left, top_right", "−10.10redundant"]
    assert "<script>alert" not in section


def test_a_report_without_contributions_says_so():
    assert "The results are older than this measurement." in render_page(make_findings(["late"], seeds=2))
