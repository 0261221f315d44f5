"""Sections that a protocol can ask for by `kind`: pure functions of its finished comparisons.

Each takes the protocol and the comparisons by part, and its settings as keyword arguments. A function of the same form
in a Python file beside the protocol is asked for by `kind: FILE.py:FUNCTION`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.protocol import Protocol, SectionRequest
from consilience.comparison.results import Findings
from consilience.comparison.scripts import load_script
from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import check_settings, settings_of
from consilience.evaluation.robustness import Area, robust_auc
from consilience.report.document import Section, TextTable
from consilience.report.result_tables import cell_text
from consilience.report.seed_summary import over_seeds, summarise
from consilience.report.wording import NOTHING, Scale, say_level, say_metric, say_number

Comparisons = Mapping[str, Comparison]
Table = Mapping[str, Sequence[Any]]
_AREA_DECIMALS = 4  # two seeds may agree to more


class Addition(NamedTuple):
    """What a section adds to the page. verdicts: sentences that also belong to the answer."""

    sections: Sequence[Section] = ()
    verdicts: Sequence[str] = ()


def find_section(request: SectionRequest) -> Callable[..., Addition]:
    """Return the function of a requested section, with its settings checked.

    Raises:
        UnknownNameError: If there is no such kind or setting; the nearest is suggested.
        InputError: If a setting is missing or not allowed.
    """
    try:
        file, colon, name = request.kind.rpartition(".py:")
        if colon:
            functions = vars(load_script(request.folder / f"{file}.py"))
            functions = {key: value for key, value in functions.items() if inspect.isfunction(value)}
        else:
            functions, name = KINDS, request.kind
        if name not in functions:
            raise unknown_name("kind of section", name, functions, "Or give FILE.py:FUNCTION")
        declared = settings_of(functions[name])
        check_settings(request.kind, functions[name], request.settings)
        missing = [key for key in declared if _required(functions[name], key) and key not in request.settings]
        if missing:
            raise InputError(f"a section of kind {request.kind!r} needs {', '.join(missing)}")
    except InputError as error:
        raise type(error)(f"{request.where}: {error}") from None
    return functions[name]


def find_table(protocol: Protocol, name: str) -> Table:
    """Return one of the protocol's tables: row → figures.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in protocol.tables:
        raise unknown_name("table", name, protocol.tables, f"It was given in {protocol.path}")
    return protocol.tables[name]


def table(
    protocol: Protocol,
    comparisons: Comparisons,
    *,
    title: str,
    name: str,
    caption: str,
    columns: Sequence[str],
    words: Sequence[str] = (),
) -> Addition:
    """A table of the paper as it is printed: pairs are the mean and, in brackets, the worst seed."""
    rows = tuple((row, *map(_printed, figures)) for row, figures in find_table(protocol, name).items())
    return Addition([Section(f"paper-{name}", title, tuple(words), (TextTable(caption, tuple(columns), rows),))])


def beside(
    protocol: Protocol,
    comparisons: Comparisons,
    *,
    title: str,
    part: str,
    table: str,
    rows: Mapping[str, str],
    second: Literal["worst", "std"] = "worst",
    caption: str = "",
    words: Sequence[str] = (),
    symbol: str = "level",
) -> Addition:
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


