"""Critical-difference diagrams: bars join exactly what is not told apart, and every name can be read."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.comparison.results import CLEAN, EVERYTHING, Standing
from consilience.report.drawing import INK, looks_of
from consilience.report.figures import draw_figures
from consilience.report.page import render_page
from consilience.report.rank_diagram import NARROW, WIDE, draw_ranks, plot_ranks
from report.factory import HOSTILE, make_findings

# Demšar 2006, section 3.2.2: C4.5, with m, cf and both tuned, on 14 sets.
DEMSAR = Standing(EVERYTHING, ("m+cf", "m", "cf", "C4.5"), (1.964, 2.0, 2.893, 3.143), sets=14, critical=1.25, p=0.026)


def standing(ranks, critical=1.0, p=0.001, **other):
    ranks = tuple(sorted(ranks))
    methods = tuple(f"method-{place}" for place in range(len(ranks)))
    return Standing(other.pop("label", EVERYTHING), methods, ranks, other.pop("sets", 12), critical, p, **other)


def test_bars_of_the_published_example():
    """In Demšar's text no two of the four are told apart by Nemenyi's test at 5 %: 3.143 − 1.964 < 1.25."""
    assert DEMSAR.bars == [(0, 3)]
    assert DEMSAR.worse_than("m+cf") == []


@settings(max_examples=60)
@given(st.lists(st.floats(1, 20), min_size=3, max_size=12), st.floats(0.01, 15))
def test_two_methods_share_a_bar_just_when_they_are_not_told_apart(ranks, critical):
    found = standing(ranks, critical)
    for one, other in combinations(range(len(ranks)), 2):
        joined = any(first <= one and other <= last for first, last in found.bars)
        assert joined == (found.ranks[other] - found.ranks[one] <= critical)
        assert joined != (found.methods[other] in found.worse_than(found.methods[one]))
    assert all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(found.bars))  # none lies in another


def test_without_friedman_no_two_are_told_apart():
    found = standing((1.0, 5.0, 9.0), critical=0.5, p=0.06)
    assert found.bars == [(0, 2)]
    assert found.worse_than("method-0") == []
    assert "finds no difference between the methods (p = 0.060)" in draw_ranks(found, "a").caption


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(("count", "long"), [(3, True), (3, False), (16, True), (24, True)])
def test_names_do_not_collide_and_stay_inside(count, long, width):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    methods = ["progressive-gradient-blend-with-a-long-name", "best-unimodal", "bayes-robust", "gradient-blend"]
    methods += [f"method-{place}" for place in range(count - len(methods))]
    methods = methods if long else ["a", "b", "c"]
    ranks = 1 + np.sort(np.random.default_rng(0).random(count)) * (count - 1)
    ranks[1:] = ranks[1]  # all in one place is the worst case
    found = Standing(EVERYTHING, tuple(methods[:count]), tuple(ranks), 10, 0.3 * count, 0.001)
    figure = plot_ranks(found, looks_of(found.methods), width)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    assert len([text for text in figure.axes[0].texts if text.get_text() in methods]) >= count - 1
    for one, other in combinations(boxes, 2):
        assert not (one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1)
    edge = figure.bbox
    assert all(box.x0 >= edge.x0 and box.x1 <= edge.x1 and box.y0 >= edge.y0 and box.y1 <= edge.y1 for box in boxes)


def test_methods_hang_at_their_ranks_and_bars_reach_their_ends():
    figure = plot_ranks(DEMSAR, looks_of(DEMSAR.methods), WIDE)
    axes = figure.axes[0]
    (bar,) = [line for line in axes.lines if line.get_linewidth() == 3]
    stems = {line.get_color(): line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 3}
    places = [stems[looks_of(DEMSAR.methods)[method].colour] for method in DEMSAR.methods]
    numbers = {text.get_text(): text.get_position()[0] for text in axes.texts}
    unit = numbers["2"] - numbers["1"]
    np.testing.assert_allclose(places, [numbers["1"] + unit * (rank - 1) for rank in DEMSAR.ranks])
    assert bar.get_xdata()[0] < places[0] < places[-1] < bar.get_xdata()[1]
    assert bar.get_color() == INK


def test_a_difference_longer_than_the_axis_is_said():
    found = standing((1.0, 2.0, 3.0), critical=2.34, p=0.05, sets=2)
    assert found.hopeless
    texts = [text.get_text() for text in plot_ranks(found, looks_of(found.methods), NARROW).axes[0].texts]
    assert "critical difference 2.3, longer than the axis" in texts


def test_words_say_what_the_picture_shows():
    drawn = draw_ranks(DEMSAR, "ranks")
    assert "Mean ranks, best first: m+cf 2.0; m 2.0; cf 2.9; C4.5 3.1. Bars join m+cf to C4.5." in drawn.alt
    assert "critical difference of 1.25 (Nemenyi's test at 5 %, after Friedman's: p = 0.026)" in drawn.caption
    assert drawn.narrow is not None
    small = draw_ranks(standing((1.0, 2.0, 3.0), label=CLEAN), "clean", small=True)
    assert small.narrow is None
    assert small.caption.startswith("On clean data, over 12 sets. Bars join")
    apart = standing((1.0, 3.0, 6.0))
    assert draw_ranks(apart, "apart").alt.endswith("No bar joins any of them.")


class TestOnThePageOfAComparison:
    def test_large_over_everything_and_small_for_each_condition(self):
        findings = make_findings(["late", "concat", HOSTILE], sets=("one", "two"), seeds=2, corruptions=("gaussian",))
        methods = ("late", "concat", HOSTILE)
        findings.standings = [
            Standing(label, methods, (1.0, 2.5, 2.5), 2, 2.3, 0.2) for label in ("gaussian", CLEAN, EVERYTHING)
        ]
        parts = draw_figures(findings)
        drawings = parts["ranks"].drawings
        assert [drawing.name for drawing in drawings] == ["ranks-gaussian", "ranks-clean", "ranks-all-corruptions"]
        assert [drawing.narrow is None for drawing in drawings] == [False, True, True]
        page = render_page(findings, parts)
        assert 'id="figure-ranks-gaussian" class="full"' in page
        assert "A set counts once" in page
        assert "<script>alert" not in page

    def test_one_set_has_none(self):
        assert "A set counts once" not in render_page(make_findings(["late", "concat"], seeds=2))
