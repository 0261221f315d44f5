"""Figures draw what the findings say, and their SVGs can live in one page."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from consilience.report.drawing import INK, MARKERS, SERIES, SERIES_ON_DARK, Drawing, looks_of
from consilience.report.figures import draw_figures
from consilience.report.plots import spread_out
from report.factory import HOSTILE, MODALITIES, make_findings


@pytest.fixture(scope="module")
def parts():
    return draw_figures(make_findings())


def drawings(parts):
    return [drawing for part in parts.values() for drawing in part.drawings]


def line_of(drawing, method):
    """The data of a method's line; the short stroke to its label has the same colour and two points."""
    axes = drawing.figure.axes[0]
    colour = next(text.get_color() for text in axes.texts if text.get_text() == method)
    return next(line for line in axes.lines if line.get_color() == colour and len(line.get_xdata()) == 3)


def test_curves_go_through_the_means(parts):
    findings = make_findings()
    for method in ("late", "qmf", "concat"):
        line = line_of(parts["curves"].drawings[0], method)
        here = findings.values.filter(metric="accuracy", method=method, corruption="gaussian")
        means = [100 * here.filter(level=level)["value"].mean() for level in findings.levels]
        np.testing.assert_allclose(line.get_ydata(), means)
        np.testing.assert_allclose(line.get_xdata(), findings.levels)


def test_gap_is_paired_with_the_single_modality(parts):
    findings = make_findings()
    drawing = parts["gap"].drawings[0]
    assert "best-unimodal" not in [text.get_text() for text in drawing.figure.axes[0].texts]
    here = findings.values.filter(metric="accuracy", corruption="gaussian")
    for level, drawn in zip(findings.levels, line_of(drawing, "qmf").get_ydata()):
        own = here.filter(method="qmf", level=level).sort("seed")["value"].to_numpy()
        base = here.filter(method="best-unimodal", level=level).sort("seed")["value"].to_numpy()
        assert drawn == pytest.approx(100 * np.mean(own - base))


def test_gap_to_several_single_modalities_takes_the_best_at_each_level():
    findings = make_findings(["late", "unimodal:a", "unimodal:b"], corruptions=("gaussian",))
    drawing = draw_figures(findings)["gap"].drawings[0]
    line = line_of(drawing, "late")
    means = findings.values.filter(metric="accuracy").group_by("level", "method").agg(pl.col("value").mean())
    for level, drawn in zip(findings.levels, line.get_ydata()):
        at = dict(means.filter(level=level).select("method", "value").iter_rows())
        assert drawn == pytest.approx(100 * (at["late"] - max(at["unimodal:a"], at["unimodal:b"])))


def test_smaller_errors_are_gains():
    findings = make_findings(["late", "best-unimodal"], task="regression", corruptions=("gaussian",))
    line = line_of(draw_figures(findings)["gap"].drawings[0], "late")
    assert (np.asarray(line.get_ydata()) > 0).all()


class TestSvg:
    def test_ids_are_unique_over_the_whole_page_and_every_reference_is_met(self, parts):
        page = "".join(drawing.svg() + (drawing.narrow_svg() if drawing.narrow else "") for drawing in drawings(parts))
        ids = re.findall(r'\bid="([^"]+)"', page)
        assert len(ids) == len(set(ids)) > 20
        assert set(re.findall(r'(?:url\(|href=")#([^")]+)', page)) <= set(ids)

    def test_takes_on_the_colours_of_the_page(self, parts):
        for drawing in drawings(parts):
            inline = drawing.svg()
            assert "currentColor" in inline
            assert INK not in inline
            assert "http" not in inline
            assert "<style" not in inline
            assert "DejaVu" not in inline
            assert re.search(r'aria-label="[^"]{20,}"', inline)

    def test_files_are_whole_documents_without_a_background(self, parts):
        for drawing in drawings(parts):
            root = ElementTree.fromstring(drawing.svg_file())
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert "#ffffff" not in drawing.svg_file()

    def test_a_file_with_pixels_is_a_whole_document_too(self):
        figure = Figure()
        figure.subplots().imshow(np.eye(4))
        drawing = Drawing("pixels", "Pixels", "four pixels by four", figure)
        images = ElementTree.fromstring(drawing.svg_file()).findall(".//{http://www.w3.org/2000/svg}image")
        assert [image.get("href", "")[:22] for image in images] == ["data:image/png;base64,"]

    def test_text_is_text_and_hostile_names_are_escaped(self, parts):
        body = "".join(drawing.svg() for drawing in drawings(parts))
        assert ">level of gaussian</text>" in body
        assert "<script>" not in body
        assert "&lt;script&gt;" in body

    def test_the_same_findings_give_the_same_svg(self):
        one, two = (draw_figures(make_findings(["late", "qmf"], seeds=2))["curves"].drawings[0].svg() for _ in range(2))
        assert one == two

    def test_names_that_look_like_markup_stay_as_they_are(self):
        tricky = [f'{INK} id="x"', "url(#y) $x_$", f"{SERIES[0]} 1.2345"]
        body = draw_figures(make_findings([*tricky, "late"], corruptions=("g",)))["timings"].drawings[0].svg()
        for name in tricky:
            assert f">{name}</text>" in body

    def test_png(self, parts):
        assert parts["curves"].drawings[0].png().startswith(b"\x89PNG")