def rank(
    protocol: Protocol,
    comparisons: Comparisons,
    *,
    title: str,
    method: str,
    parts: Sequence[str],
    best: int = 3,
    without: Sequence[str] = (),
    row: str = "",
    tables: Sequence[str] = (),
    says: str = "",
) -> Addition:
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
            place = [_rank(method, values, sign) for values in figures]
            shown = [
                text for values, at in zip(figures, place) for text in (block.scale.number(values[method]), str(at))
            ]
            lines.append((f"{name}, {condition.words}", *shown, str(len(cells))))
            places.append(place)
    words = f"Here `{method}` is among the best {best} by its mean under {_among(places, 0, best)} conditions and by "
    words += f"its worst seed under {_among(places, 1, best)}"
    printed = [find_table(protocol, name) for name in tables]
    theirs = [
        [_rank(row, {line: figures[column][which] for line, figures in rows.items()}) for which in (0, 1)]
        for rows in printed
        for column in range(len(rows[row]))
    ]
    words += (
        f"; in the paper's tables under {_among(theirs, 0, best)} and {_among(theirs, 1, best)}." if theirs else "."
    )
    header = ("condition", "mean", "rank", "worst seed", "rank", "of methods")
    metric = say_metric(findings.metric) + (f",{block.scale.unit}" if block.scale.unit else "") if lines else ""
    made = TextTable(f"{method} and its rank: {metric}", header, tuple(lines))
    return Addition([Section("rank", title, (*([says] if says else []), words), (made,))])


def spread(
    protocol: Protocol,
    comparisons: Comparisons,
    *,
    table: str = "",
    label: str = "the paper's",
    symbol: str = "level",
    verdict: bool = True,
) -> Addition:
    """The spread over seeds by part and level, and whether it grows with the level.

    table: of the paper, with pairs of mean and standard deviation · label: how the page calls it · verdict: whether
    the answer compares the growth with the paper's.
    """
    rows, levels = {}, []
    for name, comparison in comparisons.items():
        block = summarise(comparison.findings)[0]
        cells = [[row.cells[place] for row in block.rows] for place in range(len(block.conditions))]
        rows[name] = [
            block.scale.factor * _mean([cell.std for cell in column if cell and cell.std is not None])
            for column in cells
        ]
        levels = levels or [condition.level for condition in block.conditions]
    verdicts: list[str] = []
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
    unit = " in percentage points" if block.scale.unit else ""
    made = TextTable(f"Standard deviation over seeds{unit}, mean over methods", header, lines)
    return Addition([Section("spread", "Spread over seeds", tables=(made,))], verdicts)


def metrics(
    protocol: Protocol,
    comparisons: Comparisons,
    *,
    title: str,
    metrics: Sequence[str],
    published: Mapping[str, Any],
    words: Sequence[str] = (),
) -> Addition:
    """Several metrics of every method, clean. published: part → method → one figure for each metric."""
    tables = tuple(
        _metrics_table(protocol.parts[name].title, comparisons[name].findings, metrics, figures)
        for name, figures in published.items()
        if name in comparisons
    )
    return Addition([Section("metrics", title, tuple(words), tables)] if tables else [])


def areas(
    protocol: Protocol, comparisons: Comparisons, *, baseline: str, published: Mapping[str, Any] | None = None
) -> Addition:
    """Areas between the baseline's curve of the metric over the levels and each method's.

    published: part → method → the paper's area.
    """
    levels = [level for comparison in comparisons.values() for level in comparison.findings.levels]
    words = (
        f"ROBUSTAUC of a model is the area between `{baseline}`'s error–noise curve and its own, from level 0 to "
        f"{say_level(max(levels))} by the trapezoidal rule: larger is better, `{baseline}` has 0, and what is better "
        "on clean samples counts as well. The effective area leaves that out. Mean ± standard deviation over seeds, "
        "curves being paired by seed; a loop's gain is over its base.",
    )
    tables = tuple(
        _area_table(protocol.parts[name].title or name, comparison.findings, baseline, (published or {}).get(name))
        for name, comparison in comparisons.items()
    )
    return Addition([Section("areas", "Robustness: areas under the error–noise curves", words, tables)])


KINDS: dict[str, Callable[..., Addition]] = {
    function.__name__: function for function in (table, beside, rank, spread, metrics, areas)
}


