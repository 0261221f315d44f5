"""Scatter plots of seeds around their means."""

import pytest

from consilience.report.drawing import looks_of
from consilience.report.scatter import Cloud, plot_clouds


def test_clouds_are_drawn_around_their_means():
    looks = looks_of(["a", "b"])
    clouds = [Cloud("a", looks["a"], [-0.5, -0.3], [80.0, 90.0]), Cloud("b", looks["b"], [0.1, 0.2], [60.0, 70.0])]
    figure = plot_clouds(clouds, "r", "accuracy, %", zero="r ≤ 0")
    marks = [tuple(line.get_xydata()[0]) for line in figure.axes[0].lines if line.get_markersize() == 7.5]
    assert marks == [pytest.approx((-0.4, 85.0)), pytest.approx((0.15, 65.0))]
    assert [text.get_text() for text in figure.texts][:2] == ["a", "b"]
