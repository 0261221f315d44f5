"""A figure with its caption, as SVG that takes on a page's colours and font, and as PNG; and the colours themselves."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1b1c1e"  # text and axes; becomes currentColor in an SVG, so it must differ from every other colour
# After Okabe and Ito, Color Universal Design: their dark hues, and two of their light ones darkened to stand on white.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#c76aa0", "#a67c00", "#7b68c8", "#1898b0", "#7d7f83")
# The same hues, lighter: what a dark page shows in their place.
SERIES_ON_DARK = ("#4da3e0", "#f08344", "#2fbd91", "#dd8fba", "#c9a02c", "#a294ec", "#45b6cc", "#9c9ea3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


@dataclass(frozen=True)
class Look:
    """How a method or modality is drawn in every figure; without colour (not `shown`) it stays in the background."""

    colour: str
    marker: str
    shown: bool = True

    @property
    def opacity(self) -> float:
        """Lines in the background are faint ink, which suits both themes."""
        return 1.0 if self.shown else 0.28


BACKGROUND = Look(INK, "", shown=False)


def looks_of(names: Sequence[str], first: Iterable[str] = ()) -> dict[str, Look]:
    """Return a look for every name: colours for as many as there are, those in `first` before the others.

    >>> looks = looks_of([f"method-{i}" for i in range(20)], first=["method-19"])
    >>> looks["method-19"].colour == SERIES[0], looks["method-7"].shown
    (True, False)
    """
    wanted = [name for name in dict.fromkeys([*first, *names]) if name in names]
    shown = {name: Look(SERIES[place], MARKERS[place]) for place, name in enumerate(wanted[: len(SERIES)])}
    return {name: shown.get(name, BACKGROUND) for name in names}


_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_SVG, _LINK = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"
_JOINS = "stroke-linejoin: round; stroke-linecap: butt"  # what matplotlib sets for the whole document
_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],  # for measuring; it is wider than what a page will use, so nothing gets cut
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "grid.color": INK,
    "grid.alpha": 0.14,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.2,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may hold dollar signs
    "text.usetex": False,
}


@contextmanager
def drawing_style(salt: str = "consilience") -> Iterator[None]:
    """The house style around drawing and writing, whatever the user's own settings are."""
    import matplotlib

    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the page's font will have it, or a box
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": salt})
        yield


@dataclass(frozen=True)
class Drawing:
    """A figure with its words.

    Attributes:
        name: Of its files, unique in a report.
        caption: What it shows and how to read it.
        alt: What a screen reader says.
        figure: The figure.
        narrow: The same for a phone, if it differs.
    """

    name: str
    caption: str
    alt: str
    figure: Figure
    narrow: Figure | None = None

    @property
    def full(self) -> bool:
        """Whether it needs the whole width of a page."""
        return self.figure.get_figwidth() > 5.5

    @cached_property
    def _tree(self) -> ElementTree.Element:
        return _svg_tree(self.figure, self.name, self.alt)  # drawing is slow: once for the page and the file

    def svg(self) -> str:
        """Return the figure as an `<svg>` element for a page, which may recolour it by `--series-0` and so on."""
        return _for_page(self._tree)

    def narrow_svg(self) -> str:
        """Return the figure for a phone; `svg()` if it has no other."""
        if self.narrow is None:
            return self.svg()
        return _for_page(_svg_tree(self.narrow, f"{self.name}-narrow", self.alt))

    def svg_file(self) -> str:
        """Return the figure as an SVG file, which contains its size, font and colours."""
        tree = deepcopy(self._tree)
        _, _, width, height = tree.attrib["viewBox"].split()
        tree.attrib |= {"xmlns": _SVG, "width": f"{width}pt", "height": f"{height}pt", "font-family": _FONT}
        colours = ElementTree.Element("style")
        colours.text = f"svg{{color:{INK}}}@media(prefers-color-scheme:dark){{svg{{color:#e6e5e1}}}}"
        tree.insert(0, colours)
        return ElementTree.tostring(tree, encoding="unicode")

    def png(self, dpi: int = 200) -> bytes:
        """Return the figure as PNG on white."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        written = BytesIO()
        with drawing_style():
            FigureCanvasAgg(self.figure).print_figure(written, format="png", dpi=dpi, facecolor="white")
        return written.getvalue()

    def file_content(self, name: str) -> bytes:
        """Return the figure as the file of this name holds it: SVG or PNG, by its ending."""
        return self.svg_file().encode("utf-8", "replace") if name.endswith(".svg") else self.png()


@dataclass(frozen=True)
class Part:
    """The figures that answer one question; `absence` is shown where there are none, and says why."""

    drawings: list[Drawing] = field(default_factory=list)
    absence: str = ""


def _svg_tree(figure: Figure, name: str, alt: str) -> ElementTree.Element:
    """A figure as an `<svg>` element: transparent, text as text, `INK` as `currentColor`.

    `svg.hashsalt` makes the ids that matplotlib refers to differ between figures of one page; other ids are removed.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    written = StringIO()
    with drawing_style(name):
        FigureCanvasSVG(figure).print_svg(written, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    tree = ElementTree.fromstring(written.getvalue())  # noqa: S314 - matplotlib has just written it
    for element in tree.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        for child in [child for child in element if child.tag.endswith(("}metadata", "}style"))]:
            element.remove(child)
        element.tail = None
        if element.tag == "g":
            element.attrib.pop("id", None)
            element.text = None
        for key, value in list(element.attrib.items()):
            if key == _LINK:  # a file would have to declare that namespace
                element.set("href", element.attrib.pop(key))
            else:  # a hundredth of a point is precise enough
                element.set(key, re.sub(r"(\.\d\d)\d+", r"\1", value.replace(INK, "currentColor")))
        if element.tag == "text":  # in the page's font
            parts = element.attrib["style"].split("; ")
            size = [f"font-size: {part.split()[1]}" for part in parts if part.startswith("font: ")]
            rest = [part for part in parts if not part.startswith(("font: ", "font-family: "))]
            element.set("style", "; ".join([*size, *rest]))
    width, height = 72 * figure.get_figwidth(), 72 * figure.get_figheight()
    style = f"{_JOINS}; max-width: {1.5 * width:.0f}px"
    tree.attrib = {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": alt, "style": style}
    return tree


def _for_page(tree: ElementTree.Element) -> str:
    tree = deepcopy(tree)
    for element in tree.iter():
        style = element.get("style", "")
        for place, colour in enumerate(SERIES):
            style = style.replace(colour, f"var(--series-{place}, {colour})")
        if style:
            element.set("style", style)
    return ElementTree.tostring(tree, encoding="unicode")
