"""Sections of the pages on Zhang et al. 2023.

Ranks and the paper's figures under noise (tables 1, 5 and 6), weights against losses (tables 2 and 3, figure 3), and
the gain over the best single modality (figure 1).
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from consilience.comparison.significance import compare_to_reference, holm
from consilience.comparison.summary import summarise
from consilience.evaluation.trust import signed
from consilience.report.document import Section, TextTable
from consilience.report.drawing import INK, Drawing, Look, drawing_style, looks_of
from consilience.report.figures import draw_gap
from consilience.report.plots import LABEL_WIDTH
from consilience.report.result_tables import cell_text
from consilience.report.wording import NOTHING, Scale, say_level, say_list, say_metric, shorten
from consilience.reproduction.claims import say_claim, say_verdict
from consilience.reproduction.protocol_sections import Addition, find_table

# Cohen's small correlation, and about his small difference between two: less is no finding, however significant it is.
SMALLEST = 0.1
CHARACTER, LINE = 0.064, 0.2  # inches, of the names' font and between them


def beside(protocol, comparisons, *, title, part, table, rows, second="worst", caption="", words=(), symbol="level"):
    """A part's methods at every level beside the paper's figures, for reading where they cannot be compared.

    rows: row of the paper's table → method · second: the paper's second figure.
    """
    if part not in comparisons:
        return Addition()
    block = summarise(comparisons[part].findings)[0]
    header = ["method"]
    for condition in block.conditions:
        header += [f"{symbol} = {say_level(condition.level)}", "paper"]
    lines = []
    for row, method in rows.items():
        cells = [method]
        for condition, (mean, other) in zip(block.conditions, find_table(protocol, table)[row]):
            printed = f"{mean:.2f} ({other:.2f})" if second == "worst" else f"{mean:.2f} ± {other:.2f}"
            cells += [cell_text(block, block.at(method, condition), second == "worst"), printed]
        lines.append(tuple(cells))
    made = TextTable(caption or part, tuple(header), tuple(lines))
    return Addition([Section(f"beside-{part}", title, tuple(words), (made,))])


def rank(protocol, comparisons, *, title, method, parts, best=3, without=(), row="", tables=(), says=""):
    """In how many conditions a method is among the best, by its mean and by its worst seed.

    without: methods that are not counted · row, tables: the same of a row of the paper's tables.
    """
    lines, places = [], []
    for name in (name for name in parts if name in comparisons):
        findings = comparisons[name].findings
        block, sign = summarise(findings)[0], 1 if findings.larger_is_better else -1
        for condition in block.conditions:
            rows = {line.method: block.at(line.method, condition) for line in block.rows if line.method not in without}
            cells = {name: cell for name, cell in rows.items() if cell is not None}
            if method not in cells:
                continue
            figures = [{name: getattr(cell, of) for name, cell in cells.items()} for of in ("mean", "worst")]
            place = [rank_of(method, values, sign) for values in figures]
            scale = Scale.of_block(block)
            shown = [text for values, at in zip(figures, place) for text in (scale.number(values[method]), str(at))]
            lines.append((f"{name}, {condition.words}", *shown, str(len(cells))))
            places.append(place)
    words = f"Here `{method}` is among the best {best} by its mean under {_among(places, 0, best)} conditions and by "
    words += f"its worst seed under {_among(places, 1, best)}"
    printed = [find_table(protocol, name) for name in tables]
    theirs = [
        [rank_of(row, {line: figures[column][which] for line, figures in rows.items()}) for which in (0, 1)]
        for rows in printed
        for column in range(len(rows[row]))
    ]
    words += (
        f"; in the paper's tables under {_among(theirs, 0, best)} and {_among(theirs, 1, best)}." if theirs else "."
    )
    header = ("condition", "mean", "rank", "worst seed", "rank", "of methods")
    metric = say_metric(findings.metric) + (f",{scale.unit}" if scale.unit else "") if lines else ""
    made = TextTable(f"{method} and its rank: {metric}", header, tuple(lines))
    return Addition([Section("rank", title, (*([says] if says else []), words), (made,))])


def spread(protocol, comparisons, *, table="", label="the paper's", symbol="level", verdict=True):
    """The spread over seeds by part and level, and whether it grows with the level.

    table: of the paper, with pairs of mean and standard deviation · label: how the page calls it · verdict: whether
    the answer compares the growth with the paper's.
    """
    rows, levels, verdicts = {}, [], []
    for name, comparison in comparisons.items():
        block = summarise(comparison.findings)[0]
        cells = [[row.cells[place] for row in block.rows] for place in range(len(block.conditions))]
        rows[name] = [
            Scale.of_block(block).factor * _mean([cell.std for cell in column if cell and cell.std is not None])
            for column in cells
        ]
        levels = levels or [condition.level for condition in block.conditions]
    if table:
        figures = find_table(protocol, table).values()
        theirs = [_mean([pairs[place][1] for pairs in figures]) for place in range(len(next(iter(figures))))]
        grown = [
            f"on {name} it {'does' if points[-1] > points[0] else 'does not'} ({points[0]:.2f} to {points[-1]:.2f})"
            for name, points in rows.items()
        ]
        verdicts = [
            f"The spread over seeds grows with the noise, the mean over methods of {label} from {theirs[0]:.2f} to "
            f"{theirs[-1]:.2f} percentage points: {'; '.join(grown)}."
        ][: int(verdict)]
        rows[label] = theirs
    header = ("set", *(f"{symbol} = {say_level(level)}" for level in levels))
    lines = tuple((name, *(f"{points:.2f}" for points in values)) for name, values in rows.items())
    unit = " in percentage points" if Scale.of_block(block).unit else ""
    made = TextTable(f"Standard deviation over seeds{unit}, mean over methods", header, lines)
    return Addition([Section("spread", "Spread over seeds", tables=(made,))], verdicts)


def correlations(protocol, comparisons, *, title, words, noise, method, rivals, table="", caption=""):
    """r of weights and losses by method and level, and whether the method's is lower than each rival's.

    rivals: method → the claim in words, after "On PART" · table: of the paper, with |r|.
    """
    tables = []
    for name, comparison in comparisons.items():
        levels = sorted(comparison.findings.levels)
        by_level = [correlations_at(comparison, level) for level in levels]
        with_weights = [each for each in comparison.findings.methods if each in by_level[0]]
        rows = tuple((each, *(say_r(values.get(each)) for values in by_level)) for each in with_weights)
        header = ("method", *(f"ε = {say_level(level)}" for level in levels))
        marked = tuple(place for place, each in enumerate(with_weights) if each == method)
        tables.append(TextTable(f"{name}: r of weights and losses", header, rows, marked))
    if table:
        rows = tuple((row, *(f"{r:.3f}" for r in values)) for row, values in find_table(protocol, table).items())
        tables.append(TextTable(caption, header, rows, (len(rows) - 1,)))
    checks = [
        lower_correlation(f"On {name} {says}", comparison, noise, method, rival)
        for name, comparison in comparisons.items()
        for rival, says in rivals.items()
    ]
    return Addition([Section("correlations", title, tuple(words), tuple(tables))], verdicts_on(checks))


def accuracy_against_correlation(protocol, comparisons, *, title, words, noise):
    """Accuracy against r under much noise: a figure and a table for each set, and whether one follows the other."""
    tables, drawings, checks = [], [], []
    for name, comparison in comparisons.items():
        by_method, accuracy = correlations_at(comparison, noise), accuracies_at(comparison, noise)
        looks = looks_of(list(by_method), ["qmf"])
        clouds = [
            Cloud(method, looks[method], list(seeds.values()), [100 * accuracy[method][seed] for seed in seeds])
            for method, seeds in by_method.items()
        ]
        where = f"on {name} under {comparison.findings.corruptions[0]} of ε = {say_level(noise)}"
        means = "; ".join(f"{cloud.label} r {signed(cloud.centre[0])}, {cloud.centre[1]:.1f} %" for cloud in clouds)
        drawings.append(
            Drawing(
                f"clouds-{name}",
                f"Accuracy against Pearson's r of weights and losses, {where}: every seed a dot, the mean a mark. "
                "Left of the line weights fall when a modality is wrong; by the paper, the more they do, the better.",
                f"Scatter plot of accuracy against r, {where}. Means: {means}.",
                plot_clouds(clouds, "r of weights and losses", "accuracy, %", zero="Theorem 2's limit"),
            )
        )
        scale = Scale.of_block(summarise(comparison.findings)[0])
        rows = tuple(
            (
                method,
                say_r(by_method[method]),
                scale.number(float(np.mean([*accuracy[method].values()]))),
                scale.number(min(accuracy[method].values())),
            )
            for method in comparison.findings.methods
            if method in by_method
        )
        header = ("weights by", "r", "accuracy, %", "worst seed")
        tables.append(TextTable(f"{name} at ε = {say_level(noise)}", header, rows, (len(rows) - 1,)))
        says = f"On {name} at ε = {say_level(noise)}, methods whose weights fall more with the losses are more accurate"
        checks.append(accuracy_follows(says, comparison, noise))
    section = Section("clouds", title, tuple(words), tuple(tables), tuple(drawings))
    return Addition([section], verdicts_on(checks))


def gap(protocol, comparisons, *, tables, single, proposed, watched, columns):
    """The gain over the best single modality as noise grows, and what the paper's own table says of it.

    tables: of the paper · single: their rows of one modality · proposed: the row of its own method · watched: the row
    of which its figure speaks · columns: levels.
    """
    drawings = tuple(drawing for each in comparisons.values() for drawing in draw_gap(each.findings).drawings)
    gaps = gaps_in_paper({name: find_table(protocol, name) for name in tables}, single)
    others = {key: values[-1] for key, values in gaps.items() if key[1] != proposed}
    below = [f"{row} on {name}" for (name, row), last in others.items() if last < 0]
    points = Scale(1.0, 2)
    header = ("set, method", *(f"ε = {say_level(level)}" for level in columns))
    rows = tuple((f"{name}, {row}", *map(points.signed, values)) for (name, row), values in gaps.items())
    table = TextTable("The paper's table 1: gain over its best single modality, percentage points", header, rows)
    losses = [
        f"on {name} at ε = {say_level(level)} ({points.signed(value)} points)"
        for (name, row), values in gaps.items()
        for level, value in zip(columns, values)
        if row == watched and value < 0
    ]
    words = (
        "The paper: existing fusion methods “degrade significantly compared with their best unimodal counterparts in a "
        "high noise regime, while the proposed QMF consistently outperforms unimodal methods”. Its own table 1 does "
        f"not support that: at ε = {say_level(columns[-1])}, {len(below)} of {len(others)} other fusions lie below the "
        f"best single modality ({say_list(below)}). {watched}, of which figure 1 says it, lies below only "
        f"{say_list(losses)}."
    )
    return Addition(
        [
            Section("gap", "Figure 1: gain over the best single modality", figures=drawings),
            Section("paper-gap", "What the paper's table 1 says of its figure 1", (words,), (table,)),
        ]
    )


def gaps_in_paper(tables, single):
    """(set, row) → its mean accuracy less the best single modality's in each column, in points."""
    gaps = {}
    for name, rows in tables.items():
        best = [
            max(rows[row][column][0] for row in single if row in rows) for column in range(len(rows[next(iter(rows))]))
        ]
        for row, pairs in rows.items():
            if row not in single:
                gaps[name, row] = [pair[0] - highest for pair, highest in zip(pairs, best)]
    return gaps


