"""Opinions of several experts into one decision: the theorem, its κ, and what else can be done with the same opinions.

Serves bayes-digits and bayes-handwritten, where experts are trained here, and bayes-predictions, where the predictions
of networks are given. Their files NAME.yaml have the data, the conditions and the published figures. A cell is one
condition with one seed: every way to decide, scored (bayes/decisions.py).
"""

import math
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from consilience.comparison.plan import Source
from consilience.comparison.significance import compare_to_reference, reachable, too_few_seeds
from consilience.report.document import Document, Section, TextTable
from consilience.report.drawing import Drawing, looks_of
from consilience.report.plots import Dots, Line, plot_dots, plot_lines
from consilience.report.wording import NOTHING, Scale, say_list, say_number
from consilience.reproduction.study import load_script, run_from_command_line, run_study

TITLE = "Fusing the opinions of experts: which way?"
PAPER = "Jørgensen, Tětková, Hansen 2024, Image classification with symbolic hints using limited resources"
NAMES = ("bayes-digits", "bayes-handwritten", "bayes-predictions")
ways = load_script(Path(__file__).with_name("bayes") / "decisions.py")
STUDY = yaml.safe_load((Path(__file__).parent / "studies" / "bayes.yaml").read_text(encoding="utf-8"))
# The ways that the answer compares with the reference, and those of the curve over n; tables have all of them.
RIVALS = (ways.THEOREM, ways.CONCAT, ways.DROPOUT, ways.STACKED, ways.TOLD, ways.RELIABLE)
RIVALS += ("centralnet", "centralnet, calibrated")
DRAWN = (ways.OURS, ways.ROBUST, ways.THEOREM, ways.CONCAT, ways.STACKED)
PERCENT, LOSS, FINE, APART = Scale(100.0, 1, " %"), Scale(1.0, 3), Scale(1.0, 4), Scale(100.0, 0, " %")


def run(*, name="bayes-digits", quick=False, out=None, jobs=1, cluster=None, verbose=1, command="", **settings):
    study = yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))
    settings = {**study["settings"], "title": study["title"], **settings}
    cells = [
        {"condition": condition["name"], "kind": condition["kind"], "n": condition.get("n"), "seed": seed}
        for seed in range(settings["quick_seeds" if quick else "seeds"])
        for condition in settings["conditions"]
    ]
    shared = {"data": settings["data"], "fingerprint": Source.of(settings["data"]).fingerprint()}
    options = {"quick": quick, "out": out, "jobs": jobs, "cluster": cluster, "verbose": verbose, "command": command}
    return run_study(name, ways.measure, cells, shared, partial(describe, settings), **options)


class Findings:
    """The results of one condition: scores of every way and seed, and which differences are significant."""

    def __init__(self, condition, results, published):
        self.name, self.title, self.n = condition["name"], condition["title"], condition.get("n")
        self.over_n = condition.get("over_n", False)
        self.shares = condition["kind"] in ("reversed", "saved, shares")  # whether shares of classes are estimated
        self.reference = ways.EM if self.shares else ways.OURS
        self.results, self.seeds = results, len(results)
        self.published = published.get(self.name, {})  # way → accuracy in per cent and log-loss
        self.ways = list(results[0].about["scores"])
        scores = {
            way: {seed: -result.arrays["loss"][place] for seed, result in enumerate(results)}
            for place, way in enumerate(self.ways)
        }
        index = {seed: result.arrays["index"] for seed, result in enumerate(results)}
        rows = compare_to_reference(scores, self.reference, samples=index)
        self.differences = {row["method"]: row for row in rows}  # positive where the log-loss is lower

    def scores(self, way, metric="nll"):
        """ "accuracy", "nll" or "ece" of a way: `[seed]`."""
        return np.array([result.about["scores"][way][metric] for result in self.results])

    def loss(self, way):
        return LOSS.over_seeds(self.scores(way))


def describe(settings, results):
    conditions = settings["conditions"]
    published, step = settings.get("published", {}), len(conditions)
    every = [Findings(conditions[place], results[place::step], published) for place in range(step)]
    sections = []
    for findings in every:
        first = findings is every[0]
        words = [legend(findings)] if first else []
        if findings.shares:
            words.append(share_errors(findings, settings.get("published_share_errors")))
        figures = (dots(findings),) if first else ()
        sections.append(Section(findings.name, findings.title, tuple(words), (table(findings),), figures))
    over_n = sorted((findings for findings in every if findings.over_n), key=lambda findings: findings.n)
    if len(over_n) > 1:
        sections.append(Section("over-n", "Few samples and many", figures=(curve(over_n),)))
    how = (*settings["notes"], *how_measured(settings["data"], every))
    sections.append(Section("method", "How it was measured", how))
    return Document(settings["title"], answer(every), tuple(sections), paper=PAPER)


def answer(every):
    sentences = [say_shares(findings) if findings.shares else say_standing(findings) for findings in every]
    apart = {}
    for findings in every:
        published = findings.published.get(findings.reference, (None, None))[1]
        if published is not None:
            apart[findings.title] = findings.scores(findings.reference).mean() / published - 1
    if apart:
        listed = say_list(f"{APART.signed(value)} % ({title})" for title, value in apart.items())
        sentences.append(
            f"Beside the figures of when the recipe was chosen, the log-loss of {ways.OURS} differs by {listed}."
        )
    return tuple(sentences)


