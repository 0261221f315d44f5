"""The page: every condition's table with the figures that stand beside ours, the curve over n, and what is sure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from consilience.comparison.experiments.bayes import linear, predictions
from consilience.comparison.experiments.bayes.beside import FIGURES, SHARES_OFF
from consilience.comparison.experiments.bayes.cells import RUNS, Condition, Protocol
from consilience.comparison.experiments.bayes.deciding import (
    EM,
    KEPT,
    OURS,
    PUBLISHED,
    RELIABLE,
    ROBUST,
    STACKED,
    THEOREM,
    TOLD,
    TRUE,
    TRUE_NAIVE,
)
from consilience.comparison.experiments.bayes.findings import Findings
from consilience.comparison.experiments.study import Study
from consilience.comparison.statistics import Row, reachable, too_few_seeds
from consilience.comparison.store import Result
from consilience.report.curves import Dots, Line, plot_dots, plot_lines
from consilience.report.document import Account, Section, TextTable
from consilience.report.drawing import Drawing
from consilience.report.palette import looks_of
from consilience.report.wording import NOTHING, Scale, say_list, say_number

_PERCENT, _LOSS, _FINE, _APART = Scale(100.0, 1, " %"), Scale(1.0, 3), Scale(1.0, 4), Scale(100.0, 0, " %")
# Whom the words compare the reference with; tables compare it with all.
_RIVALS = (THEOREM, linear.CONCAT, linear.DROPOUT, STACKED, "centralnet", "centralnet, calibrated", TOLD, RELIABLE)
_DRAWN = (OURS, ROBUST, THEOREM, linear.CONCAT, STACKED)


def give_account(study: Study, protocol: Protocol, results: Mapping[str, Result]) -> Account:
    """What all cells say, in words, tables and figures."""
    findings = Findings.gather(protocol, results)
    sections = [_section(findings, one, first=not place) for place, one in enumerate(findings.protocol.conditions)]
    if len(_over_n(findings)) > 1:
        sections.append(Section("over-n", "Few samples and many", figures=(curve(findings),)))
    sections.append(Section("method", "How it was measured", (*study.notes, *_how(findings))))
    return Account(study.title, answer(findings), tuple(sections), paper=study.paper)


def answer(findings: Findings) -> tuple[str, ...]:
    """For every condition, how the reference stands to the ways it is to be compared with; and beside the figures."""
    told = [standing(findings, one) for one in findings.protocol.conditions]
    apart = {}
    for one in findings.protocol.conditions:
        known = FIGURES.get((findings.protocol.experiment, one.name), {}).get(one.reference, (None, None))[1]
        if known is not None:
            apart[one.title] = findings.scores(one, one.reference, "nll").mean() / known - 1
    if apart:
        each = say_list(f"{_APART.signed(value)} % ({title})" for title, value in apart.items())
        told.append(f"Beside the figures of when the recipe was chosen, the log-loss of {OURS} differs by {each}.")
    return tuple(told)


def standing(findings: Findings, condition: Condition) -> str:
    """The reference's log-loss, and whether it is lower than that of the ways it is to be compared with."""
    if condition.reference == EM:
        return _told_shares(findings, condition)
    found = findings.differences(condition)
    decidable = reachable(findings.protocol.seeds, len(found))
    verdicts: dict[str, list[str]] = {}
    for way in findings.ways(condition):
        if way in _RIVALS and way in found:
            lower = found[way]["difference"] < 0
            if found[way]["significant"]:
                verdict = "significantly lower than" if lower else "significantly higher than"
            else:
                verdict = "not significantly other than" if decidable else "lower than" if lower else "higher than"
            loss = _LOSS.number(findings.scores(condition, way, "nll").mean())
            verdicts.setdefault(verdict, []).append(f"{way} ({loss})")
    told = "; ".join(f"{verdict} that of {say_list(ways)}" for verdict, ways in verdicts.items())
    doubt = "" if decidable else f", which {say_number(findings.protocol.seeds, 'seed')} are too few to be sure of"
    return f"{condition.title}: the log-loss of {OURS}, {_pair(findings, condition, OURS)}, is {told}{doubt}."


