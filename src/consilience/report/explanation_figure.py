"""Explanations as pictures: how contributions lead from no modality to the prediction, and what each expert says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.core.errors import InputError
from consilience.core.files import write_atomically
from consilience.evaluation.contributions import MeanContributions
from consilience.evaluation.explained_sample import ExplainedSample, ModalityPart, Value
from consilience.report.drawing import INK, SERIES, Drawing, drawing_style
from consilience.report.explanation_words import number, say_value, signed
from consilience.report.wording import Scale, capital, one_line, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RAISES, LOWERS, TRUST, RHO = SERIES[0], SERIES[1], SERIES[2], SERIES[5]
PLAIN = Scale()
_BOUNDED = ("probability", "accuracy")
_NAME_WIDTH = 18
_ROW = 0.27  # inches
_CHARACTER = 0.064


@dataclass(frozen=True)
class Bar:
    """One step of a waterfall; without a value it is missing."""

    name: str
    value: float | None
    error: float = 0.0


def draw_sample(sample: ExplainedSample) -> Drawing:
    """Return the picture of a sample's explanation: a waterfall, experts' opinions, trust and ρ."""
    parts = sorted(sample.parts, key=lambda part: (not part.present, -abs(part.contribution)))
    bars = [Bar(part.name, part.contribution if part.present else None, part.error) for part in parts]
    what = say_value(sample.value, sample.of if sample.classification else None)
    decision = number(sample.decision) if isinstance(sample.decision, float) else one_line(sample.decision)
    caption = (
        f"Row {sample.row}, decision {decision}: from the value with no modality, each modality's contribution leads "
        f"to {what} with all of them."
    )
    if _known(parts, "support"):
        caption += " Dots: the probability that each expert gives, and what it would decide."
    if _known(parts, "trust"):
        caption += " Trust: the share of the decision."
    if _known(parts, "reliability"):
        caption += " ρ: the probability that the modality is sound."
    listed = "; ".join(f"{one_line(bar.name)} {'missing' if bar.value is None else signed(bar.value)}" for bar in bars)
    return Drawing(
        f"explanation-{sample.row}",
        caption,
        f"Contributions to {what}: no modality {number(sample.none)}; {listed}; all {number(sample.all)}.",
        _compose(sample, parts, bars, what, narrow=False),
        _compose(sample, parts, bars, what, narrow=True),
    )


def draw_mean(mean: MeanContributions, value: Value) -> Drawing:
    """Return the picture of mean contributions: a waterfall with intervals."""
    order = sorted(range(len(mean.values)), key=lambda place: -abs(mean.values[place]))
    bars = [Bar(mean.modalities[place], float(mean.values[place]), float(mean.errors[place])) for place in order]
    what = say_value(value)
    listed = "; ".join(f"{one_line(bar.name)} {signed(bar.value or 0.0)}" for bar in bars)
    return Drawing(
        "contributions",
        f"Mean contributions to {what} over {mean.samples} samples. Lines: 95 % intervals over samples.",
        f"Mean contributions to {what}: no modality {number(mean.none)}; {listed}; all {number(mean.all)}.",
        plot_waterfall(bars, mean.none, mean.all, value, width=5.6),
        plot_waterfall(bars, mean.none, mean.all, value, width=3.5),
    )


def save_drawing(drawing: Drawing, path: str | Path) -> Path:
    """Write a drawing to a .svg or .png file."""
    path = Path(path)
    if path.suffix not in (".svg", ".png"):
        raise InputError(f"figure: the file must end in .svg or .png, got {path.name!r}")
    return write_atomically(path, drawing.file_content(path.name))


def plot_waterfall(
    bars: Sequence[Bar],
    none: float,
    total: float,
    value: Value,
    width: float,
    scale: Scale = PLAIN,
    label: str | None = None,
) -> Figure:
    """Contributions one after the other, from the value with no modality to that with all; label: of the axis."""
    from matplotlib.figure import Figure

    left, body = _left(bars), _ROW * (len(bars) + 2)
    height = body + 0.5
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        axes = figure.add_axes((left / width, 0.42 / height, 1 - (left + 0.12) / width, body / height))
        draw_waterfall(axes, bars, none, total, width - left - 0.12, bounded=value in _BOUNDED, scale=scale)
        axes.set_xlabel(capital(label or say_value(value).removeprefix("the ")) + (", %" if scale.unit else ""))
    return figure


def draw_waterfall(
    axes: Axes,
    bars: Sequence[Bar],
    none: float,
    total: float,
    width: float,
    *,
    bounded: bool,
    scale: Scale = PLAIN,
) -> None:
    """Draw the steps on axes that are `width` inches wide; bounded: the value lies between 0 and 1."""
    last = len(bars) + 1
    level, edges = none, [none, total]
    for place, bar in enumerate(bars, start=1):
        if bar.value is None:
            axes.plot((level, level), (place, place + 1), color=INK, alpha=0.35, linewidth=0.7)
            continue
        end = level + bar.value
        axes.barh(place, bar.value, left=level, height=0.58, color=RAISES if bar.value >= 0 else LOWERS, zorder=2)
        if 0 < bar.error < float("inf"):
            axes.plot((end - bar.error, end + bar.error), (place, place), color=INK, linewidth=0.9, zorder=3)
        axes.plot((end, end), (place - 0.29, place + 1), color=INK, alpha=0.35, linewidth=0.7, zorder=1)
        edges += [end, *((end - bar.error, end + bar.error) if bar.error < float("inf") else ())]
        level = end
    axes.plot((none, none), (0, 1), color=INK, alpha=0.35, linewidth=0.7, zorder=1)
    axes.plot((none, total), (0, last), "o", color=INK, markersize=4.5, zorder=4)
    span = (max(edges) - min(edges)) or 1.0
    # Labels stand to the right of a step, so the right side needs their room.
    room = 10 * _CHARACTER / width * 1.25
    axes.set_xlim(min(edges) - 0.04 * span, max(edges) + (0.06 + room) * span)
    level = none
    gap = 0.02 * span
    for place, bar in enumerate(bars, start=1):
        if bar.value is None:
            axes.text(level + gap, place, "missing", va="center_baseline", fontsize=7.5, alpha=0.6)
            continue
        right = max(level, level + bar.value + (bar.error if bar.error < float("inf") else 0.0))
        axes.text(right + gap, place, scale.signed(bar.value), va="center_baseline", fontsize=7.5)
        level += bar.value
    for place, value in ((0, none), (last, total)):
        axes.text(value + 2 * gap, place, scale.number(value), va="center_baseline", fontsize=7.5, fontweight="bold")
    if bounded:  # a step may lead beyond the largest probability; its scale does not
        low, high = axes.get_xlim()
        axes.set_xticks([tick for tick in axes.get_xticks() if max(low, -1e-9) <= tick <= min(high, 1 + 1e-9)])
    if scale.factor != 1:
        axes.xaxis.set_major_formatter(lambda tick, _: f"{scale.factor * tick:g}")
    names = ["no modality", *(shorten(bar.name, _NAME_WIDTH) for bar in bars), "all present"]
    axes.set_yticks(range(last + 1), names)
    _style(axes, last)


def _compose(
    sample: ExplainedSample, parts: Sequence[ModalityPart], bars: Sequence[Bar], what: str, *, narrow: bool
) -> Figure:
    """The waterfall, and beside it (or below it, on a phone) opinions and trust, row by row."""
    from matplotlib.figure import Figure

    panels = [_draw_opinions] if _known(parts, "support") else []
    if _known(parts, "trust") or _known(parts, "reliability"):
        panels.append(_draw_trust)
    left, rows = _left(bars), len(bars) + 2
    body = _ROW * rows
    side, gap = 1.55, 0.3
    width = 3.5 if narrow else left + 3.5 + (side + gap) * len(panels) + 0.12
    main = width - left - 0.12 if narrow else 3.5
    stacked = len(panels) if narrow else 0
    lower = _ROW * len(bars)  # panels below have no ends
    height = 0.24 + body + 0.46 + stacked * (lower + 0.72)
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        y = height - 0.24 - body
        axes = figure.add_axes((left / width, y / height, main / width, body / height))
        draw_waterfall(axes, bars, sample.none, sample.all, main, bounded=sample.value in _BOUNDED)
        axes.set_xlabel(capital(what.removeprefix("the ")))
        for place, draw in enumerate(panels):
            if narrow:
                y -= lower + 0.72
                box = (left / width, y / height, main / width, lower / height)
            else:
                x = left + main + gap + place * (side + gap)
                box = (x / width, y / height, side / width, body / height)
            panel = figure.add_axes(box)
            draw(panel, parts, sample)
            _style(panel, len(bars) + 1)
            if narrow:
                panel.set_yticks(range(1, len(bars) + 1), [shorten(bar.name, _NAME_WIDTH) for bar in bars])
                panel.set_ylim(len(bars) + 0.5, 0.5)
            else:
                panel.set_yticks([])
    return figure


def _known(parts: Sequence[ModalityPart], name: str) -> bool:
    """Whether any modality has a value of this field."""
    return any(getattr(part, name) is not None for part in parts)


def _draw_opinions(axes: Axes, parts: Sequence[ModalityPart], sample: ExplainedSample) -> None:
    """The probability that each expert gives the explained class; what it would decide if that is another."""
    for place, part in enumerate(parts, start=1):
        if part.support is None:
            continue
        agrees = part.opinion == sample.of
        axes.plot((0, part.support), (place, place), color=INK, alpha=0.25, linewidth=1)
        axes.plot([part.support], [place], "o", color=RAISES if agrees else LOWERS, markersize=5.5)
        if not agrees:
            right = part.support < 0.55
            axes.text(
                part.support + (0.06 if right else -0.06),
                place,
                f"says {shorten(str(part.opinion), 10)}",
                va="center_baseline",
                ha="left" if right else "right",
                fontsize=7.5,
            )
    _shares(axes, f"expert's P({shorten(str(sample.of), 12)})")


def _draw_trust(axes: Axes, parts: Sequence[ModalityPart], sample: ExplainedSample) -> None:
    """Trust as a bar, ρ as a diamond."""
    trusted, rho = _known(parts, "trust"), _known(parts, "reliability")
    for place, part in enumerate(parts, start=1):
        if part.trust is not None:
            axes.barh(place, part.trust, height=0.4, color=TRUST)
        if part.reliability is not None:
            axes.plot([part.reliability], [place], "D", color=RHO, markersize=5)
    _shares(axes, "trust (bar), ρ (diamond)" if trusted and rho else "trust" if trusted else "ρ")


def _shares(axes: Axes, x_label: str) -> None:
    axes.set_xlim(-0.03, 1.05)
    axes.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
    axes.set_xlabel(x_label)


def _style(axes: Axes, last: int) -> None:
    axes.patch.set_visible(False)
    axes.set_ylim(last + 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _left(bars: Sequence[Bar]) -> float:
    """Inches that the names need."""
    longest = max(min(max((len(one_line(bar.name)) for bar in bars), default=0), _NAME_WIDTH), len("no modality"))
    return 0.2 + _CHARACTER * longest
