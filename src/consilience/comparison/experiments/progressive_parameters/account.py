"""The page of table 10: our counts beside the published ones, and what the place of the feedback does to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.comparison.experiments.progressive_parameters.counting import COMPARED, JOINS, TABLE10, Protocol
from consilience.comparison.experiments.study import Study
from consilience.comparison.store import Result
from consilience.report.document import Account, Section, TextTable
from consilience.report.wording import say_count

THOUSAND = 1000
# Both published counts are rounded.
ROUNDING = 1000


def give_account(study: Study, protocol: Protocol, results: Mapping[str, Result]) -> Account:
    """What the counts of all models say, in words and tables."""
    counts = [results[cell.key].about for cell in protocol.cells()]
    sections = (
        Section("paper", "Beside the paper", (_compared(),), (beside_paper(counts),)),
        Section("places", "Where the feedback joins", (_places(),), (by_place(counts), nearest_places(counts))),
        Section("differences", "Reasons for differences", study.notes),
    )
    return Account(study.title, answer(counts), sections, paper=study.paper)


def answer(counts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What to read first: the overheads, and whether there is a place that explains the published ones.

    counts: of every model, as `count_model` gives them, with its name under `model`.
    """
    shares = [100 * one["added"][COMPARED] / one["base"] for one in counts]
    added = [one["added"][COMPARED] for one in counts]
    published = [row.loop - row.base for row in TABLE10.values()]
    claimed = [100 * (row.loop - row.base) / row.base for row in TABLE10.values()]
    told = [
        f"A loop that joins at the {COMPARED} adds {say_count(min(added))} to {say_count(max(added))} parameters, "
        f"{min(shares):.1f} to {max(shares):.1f} % of the model. The paper's adds {min(published)} k to "
        f"{max(published)} k, {min(claimed):.1f} to {max(claimed):.1f} %."
    ]
    for one in counts:
        place, apart = nearest(one)
        if apart <= ROUNDING:
            row = TABLE10[one["model"]]
            told.append(
                f"With our widths, the {row.loop - row.base} k that the paper adds to {row.name} are those of a link "
                f"{_at(place)}: {_whole(one['added'][place])}."
            )
    return tuple(told)


def beside_paper(counts: Sequence[Mapping[str, Any]]) -> TextTable:
    """Parameters without and with the loop, ours and the paper's."""
    rows = []
    for one in counts:
        row, added = TABLE10[one["model"]], one["added"][COMPARED]
        ours, published = (one["base"], one["base"] + added, added), (row.base, row.loop, row.loop - row.base)
        cells = [cell for pair in zip(map(_thousands, ours), map(str, published)) for cell in pair]
        rows.append((f"{row.name} ({one['model']})", *cells, _thousands(one["encoders"])))
    header = ("model", *(f"{what}{whose}" for what in ("base", "loop", "added") for whose in ("", ", published")))
    return TextTable("Parameters in thousands", (*header, "of them encoders"), tuple(rows))


def by_place(counts: Sequence[Mapping[str, Any]]) -> TextTable:
    """What a loop adds at each place, and would add with weights for every pixel."""
    names = tuple(TABLE10[one["model"]].name for one in counts)
    rows = [(place, *(_whole(one["added"][place]) for one in counts)) for place in JOINS]
    rows.append(("every pixel with weights of its own", *(_whole(one["dense"]) for one in counts)))
    rows.append(("published", *(f"{TABLE10[one['model']].loop - TABLE10[one['model']].base} k" for one in counts)))
    return TextTable("Parameters added, by where the feedback joins", ("place", *names), tuple(rows), (len(rows) - 1,))


def nearest_places(counts: Sequence[Mapping[str, Any]]) -> TextTable:
    """For each model the place whose overhead is nearest to the published one."""
    rows = []
    for one in counts:
        row, (place, apart) = TABLE10[one["model"]], nearest(one)
        fits = "yes" if apart <= ROUNDING else "no"
        rows.append((row.name, f"{row.loop - row.base} k", place, _whole(one["added"][place]), fits))
    header = ("model", "published", "nearest place", "added there", "within rounding")
    return TextTable("The place that comes nearest to the published overhead", header, tuple(rows))


def nearest(one: Mapping[str, Any]) -> tuple[str, int]:
    """The place whose overhead is nearest to the published one, and how far it is off."""
    row = TABLE10[one["model"]]
    apart = {place: abs(added - THOUSAND * (row.loop - row.base)) for place, added in one["added"].items()}
    return min(apart.items(), key=lambda item: item[1])


def _compared() -> str:
    return (
        f"Models are built for images of 28×28, spectrograms of 112×112 and ten classes. The loop has two passes; what "
        f"was fused is added, channel by channel, to what the {COMPARED} of both encoders receives, as in "
        "`progressive-table9`. How many passes there are does not change the count: the passes share their weights."
    )


def _places() -> str:
    return (
        "A link has one weight for each channel it feeds and each number of what was fused: the later it joins, the "
        "more channels there are. Weights for every pixel would be far more than the paper's overheads, so its links "
        "too act on channels or features."
    )


def _at(place: str) -> str:
    return place if place.startswith(("behind", "added", "concatenated")) else f"into the {place}"


def _whole(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def _thousands(count: int) -> str:
    return f"{count / THOUSAND:.1f}" if count < 100 * THOUSAND else f"{count / THOUSAND:.0f}"
