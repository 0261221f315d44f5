"""The page of a protocol that compares methods over several sets: mean ranks, and which methods differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.ranks import Scores, mean_ranks, mean_scores, scores_of, standings
from consilience.comparison.results import CLEAN, Standing
from consilience.report.document import Section, TextTable
from consilience.report.drawing import looks_of
from consilience.report.rank_diagram import draw_ranks
from consilience.report.wording import Scale, capital, say_level, say_list, say_metric, say_number, say_p
from consilience.reproduction.protocol import Part


def rank_sections(
    parts: Mapping[str, Part], comparisons: Mapping[str, Comparison]
) -> tuple[list[str], list[Section], list[str]]:
    """Return the answer, the sections and what was compared, in words; nothing where no method can be ranked.

    Args:
        parts: The parts of the protocol; those with the same `set` count as one set, by their mean.
        comparisons: The finished ones, by part.
    """
    first = next(iter(comparisons.values())).findings
    scores = scores_by_set(comparisons, {name: part.set for name, part in parts.items()})
    found = standings(scores, first.larger_is_better)
    if not found:
        return [], [], []
    sections = [
        overall_section(found[0], first.metric),
        conditions_section(found),
        sets_section(found[0], scores, comparisons),
    ]
    return answer(found), sections, [what_was_compared(comparisons)]


def what_was_compared(comparisons: Mapping[str, Comparison]) -> str:
    """The methods, corruptions and levels of all parts, in a sentence."""
    findings = [comparison.findings for comparison in comparisons.values()]
    methods = list(dict.fromkeys(method for part in findings for method in part.methods))
    corruptions = sorted({name for part in findings for name in part.corruptions})
    levels = sorted({level for part in findings for level in part.levels if level})
    return (
        f"Compared here are {say_number(len(methods), 'method')}, {say_list(f'`{name}`' for name in methods)}, under "
        f"{say_list(f'`{name}`' for name in corruptions)} at level{'s' if len(levels) > 1 else ''} "
        f"{say_list(map(say_level, levels))}."
    )


def scores_by_set(comparisons: Mapping[str, Comparison], sets: Mapping[str, str]) -> dict[str, Scores]:
    """Set → what the methods are worth there; tasks on one set become one."""
    tasks: dict[str, list[Scores]] = {}
    for part, comparison in comparisons.items():
        (name,) = comparison.findings.sets
        tasks.setdefault(sets.get(part, part), []).append(scores_of(comparison.findings, name))
    return {name: mean_scores(several) for name, several in tasks.items()}


def answer(found: Sequence[Standing]) -> list[str]:
    """Which method to pick, and how far the ranks bear that out."""
    main = found[0]
    best, *others = main.methods
    followed = say_list(f"`{method}` ({rank:.1f})" for method, rank in zip(others[:2], main.ranks[1:]))
    sentences = [
        f"{capital(main.where)}, `{best}` has the best mean rank: {main.ranks[0]:.1f} "
        f"among {len(main.methods)} methods on {say_number(main.sets, 'set')}, followed by {followed}.",
        _say_significance(main, best),
    ]
    clean = next((standing for standing in found[1:] if standing.label == CLEAN), None)
    if clean is not None and clean.methods[0] == best:
        sentences.append(f"On clean data it leads too, with {clean.ranks[0]:.1f}.")
    elif clean is not None:
        own = f"; there `{best}` has {clean.rank_of(best):.1f}" if best in clean.methods else ""
        sentences.append(f"On clean data `{clean.methods[0]}` leads with {clean.ranks[0]:.1f}{own}.")
    return sentences


def _say_significance(main: Standing, best: str) -> str:
    worse = main.worse_than(best)
    count, needed = len(main.methods), f"{main.critical:.1f}"
    if main.hopeless:
        return (
            f"With so few sets no two of {count} methods can differ significantly: their mean ranks would have to be "
            f"{needed} apart, and the largest distance possible is {count - 1}."
        )
    if not main.differ:
        return (
            f"Friedman's test finds no difference between the methods ({say_p(main.p)}): "
            f"{say_number(main.sets, 'set')} do not decide which to pick."
        )
    if not worse:
        return (
            f"The methods differ ({say_p(main.p)}), but it is not significantly better than any single one: mean ranks "
            f"would have to be {needed} apart."
        )
    return (
        f"It is significantly better than {say_list(f'`{method}`' for method in worse)}; between it and the others, "
        "these sets do not decide."
    )


def overall_section(main: Standing, metric: str) -> Section:
    """The diagram, and how to read it."""
    words = [
        "Read from the left, where the best stand; methods under one bar do not differ significantly. Each method's "
        f"{say_metric(metric)} is averaged over seeds, levels and corruptions, the methods are ranked by it on each "
        "set, and the ranks are averaged over sets.",
        "A set counts once. Conditions on one set share its data and the trained models, so ranking each pair of set "
        "and corruption as if it were a set of its own would claim far more evidence than there is, and draw far "
        "shorter bars.",
    ]
    if main.left_out:
        words.append(
            f"Without a rank, since they do not serve every set: {say_list(f'`{method}`' for method in main.left_out)}."
        )
    if main.sets < 10:
        words.append("Friedman's test is approximate with fewer than about ten sets, on the side of caution.")
    return Section("ranks", "Which method to pick", tuple(words), figures=(draw_ranks(main, "ranks"),))


def sets_section(main: Standing, scores: Mapping[str, Scores], comparisons: Mapping[str, Comparison]) -> Section:
    """The ranks and scores on each set that the diagram is made of, and where the comparisons' own reports are."""
    first = next(iter(comparisons.values())).findings
    tables = (rank_table(main, scores, first.larger_is_better), *score_tables(main, scores, first.metric))
    links = tuple(link_to_report(name, comparison) for name, comparison in comparisons.items())
    return Section("sets", "On each set", tables=tables, links=links)