def correlations_at(comparison, level):
    """Method → seed → r, the mean over modalities, under the one corruption of a comparison.

    Methods without weights, or with static ones, are not among them.
    """
    import polars as pl

    findings = comparison.findings
    rows = findings.diagnostics.filter(corruption=findings.corruptions[0], level=float(level)).drop_nulls("r")
    table = rows.group_by("method", "seed").agg(pl.col("r").mean()).sort("seed")
    return {
        method: dict(table.filter(method=method).select("seed", "r").iter_rows())
        for method in findings.methods
        if method in set(table["method"])
    }


def accuracies_at(comparison, level):
    """Method → seed → accuracy, under the one corruption of a comparison."""
    findings = comparison.findings
    table = findings.values.filter(metric=findings.metric, corruption=findings.corruptions[0], level=float(level))
    return {
        method: dict(table.filter(method=method).select("seed", "value").iter_rows()) for method in findings.methods
    }


def say_r(seeds):
    """Mean ± standard deviation over seeds.

    >>> say_r({0: -0.5, 1: -0.7})
    '−0.60 ± 0.14'
    """
    if not seeds:
        return NOTHING
    values = np.array(list(seeds.values()))
    return signed(float(values.mean())) + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


@dataclass(frozen=True)
class Check:
    """A claim put to the test. says: without a full stop · figures: the results in words · row: its statistics."""

    says: str
    figures: str
    row: dict
    seeds: int