def table_of(findings: Findings, condition: Condition) -> TextTable:
    """Accuracy, log-loss and calibration error of every way, and what stands beside them."""
    ways = findings.ways(condition)
    beside = FIGURES.get((findings.protocol.experiment, condition.name), {})
    losses = any(loss is not None for _, loss in beside.values())
    header = ["", "accuracy, %", "log-loss", "Δ to the bold, 95 % interval", "ECE"]
    header += ["when chosen", "Δ log-loss, %"] if losses else ["with the data", "Δ accuracy"] if beside else []
    found, rows = findings.differences(condition), []
    for way in ways:
        accuracy, loss, error = (findings.scores(condition, way, one) for one in ("accuracy", "nll", "ece"))
        sure = found[way] if way in found and found[way]["significant"] else None
        arrow = "" if sure is None else " ↑" if sure["difference"] > 0 else " ↓"
        row = [way, _spread(accuracy, _PERCENT), _spread(loss, _LOSS) + arrow]
        row += [_interval(found[way]) if way in found else NOTHING, _LOSS.number(error.mean())]
        if beside:
            right, cost = beside.get(way, (None, None))
            apart = _APART.signed(loss.mean() / cost - 1) if cost else NOTHING
            if right and not losses:
                apart = _PERCENT.signed(accuracy.mean() - right / 100)
            figures = [f"{right:.1f}" if right else "", f"{cost:.3f}" if cost else ""]
            row += [" / ".join(one for one in figures if one) or NOTHING, apart]
        rows.append(tuple(row))
    return TextTable(condition.title, tuple(header), tuple(rows), marked=(ways.index(condition.reference),))


def curve(findings: Findings) -> Drawing:
    """The log-loss of some ways against n."""
    conditions = sorted(_over_n(findings), key=lambda one: one.n or 0)
    looks = looks_of(_DRAWN)
    sizes = [float(one.n or 0) for one in conditions]
    lines = []
    for way in _DRAWN:
        each = [findings.scores(one, way, "nll") for one in conditions]
        spreads = [float(one.std(ddof=1)) for one in each] if findings.protocol.seeds > 1 else None
        lines.append(Line(way, looks[way], sizes, [float(one.mean()) for one in each], spreads))
    figure = plot_lines(lines, "samples to learn from", "log-loss", limits=(0.0, None))
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_xticks(sizes, [f"{size:.0f}" for size in sizes])
    figure.axes[0].set_xticks([], minor=True)
    told = "; ".join(f"{line.label} {_LOSS.number(line.means[0])} to {_LOSS.number(line.means[-1])}" for line in lines)
    return Drawing(
        "over-n",
        "Log-loss against the number of samples that experts and fusion learn from together: mean, and standard "
        "deviation over seeds as a band. Less is better.",
        f"Log-loss against n, from {sizes[0]:.0f} to {sizes[-1]:.0f}: {told}",
        figure,
    )


def dots(findings: Findings, condition: Condition) -> Drawing:
    """The log-loss of every way and seed under one condition."""
    ways = findings.ways(condition)
    looks = looks_of(ways, first=[condition.reference])
    rows = [
        Dots(way, looks[way], findings.scores(condition, way, "nll").tolist(), _pair(findings, condition, way))
        for way in ways
    ]
    told = "; ".join(f"{row.label} {_LOSS.number(row.mean)}" for row in rows)
    return Drawing(
        f"losses-{condition.name}",
        f"{condition.title}: log-loss of every seed (dots) and the mean (bar). Less is better.",
        f"Log-loss by way: {told}",
        plot_dots(rows, "log-loss", logarithmic=True),
    )


def _section(findings: Findings, condition: Condition, first: bool) -> Section:
    words = [_legend(findings, condition)] if first else []
    if condition.reference == EM:
        words.append(_told_estimates(findings, condition))
    figures = (dots(findings, condition),) if first else ()
    return Section(condition.name, condition.title, tuple(words), (table_of(findings, condition),), figures)