def link_to_report(part: str, comparison: Comparison) -> tuple[str, str]:
    """The words and the target of the link to a comparison's own report."""
    return f"All of {part}: curves, calibration, trust, timings", f"{quote(comparison.folder.name)}/report.html"


def rank_table(main: Standing, scores: Mapping[str, Scores], larger_is_better: bool) -> TextTable:
    """Methods × sets: ranks over all corruptions, and their mean."""
    there = [name for name in scores if main.label in scores[name]]
    table = np.array([[scores[name][main.label][method] for method in main.methods] for name in there])
    ranks = np.array([mean_ranks(row[None], larger_is_better) for row in table])
    rows = tuple(
        (method, f"{main.ranks[place]:.1f}", *(f"{rank:g}" for rank in ranks[:, place]))
        for place, method in enumerate(main.methods)
    )
    return TextTable(f"Ranks, {main.where}", ("method", "mean", *there), rows)


def score_tables(main: Standing, scores: Mapping[str, Scores], metric: str) -> list[TextTable]:
    """Methods × sets: the means that were ranked, and those on clean data."""
    scale = Scale.of(metric)
    words = say_metric(metric)
    return [
        TextTable(
            f"{capital(words)}, {where}{',' + scale.unit if scale.unit else ''}",
            ("method", *scores),
            tuple(
                (method, *(scale.number(found.get(label, {}).get(method)) for found in scores.values()))
                for method in main.methods
            ),
        )
        for label, where in ((main.label, f"mean {main.where}"), (CLEAN, "clean"))
    ]


def conditions_section(found: Sequence[Standing]) -> Section:
    """A diagram for clean data and one for each corruption; colours as in the large one."""
    everyone = dict.fromkeys(method for standing in found for method in standing.methods)
    looks = looks_of(list(everyone))
    drawings = tuple(draw_ranks(standing, f"ranks-{standing.label}", looks, small=True) for standing in found[1:])
    words = (
        "The same ranks on clean data and under each corruption alone, over the sets that have met it. These diagrams "
        "share their sets and models: they are views of one experiment and no further evidence.",
    )
    return Section("conditions", "Clean, and one corruption at a time", words, figures=drawings)
