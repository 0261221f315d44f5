"""Every method under every corruption on several sets: mean ranks, and which of them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.experiments.experiment import Experiment, Part, Reproduction, register_experiment
from consilience.comparison.experiments.published import how_made
from consilience.comparison.ranks import mean_ranks
from consilience.comparison.standings import Scores, mean_scores, scores_of, standings
from consilience.comparison.store import writing
from consilience.report.document import Account, Section, TextTable, write_account
from consilience.report.palette import looks_of
from consilience.report.rank_diagram import CLEAN, Standing, draw_ranks
from consilience.report.wording import Scale, say_level, say_list, say_metric, say_number, say_p

METHODS = (
    "best-unimodal",
    "late",
    "late-probs",
    "bayes",
    "bayes-robust",
    "tmc",
    "etmc",
    "ecml",
    "qmf",
    "pdf",
    "concat",
    "pro:concat",
    "align",
    "gradient-blend",
    "lowrank",
    "tensor",
    "mfas",
    "mfm",
    "mim",
    "mmbt",
    "mmtm",
    "refnet",
)
ANY_KIND = ("blank", "drop", "structured-drop", "swapped", "missing")
NUMBERS = ("gaussian", "salt-and-pepper", "scaled", "stuck", *ANY_KIND)
SENSORS = ("CE", "CP", "SE", "TS1", "TS2", "TS3", "TS4", "VS1")
SMALL_ENCODER = {"name": "mlp", "hidden": [64], "dropout": 0.1}
QUICK_METHODS = ("late", "late-probs", "bayes-robust", "tmc", "qmf", "concat")


@dataclass(frozen=True)
class Robustness(Experiment):
    """Comparisons on sets of all sorts, joined by ranks. sets: part → the set it is one task of, by default itself.

    full_only: parts that the quick size leaves out.
    """

    sets: Mapping[str, str] = field(default_factory=dict)
    full_only: tuple[str, ...] = ()

    def run(self, *, quick: bool = False, out: str | Path | None = None, command: str = "", **how: Any) -> Reproduction:
        """As any experiment; the quick size on fewer sets."""
        chosen = {name: part for name, part in self.parts.items() if not quick or name not in self.full_only}
        return Experiment.run(replace(self, parts=chosen), quick=quick, out=out, command=command, **how)

    def write(
        self, folder: Path, comparisons: Mapping[str, Comparison], absent: Mapping[str, str], command: str
    ) -> Reproduction:
        """The diagram first; what it was made from below."""
        first = next(iter(comparisons.values())).findings
        scores = scores_by_set(comparisons, self.sets)
        found = standings(scores, first.larger_is_better)
        missing = tuple(f"{name} was left out: {reason}" for name, reason in absent.items())
        sections = (
            overall_section(found[0], first.metric),
            conditions_section(found),
            sets_section(found[0], scores, comparisons),
            Section("known", "What to know", (*missing, what_was_met(comparisons), *self.notes)),
            Section("made", "How it was made", tuple(how_made(self.parts, comparisons))),
        )
        account = Account(self.title, tuple(answer(found)), sections, command, self.paper)
        with writing(folder):
            page = write_account(account, folder)
        return Reproduction(folder, account, page)


def what_was_met(comparisons: Mapping[str, Comparison]) -> str:
    """Which methods met which corruptions at which levels."""
    findings = [one.findings for one in comparisons.values()]
    methods = [method for method in METHODS if any(method in one.methods for one in findings)]
    corruptions = sorted({name for one in findings for name in one.corruptions})
    levels = sorted({level for one in findings for level in one.levels if level})
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
    told = [
        f"{main.where[0].upper()}{main.where[1:]}, `{best}` has the best mean rank: {main.ranks[0]:.1f} "
        f"among {len(main.methods)} methods on {say_number(main.sets, 'set')}, followed by {followed}.",
        _told_apart(main, best),
    ]
    clean = next((one for one in found[1:] if one.label == CLEAN), None)
    if clean is not None and clean.methods[0] == best:
        told.append(f"On clean data it leads too, with {clean.ranks[0]:.1f}.")
    elif clean is not None:
        own = f"; there `{best}` has {clean.rank_of(best):.1f}" if best in clean.methods else ""
        told.append(f"On clean data `{clean.methods[0]}` leads with {clean.ranks[0]:.1f}{own}.")
    return told


def _told_apart(main: Standing, best: str) -> str:
    worse = main.worse_than(best)
    if main.hopeless:
        return (
            f"So few sets tell no two of {len(main.methods)} methods apart: that takes mean ranks "
            f"{main.critical:.1f} apart, and no two can lie further apart than {len(main.methods) - 1}."
        )
    if not main.differ:
        return (
            f"Friedman's test does not tell the methods apart ({say_p(main.p)}): {say_number(main.sets, 'set')} do not "
            "decide which to pick."
        )
    if not worse:
        return (
            f"The methods are not all alike ({say_p(main.p)}), yet it is told apart from no single one: that takes "
            f"mean ranks {main.critical:.1f} apart."
        )
    return (
        f"It is significantly better than {say_list(f'`{one}`' for one in worse)}; between it and the others, these "
        "sets do not decide."
    )


def overall_section(main: Standing, metric: str) -> Section:
    """The diagram, and how to read it."""
    words = [
        "Read from the left, where the best stand; the methods under one bar cannot be told apart. Each method's "
        f"{say_metric(metric)} is averaged over seeds, levels and corruptions, the methods are ranked by it on each "
        "set, and the ranks are averaged over sets.",
        "A set counts once. Conditions on one set share its data and the trained models, so ranking each pair of set "
        "and corruption as if it were a set of its own would claim far more evidence than there is, and draw far "
        "shorter bars.",
    ]
    if main.left_out:
        words.append(
            f"Without a rank, since they do not serve every set: {say_list(f'`{one}`' for one in main.left_out)}."
        )
    if main.sets < 10:
        words.append("Friedman's test is approximate with fewer than about ten sets, on the side of caution.")
    return Section("ranks", "Which method to pick", tuple(words), figures=(draw_ranks(main, "ranks"),))


def sets_section(main: Standing, scores: Mapping[str, Scores], comparisons: Mapping[str, Comparison]) -> Section:
    """The ranks and scores on each set that the diagram is made of, and where the comparisons' own reports are."""
    first = next(iter(comparisons.values())).findings
    tables = (rank_table(main, scores, first.larger_is_better), *score_tables(main, scores, first.metric))
    links = tuple(
        (f"All of {name}: curves, calibration, trust, timings", f"{name}/report.html") for name in comparisons
    )
    return Section("sets", "On each set", tables=tables, links=links)


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
            f"{words[0].upper()}{words[1:]}, {where}{',' + scale.unit if scale.unit else ''}",
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
    drawings = tuple(draw_ranks(one, f"ranks-{one.label}", looks, small=True) for one in found[1:])
    words = (
        "The same ranks on clean data and under each corruption alone, over the sets that have met it. These diagrams "
        "share their sets and models: they are views of one experiment and no further evidence.",
    )
    return Section("conditions", "Clean, and one corruption at a time", words, figures=drawings)


