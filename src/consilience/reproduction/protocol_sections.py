"""Sections that a protocol can ask for by `kind`: pure functions of its finished comparisons.

Each takes the protocol and the comparisons by part, and its settings as keyword arguments. A function of the same form
in a Python file beside the protocol is asked for by `kind: FILE.py:FUNCTION`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.plan import registered_name
from consilience.comparison.results import Findings
from consilience.comparison.summary import over_seeds
from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import check_settings, check_value, settings_of
from consilience.evaluation import find_metric
from consilience.evaluation.robustness import Area, robust_auc
from consilience.methods import find
from consilience.report.document import Section, TextTable
from consilience.report.wording import NOTHING, Scale, say_level, say_metric, say_number
from consilience.reproduction.protocol import Protocol, SectionRequest
from consilience.reproduction.study import load_script
from consilience.reproduction.yaml_lines import naming

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
    with naming(request.where):
        file, colon, name = request.kind.rpartition(".py:")
        if colon:
            functions = vars(load_script(request.folder / f"{file}.py"))
            functions = {key: value for key, value in functions.items() if inspect.isfunction(value)}
        else:
            functions, name = KINDS, request.kind
        if name not in functions:
            raise unknown_name("kind of section", name, functions, "Or give FILE.py:FUNCTION")
        check_settings(request.kind, functions[name], request.settings)
        declared = settings_of(functions[name]).values()
        required = [setting.name for setting in declared if setting.default is inspect.Parameter.empty]
        missing = [key for key in required if key not in request.settings]
        if missing:
            raise InputError(f"a section of kind {request.kind!r} needs {', '.join(missing)}")
        if not colon:
            _check_names(**request.settings)
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


def metrics(
    protocol: Protocol,
    comparisons: Comparisons,
    *,
    title: str,
    metrics: Sequence[str],
    published: Mapping[str, Any],
    words: Sequence[str] = (),
) -> Addition:
    """Several metrics of every method on clean data.

    published: part → method → one figure for each metric.
    """
    tables = tuple(
        _metrics_table(protocol.parts[name].title or name, comparisons[name].findings, metrics, figures)
        for name, figures in published.items()
        if name in comparisons
    )
    return Addition([Section("metrics", title, tuple(words), tables)] if tables else [])


def areas(
    protocol: Protocol,
    comparisons: Comparisons,
    *,
    baseline: str,
    corruption: str = "",
    published: Mapping[str, Any] | None = None,
) -> Addition:
    """Areas between the baseline's curve of the metric over the levels and each method's.

    corruption: by default the first of each part · published: part → method → the paper's area.
    """
    tables, levels = [], []
    compared = [method for comparison in comparisons.values() for method in comparison.findings.methods]
    if baseline not in compared:
        raise unknown_name("baseline", baseline, compared)
    for name, comparison in comparisons.items():
        findings, title = comparison.findings, protocol.parts[name].title or name
        levels += findings.levels
        for data in findings.sets:
            values = findings.values.filter(set=data, corruption=corruption or findings.corruptions[0])
            caption = title if len(findings.sets) == 1 else f"{title}, {data}"
            figures = (published or {}).get(name)
            tables.append(_area_table(caption, replace(findings, values=values), baseline, figures))
    words = (
        f"ROBUSTAUC of a model is the area between `{baseline}`'s error–noise curve and its own, from level 0 to "
        f"{say_level(max(levels))} by the trapezoidal rule: larger is better, `{baseline}` has 0, and what is better "
        "on clean samples counts as well. The effective area leaves that out. Mean ± standard deviation over seeds, "
        "curves being paired by seed; a loop's gain is over its base.",
    )
    return Addition([Section("areas", "Robustness: areas under the error–noise curves", words, tuple(tables))])


KINDS: dict[str, Callable[..., Addition]] = {function.__name__: function for function in (table, metrics, areas)}


def areas_by_seed(findings: Findings, baseline: str, kind: Area) -> dict[str, dict[int, float]]:
    """Method → seed → area against the baseline's curve of the same seed, on one set and under one corruption."""
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
            better = sum(difference > 0 for difference in gains)
            ahead = f"{scale.signed(float(np.mean(gains)))}, in {better} of {say_number(len(gains), 'seed')}"
        shown = [scale.over_seeds(list(areas[method].values())) for areas in (gain, effective)]
        rows.append((method, shown[0], *(printed if published else ()), ahead, shown[1]))
    beside = ("published", "difference") if published else ()
    header = ("method", "ROBUSTAUC", *beside, "gain over its base", "effective area")
    marked = tuple(place for place, row in enumerate(rows) if row[0] == baseline)
    return TextTable(title, header, tuple(rows), marked)


def _check_names(
    *, baseline: str = "", metrics: Sequence[str] = (), published: Mapping[str, Any] | None = None, **_: Any
) -> None:
    """Raise an error for an unknown method or metric, or for figures that are not one for each metric."""
    if baseline:
        find(registered_name(baseline))
    for metric in metrics:
        find_metric(metric)
    for part, methods in (published or {}).items():
        check_value(f"published.{part}", methods, Mapping[str, Any])
        for method, figures in methods.items():
            check_value(f"published.{part}.{method}", figures, list[float] if metrics else float)
            if metrics and len(figures) != len(metrics):
                raise InputError(
                    f"published.{part}.{method} must have one figure for each of {', '.join(metrics)}, got {figures}"
                )


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
