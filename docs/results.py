"""Writes docs/results.md from the result files in docs/results: python docs/results.py.

A result file is made from a run folder by `python docs/results.py keep NAME FOLDER`, NAME being what
`consilience reproduce` calls it. No number on the page is typed by hand; a test fails where page and files disagree.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl

from consilience.comparison.comparison import reopen
from consilience.comparison.experiments import find_experiment
from consilience.report.findings import SCHEMAS, Findings, empty_table
from consilience.report.tables import main_table

PAGE = Path(__file__).with_name("results.md")
FILES = PAGE.parent / "results"
TABLES = ("values", "differences", "diagnostics")
PLAIN = ("task", "metric", "larger_is_better", "reference", "methods", "corruptions", "levels", "seeds", "versions")
README = PAGE.parent.parent / "README.md"
SHOWN = "qmf-handwritten-unbounded"  # the experiment whose table the README shows
HEAD = """# Results

What `consilience reproduce NAME` gave at full size, from the files in [results](results), by `docs/results.py`.
"""


def keep(name: str, folder: Path) -> None:
    """Put what a run folder found into a result file: the main metric seed by seed, differences, and trust."""
    findings = reopen(folder).findings
    content = {key: getattr(findings, key) for key in PLAIN}
    content["best"] = [[*key, method] for key, method in findings.best.items()]
    content["sets"] = list(findings.sets)
    for table in TABLES:
        frame = getattr(findings, table)
        if table == "values":
            frame = frame.filter(pl.col("metric") == findings.metric)
        if table == "diagnostics":
            ends = pl.col("level").is_in([0.0, max(findings.levels)])
            frame = frame.filter(ends).select("method", "level", "modality", "seed", "r")
        rounded = frame.with_columns(pl.col(pl.Float64).round(5))
        content[table] = {column: rounded[column].to_list() for column in rounded.columns}
    FILES.mkdir(exist_ok=True)
    (FILES / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def findings_of(name: str) -> Findings:
    """A result file as the findings of a comparison, as far as it has them."""
    content = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))
    tables = {table: empty_table(table) for table in SCHEMAS}
    for table in ("values", "differences"):
        tables[table] = pl.DataFrame(content[table], schema=empty_table(table).schema)
    plain = {key: content[key] for key in PLAIN}
    return Findings(
        title=name,
        command=f"consilience reproduce {name}",
        sets={one: {} for one in content["sets"]},
        best={(one, corruption, level): method for one, corruption, level, method in content["best"]},
        **plain,
        **tables,
    )


def trust_lines(name: str) -> list[str]:
    """For each method with weights: mean r(weight, own loss) over modalities and seeds, clean and at the last level."""
    content = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))
    frame = pl.DataFrame(content["diagnostics"], infer_schema_length=None).filter(pl.col("r").is_not_null())
    if frame.is_empty():
        return []
    levels = sorted({0.0, max(content["levels"])})
    rows = [f"| method | {' | '.join(f'r at level {level:g}' for level in levels)} |", "|---|" + "---:|" * len(levels)]
    for method in content["methods"]:
        cells = [frame.filter((pl.col("method") == method) & (pl.col("level") == level))["r"] for level in levels]
        if all(len(one) for one in cells):
            told = [f"{one.mean():+.2f} ({(one > 0).mean():.0%} above 0)" for one in cells]
            rows.append(f"| {method} | {' | '.join(told)} |")
    if len(rows) == 2:
        return []
    said = "Correlation r of a modality's weight with its own expert's loss, mean over modalities and seeds"
    return [f"{said}; theorem 2 of Zhang et al. 2023 asks for r ≤ 0.", "", *rows, ""]


def section(name: str) -> str:
    """One experiment: its title, its table, what was published, what is known of differences."""
    experiment = find_experiment(name)
    findings = findings_of(name)
    lines = [f"## `{name}`", "", f"{experiment.title}.".replace("?.", "?"), ""]
    if experiment.paper:
        lines += [f"Paper: {experiment.paper}.", ""]
    lines += [str(main_table(findings, "markdown", worst=True)).strip(), ""]
    told = getattr(experiment, "published", {})
    if told:
        lines += ["| method | level | published | ours | difference |", "|---|---:|---:|---:|---:|"]
        for (method, _, level), figure in told.items():
            at = (pl.col("method") == method) & (pl.col("level") == level)
            ours = float(findings.values.filter(at)["value"].to_numpy().mean())
            lines.append(f"| {method} | {level:g} | {figure:.2%} | {ours:.2%} | {100 * (ours - figure):+.2f} |")
        lines.append("")
    lines += trust_lines(name)
    lines += [f"- {note}" for note in experiment.notes]
    versions = ", ".join(f"{one} {findings.versions[one]}" for one in ("consilience", "python", "torch"))
    lines += ["", f"{len(findings.seeds)} seeds; {versions}.", ""]
    return "\n".join(lines)


def shown() -> str:
    """The README's table."""
    return f"<!-- result: {SHOWN} -->\n{str(main_table(findings_of(SHOWN), 'markdown')).strip()}\n<!-- end -->"


def page() -> str:
    """The whole page."""
    names = sorted(path.stem for path in FILES.glob("*.json"))
    return HEAD + "\n" + "\n".join(section(name) for name in names)


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(sys.argv[2], Path(sys.argv[3]))
    PAGE.write_text(page(), encoding="utf-8")
    before, _, rest = README.read_text(encoding="utf-8").partition(f"<!-- result: {SHOWN} -->")
    README.write_text(before + shown() + rest.partition("<!-- end -->")[2], encoding="utf-8")
