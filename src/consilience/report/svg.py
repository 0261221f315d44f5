"""A matplotlib figure as an SVG that takes on a page's colours and font, and as PNG bytes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any

from consilience.report.palette import INK, SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_JOINS = "stroke-linejoin: round; stroke-linecap: butt"  # what matplotlib sets for the whole document
_COLOURED = re.compile("|".join(SERIES))
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


def svg_body(figure: Figure, name: str) -> str:
    """What stands inside `<svg>`: transparent, text as text, ink as `currentColor`, all ids beginning with `name`."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    written = StringIO()
    with drawing_style(name):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(written, metadata=nothing)
    text = written.getvalue()
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', body))
    return re.sub(r"<[^>]*>", lambda tag: _fit_tag(tag[0], name, used), re.sub(r"\s*\n\s*", "\n", body))


def svg_inside(body: str, size: tuple[float, float], alt: str) -> str:
    """An `<svg>` element for a page, which scales to its place and may recolour it by `--series-0` and so on.

    size: in inches · alt: what a screen reader says.
    """
    body = re.sub(r"<[^>]*>", lambda tag: _COLOURED.sub(_as_variable, tag[0]), body)
    return _framed(body, size, alt)


def _as_variable(found: re.Match[str]) -> str:
    return f"var(--series-{SERIES.index(found[0])}, {found[0]})"


def _framed(body: str, size: tuple[float, float], alt: str) -> str:
    width, height = 72 * size[0], 72 * size[1]
    style = f"{_JOINS}; max-width: {1.5 * width:.0f}px"
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(alt)}" style="{style}">{body}</svg>'


def svg_alone(body: str, size: tuple[float, float], alt: str) -> str:
    """An SVG file, which brings its namespace, size, font and colours along."""
    width, height = 72 * size[0], 72 * size[1]
    root = f'xmlns="http://www.w3.org/2000/svg" width="{width:g}pt" height="{height:g}pt" font-family="{FONT}"'
    colours = f"<style>svg{{color:{INK}}}@media(prefers-color-scheme:dark){{svg{{color:#e6e5e1}}}}</style>"
    whole = _framed(body, size, alt).replace("<svg ", f"<svg {root} ", 1)
    return whole.replace(">", f">{colours}", 1)


def _fit_tag(tag: str, name: str, used: set[str]) -> str:
    """One tag with ids of its own, the page's ink and the page's font. Text between tags is a user's and is left."""
    tag = re.sub(r' id="([^"]+)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", tag)
    tag = tag.replace("xlink:href=", "href=")  # of images too: a file of its own would have to name that namespace
    tag = tag.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag.replace(INK, "currentColor"))
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)  # a hundredth of a point is enough
    tag = re.sub(r"font-family: [^;\"]+; ?", "", tag)
    return re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", tag)  # after a size, where a family is required


def to_png(figure: Figure, dpi: int = 200) -> bytes:
    """PNG bytes on white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    written = BytesIO()
    with drawing_style():
        FigureCanvasAgg(figure).print_figure(written, format="png", dpi=dpi, facecolor="white")
    return written.getvalue()
