"""A figure with its words, ready for a page or a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from consilience.report.svg import svg_alone, svg_body, svg_inside, to_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A figure with its words. name: of its files, unique in a report · narrow: the same for a phone, if it differs."""

    name: str
    caption: str
    alt: str
    figure: Figure
    narrow: Figure | None = None

    @cached_property
    def _body(self) -> str:
        return svg_body(self.figure, self.name)  # drawing is what costs: once for the page and the file

    def svg(self) -> str:
        """The figure for a page, as SVG that takes on the page's colours."""
        return svg_inside(self._body, _size(self.figure), self.alt)

    def narrow_svg(self) -> str:
        """The same for a phone; that of all others where it does not differ."""
        if self.narrow is None:
            return self.svg()
        return svg_inside(svg_body(self.narrow, f"{self.name}-narrow"), _size(self.narrow), self.alt)

    def svg_file(self) -> str:
        """The figure as an SVG file."""
        return svg_alone(self._body, _size(self.figure), self.alt)

    def png(self) -> bytes:
        """The figure as PNG."""
        return to_png(self.figure)


@dataclass(frozen=True)
class Part:
    """The figures that answer one question, or the sentence that says why there are none."""

    drawings: list[Drawing] = field(default_factory=list)
    absence: str = ""


def _size(figure: Figure) -> tuple[float, float]:
    return figure.get_figwidth(), figure.get_figheight()