def lower_correlation(says, comparison, level, method, than):
    """Whether the weights of a method fall more with the losses than another's: whether its r is lower."""
    by_method = correlations_at(comparison, level)
    pair = {name: by_method.get(name, {}) for name in (than, method)}
    scores = {name: {seed: np.array([-r]) for seed, r in seeds.items()} for name, seeds in pair.items()}
    [row] = compare_to_reference(scores, than)
    figures = f"r = {say_r(pair[method])} against {say_r(pair[than])}"
    if len(pair[method].keys() & pair[than].keys()) > 1:
        # Pairs of seeds may differ by far less than seeds do, and then two means look alike.
        scale = Scale(decimals=3)
        apart, low, high = (scale.number(0.0 - row[key]) for key in ("difference", "high", "low"))
        figures += f", apart by {apart} ({low} … {high})"
    return Check(says, figures, row, len(comparison.findings.seeds))


def accuracy_follows(says, comparison, level):
    """Whether methods whose weights fall more with the losses are more accurate: Spearman's ρ of both, by seed."""
    from scipy.stats import spearmanr

    by_method, accuracy = correlations_at(comparison, level), accuracies_at(comparison, level)
    rank = {}
    for seed in comparison.findings.seeds:
        pairs = [(-by_method[name][seed], accuracy[name][seed]) for name in by_method if seed in by_method[name]]
        if len({x for x, _ in pairs}) > 1 and len({y for _, y in pairs}) > 1:
            rank[seed] = float(spearmanr(pairs).statistic)
    scores = {
        "none": {seed: np.zeros(1) for seed in rank},
        "ranks": {seed: np.array([value]) for seed, value in rank.items()},
    }
    [row] = compare_to_reference(scores, "none")
    return Check(says, f"Spearman's ρ = {say_r(rank)} over {len(by_method)} methods", row, len(rank))