def _legend(findings: Findings, condition: Condition) -> str:
    seeds = findings.protocol.seeds
    caution = too_few_seeds(seeds, len(findings.ways(condition)) - 1)
    return (
        f"Mean ± standard deviation over {say_number(seeds, 'seed')}, each with rows of its own. An arrow marks a "
        "difference in log-loss to the way in bold that is significant at 5 % (paired bootstrap over seeds and test "
        "samples, Holm over the ways): ↑ better, ↓ worse. The interval of a difference is by the same bootstrap, for "
        "one way by itself. ECE is the calibration error." + (f" {caution}" if caution else "")
    )


def _told_shares(findings: Findings, condition: Condition) -> str:
    means = {way: findings.scores(condition, way, "nll") for way in (KEPT, TRUE, EM)}
    apart = means[EM] - means[TRUE]
    right, wrong = (
        _PERCENT.number(findings.scores(condition, way, "accuracy").mean()) for way in (TRUE_NAIVE, PUBLISHED)
    )
    return (
        f"{condition.title}: with shares estimated by EM the log-loss is {_spread(means[EM], _LOSS)}, "
        f"{_spread(apart, _LOSS, signed=True)} from that with the true ones, and {_LOSS.number(means[KEPT].mean())} "
        "with the old ones kept. The theorem with κ = 1 is right on "
        f"{right} % with the true shares in their place, and on {wrong} % with the new shares in all of −(N − 1) ln π, "
        "as the code published with the paper has it."
    )


def _told_estimates(findings: Findings, condition: Condition) -> str:
    before = SHARES_OFF.get(findings.protocol.experiment)
    fused, alone = (_spread(findings.off(condition, one), _LOSS) for one in ("fused", "alone"))
    beside = "" if before is None else f" When the recipe was chosen: {before[0]:.2f} and {before[1]:.2f}."
    return (
        f"The shares that EM finds are off by {fused} from the fused posterior and by {alone} from the best expert's "
        f"alone (the sum over classes of the differences).{beside}"
    )


def _over_n(findings: Findings) -> list[Condition]:
    return [one for one in findings.protocol.conditions if one.over_n]


def _how(findings: Findings) -> tuple[str, ...]:
    protocol = findings.protocol
    tested = say_list(f"{len(findings.of(one)[0].arrays['index'])} ({one.name})" for one in protocol.conditions)
    seconds = np.median([result.about["seconds"] for result in findings.results.values()])
    shared = (
        f"Samples to decide on, in the first seed: {tested}. The log-loss counts a probability below 2.2e-16 as that; "
        f"the calibration error has 15 bins. One condition with one seed takes {seconds:.1f} s on the median, every "
        "way included."
    )
    if protocol.experiment == "bayes-predictions":
        return (
            f"Seed k is of training run k mod {RUNS} + 1, with a half of the rows of its own to learn temperatures, "
            "coefficients and the Gaussian from. Missing: each expert with probability "
            f"{predictions.MISSING:g}; broken: each with probability {predictions.BROKEN:g}. For classes 20:1 the rows "
            "to be decided are thinned out, each class by the same factor against the one before.",
            shared,
        )
    return (
        "Experts: one logistic regression a modality on standardised features, at scikit-learn's defaults; so are "
        f"concat regression and stacking. Opinions to learn from are out-of-fold, in {linear.FOLDS} folds, those to "
        "decide from are of experts trained on all n samples. All else are decided on. The best single modality is "
        "the one of the least out-of-fold log-loss. For classes 20:1 test samples are weighted by their class; for "
        f"the reversed shares they are thinned out. Dropout: {linear.COPIES} copies of the training samples, each "
        "without every modality with probability ½.",
        shared,
    )


def _interval(row: Row) -> str:
    """How far a way's log-loss lies above that of the reference, with the paired interval."""
    if not math.isfinite(row["difference"]):
        return NOTHING
    return f"{_FINE.signed(-row['difference'])} ({_FINE.signed(-row['high'])} … {_FINE.signed(-row['low'])})"


def _pair(findings: Findings, condition: Condition, way: str) -> str:
    return _spread(findings.scores(condition, way, "nll"), _LOSS)


def _spread(values: np.ndarray, scale: Scale, signed: bool = False) -> str:
    mean = scale.signed(values.mean()) if signed else scale.number(values.mean())
    return mean if len(values) == 1 else f"{mean} ± {scale.number(values.std(ddof=1))}"
