"""The page of a watched log: what changed and since when, each modality's reliability, trust and absence over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.evaluation.stream_alarms import (
    ABSENCE,
    CONFIDENCE,
    CONFLICT,
    RELIABILITY,
    TRUST,
    Alarm,
    MonitorState,
    QuantityState,
    say_alarms,
)
from consilience.report.document import Document, Section, render_document
from consilience.report.drawing import INK, SERIES, Drawing, drawing_style
from consilience.report.text_table import TextTable
from consilience.report.wording import NOTHING, one_line, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {RELIABILITY: SERIES[0], TRUST: SERIES[2], ABSENCE: SERIES[7], CONFLICT: SERIES[1], CONFIDENCE: SERIES[5]}
_WHOLE = "decision"  # the panel of what belongs to no modality
_WIDTHS = (7.2, 3.5)
_PANEL, _TITLE, _FOOT = 0.95, 0.4, 0.4  # inches
_TICKS = 5


@dataclass(frozen=True)
class Watched:
    """A log that was replayed.

    Attributes:
        ends: The number of rows after each piece `[piece]`.
        states: The state after each piece.
        alarms: All alarms.
        times: What each row is called; None: by its number.
        class_shares: As of `Monitor.class_shares`, at the end.
        false_alarms: The stated share of unchanged streams with an alarm.
    """

    ends: Sequence[int]
    states: Sequence[MonitorState]
    alarms: Sequence[Alarm]
    times: Sequence[str] | None
    class_shares: Mapping[Any, tuple[float, float]]
    false_alarms: float


def watch_page(watched: Watched, title: str, command: str) -> str:
    """Return the page as HTML."""
    state = watched.states[-1]
    method = (
        "Every row is compared with the reference and with all rows before it that have the same modalities present, "
        "by the rank of each value. An alarm is raised where bets on these ranks have won "
        f"{len(state.quantities) + bool(watched.class_shares)} / {watched.false_alarms:g} times their stake. If rows "
        f"are exchangeable with those of the reference, at most {100 * watched.false_alarms:g} % of all logs have any "
        "alarm, however long they are. Rows that resemble their neighbours in time are not exchangeable and can raise "
        "alarms without a fault. A quantity raises one alarm."
    )
    sections = [
        Section("course", "Over time", figures=(_draw(watched),)),
        Section("alarms", "Alarms", tables=(_alarm_table(watched.alarms),)),
        Section("quantities", "What is watched", tables=(_quantity_table(state), *_share_tables(watched))),
        Section("method", "How it is decided", (method,)),
    ]
    answer = [one_line(sentence) for sentence in say_alarms(watched.alarms)]
    return render_document(Document(title, tuple(answer), tuple(sections), command), "watched log")


def _alarm_table(alarms: Sequence[Alarm]) -> TextTable:
    rows = tuple(
        (
            one_line(alarm.quantity),
            one_line(alarm.begun),
            f"row {alarm.row}" if alarm.time is None else one_line(f"{alarm.time} (row {alarm.row})"),
            _number(alarm.reference),
            _number(alarm.recent),
        )
        for alarm in alarms
    )
    return TextTable("Alarms", ("quantity", "since", "noticed", "mean before", "mean since"), rows)


def _quantity_table(state: MonitorState) -> TextTable:
    rows = tuple(
        (
            one_line(each.quantity),
            _number(each.reference),
            _number(each.recent),
            f"{each.evidence:.1f}",
            "yes" if each.alarm else "no",
        )
        for each in state.quantities
    )
    header = ("quantity", "reference", "last rows", "log10 of the evidence", "alarm")
    marked = tuple(place for place, each in enumerate(state.quantities) if each.alarm)
    return TextTable("Means in the reference and in the last rows", header, rows, marked)


def _share_tables(watched: Watched) -> tuple[TextTable, ...]:
    if not watched.class_shares:
        return ()
    rows = tuple(
        (one_line(label), f"{100 * before:.1f} %", f"{100 * now:.1f} %")
        for label, (before, now) in watched.class_shares.items()
    )
    caption = "Shares of the classes, of the last rows estimated by expectation maximisation"
    return (TextTable(caption, ("class", "reference", "last rows"), rows),)


def _draw(watched: Watched) -> Drawing:
    drawn = [each for each in watched.states[-1].quantities if each.quantity.split(" of ")[0] in _COLOURS]
    panels = list(dict.fromkeys(each.modality for each in drawn))
    panels.sort(key=lambda modality: modality == "")
    caption = (
        "Means over the last rows; dotted: in the reference. The shaded part begins where a change was found to begin, "
        "the line is where the alarm was raised."
    )
    alt = "Course of what is watched. " + " ".join(one_line(sentence) for sentence in say_alarms(watched.alarms))
    wide, narrow = (_plot(watched, drawn, panels, width) for width in _WIDTHS)
    return Drawing("course", caption, alt, wide, narrow)


def _plot(watched: Watched, drawn: Sequence[QuantityState], panels: Sequence[str], width: float) -> Figure:
    from matplotlib.figure import Figure

    height = len(panels) * (_PANEL + _TITLE) + _FOOT
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        for place, modality in enumerate(panels):
            bottom = height - (place + 1) * (_PANEL + _TITLE)
            axes = figure.add_axes((0.45 / width, bottom / height, 1 - 0.6 / width, _PANEL / height))
            _draw_panel(
                axes, watched, [each for each in drawn if each.modality == modality], modality or _WHOLE, width < 5
            )
            if place < len(panels) - 1:
                axes.set_xticklabels([])
        axes.set_xlabel("row" if watched.times is None else "time of the row")
    return figure


def _draw_panel(axes: Axes, watched: Watched, drawn: Sequence[QuantityState], title: str, narrow: bool) -> None:
    axes.patch.set_visible(False)
    last = watched.ends[-1]
    place = 1.0
    for each in reversed(drawn):
        kind = each.quantity.split(" of ")[0]
        colour = _COLOURS[kind]
        course = [_find(state, each.quantity) for state in watched.states]
        axes.plot(watched.ends, course, color=colour, linewidth=1.4, zorder=3)
        if math.isfinite(each.reference):
            axes.axhline(each.reference, color=colour, linewidth=0.8, linestyle=":", zorder=2)
        axes.text(place, 1.06, kind, transform=axes.transAxes, color=colour, ha="right", fontsize=7.5)
        place -= 0.19 if narrow else 0.1
    for alarm in watched.alarms:
        if any(alarm.quantity == each.quantity for each in drawn):
            colour = _COLOURS[alarm.kind]
            axes.axvspan(alarm.since, last, color=colour, alpha=0.1, linewidth=0, zorder=1)
            axes.axvline(alarm.row, color=colour, linewidth=0.9, zorder=2)
    axes.text(0, 1.06, shorten(one_line(title), 24), transform=axes.transAxes, color=INK, fontweight="bold")
    axes.set_xlim(watched.ends[0], max(last, watched.ends[0] + 1))
    axes.set_ylim(-0.03, 1.05)
    axes.set_yticks([0, 0.5, 1])
    axes.grid(axis="y")
    count = 3 if narrow else _TICKS
    first = watched.ends[0]
    ticks = sorted({round(first + (last - first) * i / (count - 1)) for i in range(count)})
    if watched.times is None:
        labels = [str(tick) for tick in ticks]
    else:
        labels = [shorten(one_line(watched.times[min(tick, last) - 1]), 16) for tick in ticks]
    axes.set_xticks(ticks, labels)


def _find(state: MonitorState, quantity: str) -> float:
    return next(each.recent for each in state.quantities if each.quantity == quantity)


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else NOTHING