def verdicts_on(checks):
    """A sentence for each, found from the smallest effect on; p-values are corrected by Holm over all of them."""
    sentences = []
    for check, p in zip(checks, holm(np.array([check.row["p"] for check in checks])).tolist()):
        row = check.row
        interval = row["low"], row["high"]
        verdict = say_verdict(row["difference"], p, check.seeds, len(checks), smallest=SMALLEST, interval=interval)
        sentences.append(say_claim(check.says, check.figures, verdict, p, check.seeds, f"{SMALLEST:g}"))
    return sentences


def rank_of(name, scores, sign=1):
    """1 + how many are better.

    >>> rank_of("b", {"a": 0.9, "b": 0.8, "c": 0.8})
    2
    """
    return 1 + sum(sign * score > sign * scores[name] for score in scores.values())


def _among(places, which, best):
    return f"{sum(place[which] <= best for place in places)} of {len(places)}"


def _mean(values):
    return sum(values) / len(values) if values else float("nan")


@dataclass(frozen=True)
class Cloud:
    """One method's measurements, one pair a seed."""

    label: str
    look: Look
    x: list
    y: list

    @property
    def centre(self):
        """The means over seeds."""
        return sum(self.x) / len(self.x), sum(self.y) / len(self.y)


def plot_clouds(clouds, x_label, y_label, *, zero=""):
    """Seeds as faint dots, means as marks, names at the right. zero: what the line x = 0 stands for, if it is drawn."""
    labels = [shorten(cloud.label, LABEL_WIDTH) for cloud in clouds]
    right = 0.45 + CHARACTER * max([8, *map(len, labels)])
    width, height = 4.9, 3.0
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        axes = figure.add_axes((0.6 / width, 0.46 / height, 1 - (0.6 + right) / width, 1 - 0.74 / height))
        axes.patch.set_visible(False)
        for place, (cloud, label) in enumerate(zip(clouds, labels)):
            look = cloud.look
            axes.plot(cloud.x, cloud.y, look.marker, color=look.colour, alpha=0.3, markersize=3, mew=0, zorder=2)
            axes.plot(*cloud.centre, look.marker, color=look.colour, markersize=7.5, mew=0, zorder=3)
            x, y = 1 - (right - 0.2) / width, 1 - (0.4 + LINE * place) / height
            figure.add_artist(
                Line2D([x], [y], color=look.colour, marker=look.marker, markersize=5, mew=0, linestyle="")
            )
            figure.text(x + 0.12 / width, y, label, color=look.colour, va="center", fontsize=8)
        axes.margins(0.06)
        if zero:
            axes.axvline(0, color=INK, linewidth=0.8, alpha=0.7, zorder=1.5)
            side = "right" if sum(axes.get_xlim()) < 0 else "left"  # the words go where there is room for them
            frame = axes.get_xaxis_transform()
            axes.text(0, 1.0, f" {zero} ", transform=frame, ha=side, va="top", fontsize=7, alpha=0.75)
        axes.grid()
        axes.set_xlabel(x_label)
        figure.text(0.08 / width, 1 - 0.1 / height, y_label, va="center")
    return figure