def _part(data: str, **own: Any) -> Part:
    """A set's protocol: all methods, every corruption of its kinds at two levels at which none of them loses all."""
    corruption = own.pop("corruption", NUMBERS)
    full: dict[str, Any] = {
        "data": data,
        "methods": list(METHODS),
        "reference": "late",
        "corruption": list(corruption),
        "levels": (0, 3, 7),
        "seeds": 10,
        **own,
    }
    few = ["gaussian" if "gaussian" in corruption else "blank", "swapped", "missing"]
    training = {**own.get("training", {}), "epochs": 10}
    smaller = {"methods": list(QUICK_METHODS), "corruption": few, "levels": (0, 7), "seeds": 2, "training": training}
    return Part(full, {**smaller, "settings": {}})


COMPONENTS = ("cooler", "valve", "pump", "accumulator")
PARTS = {
    "digits": _part("digits"),
    "gaussians": _part("gaussians", dependence=0.3),
    "captions": _part("captions", corruption=ANY_KIND),
    "sequences": _part("sequences"),
    "handwritten": _part(
        "handwritten", encoders=dict.fromkeys(("pix", "fou", "fac", "zer", "kar", "mor"), SMALL_ENCODER)
    ),
    "mvsa": _part("mvsa", encoders=dict.fromkeys(("image", "text"), SMALL_ENCODER)),
    "mosi": _part("mosi"),
    "breast-tcga": _part("breast-tcga", training={"batch_size": 32}),
    "utd-mhad": _part("utd-mhad", steps=32, encoders=dict.fromkeys(("inertial", "skeleton"), SMALL_ENCODER)),
} | {
    f"hydraulic-{component}": _part(
        "hydraulic",
        component=component,
        encoders={sensor: {**SMALL_ENCODER, "hidden": [32]} for sensor in SENSORS},
        settings={"lowrank": {"rank": 8, "width": 64}},  # of the usual rank, 40, it takes the longest of all
        training={"batch_size": 128},
    )
    for component in COMPONENTS
}

register_experiment(
    Robustness(
        name="robustness",
        title="Which method to pick when any modality may go wrong?",
        paper="After Demšar 2006, Statistical Comparisons of Classifiers over Multiple Data Sets",
        parts=PARTS,
        sets={f"hydraulic-{component}": "hydraulic" for component in COMPONENTS},
        full_only=("sequences", "mvsa", *(f"hydraulic-{component}" for component in COMPONENTS if component != "pump")),
        notes=(
            "Each modality of each test sample is hit with probability one half. Level 10 is left out: there `blank`, "
            "`drop` and `structured-drop` would all lose everything and be one corruption under three names. Training "
            "data are clean.",
            "Components of the hydraulic rig are tasks on the same recordings: the mean of those compared counts as "
            "one set. `digits`, `gaussians`, `captions` and `sequences` need no download; the last three are "
            "generated. `captions` holds text, and meets only the corruptions that text can meet.",
            "In the test set of `breast-tcga` the proteins are missing for every tumour before anything else goes "
            "wrong.",
            "Left out at full size are methods for time steps alone (`ef-lstm`, `lf-lstm`, `ef-transformer`, "
            "`lf-transformer`, `mag`, `mult`), which do not serve vectors; `early`, whose one encoder for all "
            "modalities cannot be chosen as the others' are here; and `m2vae`, which decodes every sensor of "
            "the rig step by step and would take longer than all others together.",
            "Ranks say who is ahead, not by how much: see the tables. Nemenyi's critical difference grows with the "
            "number of methods, so the same two methods may be told apart among few and not among many.",
        ),
    )
)