def say_standing(findings):
    """Whether the log-loss of the reference is lower than that of its rivals."""
    decidable = reachable(findings.seeds, len(findings.differences))
    verdicts = {}
    for way in findings.ways:
        if way in RIVALS and way in findings.differences:
            difference = findings.differences[way]
            verdict = "lower than" if difference["difference"] < 0 else "higher than"
            if difference["significant"]:
                verdict = f"significantly {verdict}"
            elif decidable:
                verdict = "not significantly other than"
            verdicts.setdefault(verdict, []).append(f"{way} ({LOSS.number(findings.scores(way).mean())})")
    listed = "; ".join(f"{verdict} that of {say_list(rivals)}" for verdict, rivals in verdicts.items())
    doubt = "" if decidable else f", which {say_number(findings.seeds, 'seed')} are too few to be sure of"
    return f"{findings.title}: the log-loss of {ways.OURS}, {findings.loss(ways.OURS)}, is {listed}{doubt}."


def say_shares(findings):
    apart = findings.scores(ways.EM) - findings.scores(ways.TRUE)
    right, wrong = (
        PERCENT.number(findings.scores(way, "accuracy").mean()) for way in (ways.TRUE_NAIVE, ways.PUBLISHED)
    )
    return STUDY["shares"].format(
        title=findings.title,
        em=findings.loss(ways.EM),
        apart=("+" if apart.mean() > 0 else "") + LOSS.over_seeds(apart),
        kept=LOSS.number(findings.scores(ways.KEPT).mean()),
        right=right,
        wrong=wrong,
    )


def share_errors(findings, published):
    fused, alone = (
        LOSS.over_seeds([result.about["off"][whose] for result in findings.results]) for whose in ("fused", "alone")
    )
    beside = "" if published is None else " When the recipe was chosen: {:.2f} and {:.2f}.".format(*published)
    return STUDY["share_errors"].format(fused=fused, alone=alone) + beside


def table(findings):
    """Accuracy, log-loss and calibration error of every way, beside the published figures."""
    published = findings.published
    losses = any(loss is not None for _, loss in published.values())
    header = ["", "accuracy, %", "log-loss", "Δ to the bold, 95 % interval", "ECE"]
    header += ["when chosen", "Δ log-loss, %"] if losses else ["with the data", "Δ accuracy"] if published else []
    rows = []
    for way in findings.ways:
        accuracy, loss, error = (findings.scores(way, metric) for metric in ("accuracy", "nll", "ece"))
        difference = findings.differences.get(way)
        significant = difference is not None and difference["significant"]
        arrow = "" if not significant else " ↑" if difference["difference"] > 0 else " ↓"
        row = [way, PERCENT.over_seeds(accuracy), LOSS.over_seeds(loss) + arrow]
        row += [interval(difference), LOSS.number(error.mean())]
        if published:
            right, cost = published.get(way, (None, None))
            apart = APART.signed(loss.mean() / cost - 1) if cost else NOTHING
            if right and not losses:
                apart = PERCENT.signed(accuracy.mean() - right / 100)
            figures = [f"{value:.{digits}f}" for value, digits in ((right, 1), (cost, 3)) if value]
            row += [" / ".join(figures) or NOTHING, apart]
        rows.append(tuple(row))
    marked = (findings.ways.index(findings.reference),)
    return TextTable(findings.title, tuple(header), tuple(rows), marked)


def interval(difference):
    """How far the log-loss of a way is above that of the reference."""
    if difference is None or not math.isfinite(difference["difference"]):
        return NOTHING
    value, low, high = (FINE.signed(-difference[name]) for name in ("difference", "high", "low"))
    return f"{value} ({low} … {high})"


def curve(every):
    """The log-loss of some ways against n."""
    looks, sizes = looks_of(DRAWN), [float(findings.n) for findings in every]
    lines = []
    for way in DRAWN:
        losses = [findings.scores(way) for findings in every]
        spreads = [float(loss.std(ddof=1)) for loss in losses] if every[0].seeds > 1 else None
        lines.append(Line(way, looks[way], sizes, [float(loss.mean()) for loss in losses], spreads))
    figure = plot_lines(lines, "samples to learn from", "log-loss", limits=(0.0, None))
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_xticks(sizes, [f"{size:.0f}" for size in sizes])
    figure.axes[0].set_xticks([], minor=True)
    ends = "; ".join(f"{line.label} {LOSS.number(line.means[0])} to {LOSS.number(line.means[-1])}" for line in lines)
    return Drawing(
        "over-n",
        STUDY["curve"],
        f"Log-loss against n, from {sizes[0]:.0f} to {sizes[-1]:.0f}: {ends}",
        figure,
    )


def dots(findings):
    """The log-loss of every way and seed."""
    looks = looks_of(findings.ways, first=[findings.reference])
    rows = [Dots(way, looks[way], findings.scores(way).tolist(), findings.loss(way)) for way in findings.ways]
    means = "; ".join(f"{row.label} {LOSS.number(row.mean)}" for row in rows)
    return Drawing(
        f"losses-{findings.name}",
        f"{findings.title}: log-loss of every seed (dots) and the mean (bar). Less is better.",
        f"Log-loss by way: {means}",
        plot_dots(rows, "log-loss", logarithmic=True),
    )


def legend(findings):
    caution = too_few_seeds(findings.seeds, len(findings.ways) - 1)
    legend = STUDY["legend"].format(seeds=say_number(findings.seeds, "seed"))
    return f"{legend} {caution}" if caution else legend


def how_measured(data, every):
    tested = say_list(f"{len(findings.results[0].arrays['index'])} ({findings.name})" for findings in every)
    seconds = np.median([result.about["seconds"] for findings in every for result in findings.results])
    if data == "avmnist-predictions":
        experts = STUDY["saved_predictions"].format(runs=ways.RUNS, missing=ways.MISSING, broken=ways.BROKEN)
    else:
        experts = STUDY["trained_experts"].format(folds=ways.FOLDS, copies=ways.COPIES)
    return experts, STUDY["samples"].format(tested=tested, seconds=seconds)


if __name__ == "__main__":
    run_from_command_line(run, NAMES)