class TestKinds:
    def test_one_level_is_drawn_as_dots(self):
        parts = draw_figures(make_findings(levels=(0.0,)))
        assert len(parts["curves"].drawings) == 1  # clean is the same under both corruptions
        axes = parts["curves"].drawings[0].figure.axes[0]
        assert axes.get_yticklabels()[0].get_text() in ("early", "align", "concat")

    def test_one_level_of_two_corruptions_is_drawn_for_both(self):
        drawn = draw_figures(make_findings(["late", "qmf"], levels=(10.0,)))["curves"].drawings
        assert ["under gaussian at level 10" in drawing.caption for drawing in drawn] == [True, False]

    def test_what_is_absent_is_said(self):
        parts = draw_figures(make_findings(["concat", "late"], task="regression", trust=False, probabilities=False))
        for name in ("trust", "reliability", "calibration", "gap"):
            assert not parts[name].drawings
            assert parts[name].absence.endswith(".")
        assert parts["curves"].drawings

    def test_of_many_methods_eight_are_drawn(self):
        names = [f"method-{place}" for place in range(24)]
        parts = draw_figures(make_findings(["late", *names], corruptions=("gaussian",), seeds=3))
        texts = [text.get_text() for text in parts["curves"].drawings[0].figure.axes[0].texts]
        assert len(texts) == len(SERIES) == 8
        assert "late" in texts
        lines = parts["curves"].drawings[0].figure.axes[0].lines
        assert sum(len(line.get_xdata()) == 3 for line in lines) == 8  # the others lead to names
        for name in ("curves", "reliability", "calibration", "timings"):
            assert "17 further methods are not drawn" in parts[name].drawings[0].caption, name
        assert len(parts["reliability"].drawings[0].figure.axes) == 8
        assert len(parts["timings"].drawings[0].figure.axes[0].get_yticks()) == 8

    def test_the_chosen_method_is_drawn_however_it_ranks(self):
        names = [f"method-{place}" for place in range(24)]
        findings = make_findings(["late", *names], corruptions=("gaussian",), seeds=3, chosen="method-1")
        drawn = draw_figures(findings)["curves"].drawings[0].figure.axes[0]
        assert "method-1" in [text.get_text() for text in drawn.texts]

    def test_trust_is_drawn_sound_against_hit(self):
        findings = make_findings(["late", "qmf"], corruptions=("gaussian",), chosen="qmf")
        (drawing,) = draw_figures(findings)["trust"].drawings
        axes = drawing.figure.axes[1]  # of qmf
        rows = findings.hit_trust.filter(method="qmf", level=10.0)
        for place, modality in enumerate(MODALITIES):
            own = rows.filter(modality=modality)
            marks = [line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [place]]
            assert marks == pytest.approx([own["sound"].mean(), own["hit"].mean()])
        assert "is sound" in drawing.caption

    def test_a_modality_that_is_missing_where_it_is_hit_has_no_trust_to_draw(self):
        findings = make_findings(["late", "qmf"], corruptions=("missing",), chosen="qmf")
        findings.hit_trust = findings.hit_trust.with_columns(corruption=pl.lit("gaussian"))
        assert not draw_figures(findings)["trust"].drawings

    def test_bins_with_few_predictions_are_left_out(self):
        findings = make_findings(["late", "qmf"], corruptions=("gaussian",), seeds=1)
        least = 20 / 359
        enough = findings.reliability.filter((pl.col("share") >= least), method="late", level=0.0)
        assert 0 < len(enough) < len(findings.reliability.filter(method="late", level=0.0))
        axes = draw_figures(findings)["reliability"].drawings[0].figure.axes[0]
        clean = axes.lines[1]  # after the diagonal
        assert clean.get_xdata().tolist() == enough["confidence"].to_list()

    def test_many_methods_may_end_at_the_same_height(self):
        names = [f"method-{place}" for place in range(24)]
        findings = make_findings(["late", *names], corruptions=("gaussian",), seeds=1)
        findings.values = findings.values.with_columns(pl.lit(0.5).alias("value"))
        assert draw_figures(findings)["curves"].drawings

    def test_many_modalities_share_a_grey(self):
        names = [f"sensor-{place}" for place in range(30)]
        parts = draw_figures(make_findings(["qmf", "late"], modalities=names, corruptions=("gaussian",)))
        texts = [text.get_text() for text in parts["trust"].drawings[0].figure.texts]
        assert "others" in texts
        assert "sensor-29" not in texts

    def test_nan_and_nothing(self):
        findings = make_findings(["late", "concat"])
        findings.values = findings.values.with_columns(
            value=pl.when((pl.col("method") == "concat") & (pl.col("level") == 10))
            .then(float("nan"))
            .otherwise("value")
        )
        assert draw_figures(findings)["curves"].drawings[0].svg()
        empty = draw_figures(make_findings([], corruptions=()))
        assert all(part.absence for part in empty.values())


def luminance(colour: str) -> float:
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, two: str) -> float:
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


class TestPalette:
    def test_lines_read_on_white_and_on_near_black(self):
        for colour in SERIES:
            assert contrast(colour, "#ffffff") >= 3
            assert contrast(colour, "#15171a") >= 3
        for colour in SERIES_ON_DARK:
            assert contrast(colour, "#15171a") >= 4.5

    def test_a_marker_for_every_colour(self):
        assert len(SERIES) == len(MARKERS) == len(SERIES_ON_DARK) == len(set(SERIES))
        assert INK not in SERIES

    def test_looks_are_distinct(self):
        found = looks_of(["a", "b", HOSTILE], first=[HOSTILE, "unknown"])
        assert found[HOSTILE].colour == SERIES[0]
        assert len({look.colour for look in found.values()}) == 3


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0.01, 0.2))
def test_labels_keep_their_order_their_distance_and_their_place(places, gap):
    wanted = sorted(places)
    found = spread_out(wanted, gap)
    least = min(gap, 1 / max(len(wanted) - 1, 1))
    assert len(found) == len(wanted)
    assert all(-1e-5 <= place <= 1 + 1e-5 for place in found)
    assert all(after - before >= least - 1e-5 for before, after in pairwise(found))
    if all(after - before >= gap for before, after in pairwise(wanted)):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