def areas_by_seed(findings: Findings, baseline: str, kind: Area) -> dict[str, dict[int, float]]:
    """Method → seed → area against the baseline's curve of the same seed."""
    curves: dict[str, dict[int, tuple[list[float], list[float], bool]]] = {name: {} for name in findings.methods}
    for row in findings.values.filter(metric=findings.metric).sort("level").iter_rows(named=True):
        curve = curves[row["method"]].setdefault(row["seed"], ([], [], findings.larger_is_better))
        curve[0].append(row["level"])
        curve[1].append(row["value"])
    base = curves.get(baseline, {})
    return {
        method: {seed: robust_auc(curve, base[seed], kind) for seed, curve in seeds.items() if seed in base}
        for method, seeds in curves.items()
        if seeds.keys() & base.keys()
    }


def _area_table(title: str, findings: Findings, baseline: str, published: Mapping[str, float] | None) -> TextTable:
    """One part's methods: area, the paper's, the difference, gain over the base, and the effective area."""
    gain, effective = (areas_by_seed(findings, baseline, kind) for kind in ("gain", "effective"))
    stds = [float(np.std(list(seeds.values()), ddof=1)) for seeds in gain.values() if len(seeds) > 1]
    scale = Scale.of(findings.metric, stds)
    scale = replace(scale, decimals=min(scale.decimals, _AREA_DECIMALS))
    rows = []
    for method, seeds in gain.items():
        figure, base = (published or {}).get(method), gain.get(method.removeprefix("pro:"), {})
        mean = float(np.mean(list(seeds.values())))
        printed = [NOTHING, NOTHING] if figure is None else [scale.number(figure), scale.signed(mean - figure)]
        gains = [area - base[seed] for seed, area in seeds.items() if seed in base]
        ahead = NOTHING
        if method.startswith("pro:") and gains:
            better = sum(each > 0 for each in gains)
            ahead = f"{scale.signed(float(np.mean(gains)))}, in {better} of {say_number(len(gains), 'seed')}"
        shown = [_over_seeds(scale, areas[method]) for areas in (gain, effective)]
        rows.append((method, shown[0], *(printed if published else ()), ahead, shown[1]))
    beside = ("published", "difference") if published else ()
    header = ("method", "ROBUSTAUC", *beside, "gain over its base", "effective area")
    marked = tuple(place for place, row in enumerate(rows) if row[0] == baseline)
    return TextTable(title, header, tuple(rows), marked)


def _metrics_table(
    title: str, findings: Findings, metrics: Sequence[str], published: Mapping[str, Sequence[float]]
) -> TextTable:
    """Methods × metrics, each with the published figures beside it."""
    columns, header = [], ["method"]
    for place, metric in enumerate(metrics):
        measured = over_seeds(findings, metric).filter(level=0.0)
        scale = Scale.of(metric, measured["std"].to_list())
        ours = {row["method"]: scale.pair(row["mean"], row["std"]) for row in measured.iter_rows(named=True)}
        figures = {method: values[place] for method, values in published.items()}
        header += [f"{say_metric(metric)}{',' * bool(scale.unit)}{scale.unit}", "published"]
        columns.append([ours.get(method, NOTHING) for method in findings.methods])
        columns.append([scale.number(figures.get(method)) for method in findings.methods])
    return TextTable(title, tuple(header), tuple(zip(findings.methods, *columns)))


def _printed(figure: Any) -> str:
    return f"{figure[0]:.2f} ({figure[1]:.2f})" if isinstance(figure, list) else f"{figure:.3f}"


def _rank(name: str, scores: Mapping[str, float], sign: int = 1) -> int:
    """1 + how many are better."""
    return 1 + sum(sign * score > sign * scores[name] for score in scores.values())


def _among(places: Sequence[Sequence[int]], which: int, best: int) -> str:
    return f"{sum(place[which] <= best for place in places)} of {len(places)}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _over_seeds(scale: Scale, seeds: Mapping[int, float]) -> str:
    values = list(seeds.values())
    return scale.pair(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def _required(function: Callable[..., Any], name: str) -> bool:
    return inspect.signature(function).parameters[name].default is inspect.Parameter.empty
