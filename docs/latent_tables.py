"""Writes the measured tables of docs/latent.md from docs/latent.json: python docs/latent_tables.py.

The file is filled by runs, and no number in those tables is typed by hand; a test fails where page and file disagree.

    python benchmarks/bench_vae.py --keep docs/latent.json           # cost and noise
    python benchmarks/bench_likelihood.py --keep docs/latent.json    # likelihoods against a loop over points
    python benchmarks/bench_latent_posteriors.py --keep docs/latent.json  # learned posteriors and imputations
    python docs/latent_tables.py keep runs/m2vae-digits              # after consilience reproduce m2vae-digits
    python docs/latent_tables.py keep runs/m2vae-mnist 3             # the same on MNIST, of the first three seeds
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.report.wording import Scale
from consilience.reproduction.study import load_script

PAGE = Path(__file__).with_name("latent.md")
FILE = PAGE.with_suffix(".json")
m2vae = load_script(PAGE.parents[1] / "papers" / "m2vae.py")
MEASURES, ARROWS = m2vae.MORE_IS_BETTER, m2vae.ARROWS
CUTS = {"digits": 2, "halves": 1, "quadrants": 2}  # of how many parts given the page speaks
NUMBERS = (2, 3, 5)
WAYS = ("tight, chain", "paper, chain", "tight, all", "paper, all")
MANY = "tight, chain, set encoder"


def keep(folder: Path, seeds: int | None = None) -> None:
    """Put what a run on pictures in parts found, from half of the parts, into the file. seeds: the first so many."""
    every, asked = m2vae.read_findings(folder, seeds)
    content = json.loads(FILE.read_text(encoding="utf-8"))
    for findings in every:
        place = findings.sizes.index(CUTS[findings.name])
        significant = {measure: findings.significant(measure) for measure in MEASURES}
        variants: dict[str, Any] = {}
        for name in findings.variants:
            variants[name] = {
                measure: findings.summary(name, measure)[:, place].round(4).tolist() for measure in MEASURES
            }
            for key in ("effective_samples", "few_draws", "epochs"):
                variants[name][key] = findings.about(name, key).round(4).tolist()
            variants[name]["sure"] = {measure: significant[measure].get((name, place), 0) for measure in MEASURES}
        count = len(findings.results[findings.reference])
        content[findings.name] = {"seeds": count, "draws": asked["draws"], "variants": variants}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def tables() -> dict[str, str]:
    """The tables of the page by name."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    made: dict[str, Any] = {"cost": cost, "noise": noise, "likelihoods": likelihoods, "posteriors": posteriors}
    made |= dict.fromkeys(CUTS, parts)
    return {name: made[name](found) for name, found in content.items()} | {"evidence": evidence(content["posteriors"])}


def cost(found: dict[str, dict[str, float]]) -> str:
    """CPU-seconds by way and number of modalities."""
    rows = [(way, *(f"{found[way][str(n)]:.2f}" for n in NUMBERS)) for way in WAYS]
    table = markdown(("", *(f"N = {n}" for n in NUMBERS), "N = 10"), [(*row, "") for row in rows])
    return table + f"\n| {MANY} | | | | {found[MANY]['10']:.2f} |"


def noise(found: dict[str, dict[str, float]]) -> str:
    """Relative variance of the gradient by bound and by what a permutation is drawn for."""
    rows = [
        (f"{bound}, a permutation a {chains}", *(f"{found[f'{bound}, {chains}'][str(n)]:.3f}" for n in NUMBERS))
        for bound in ("tight", "paper")
        for chains in ("sample", "batch")
    ]
    return markdown(("", *(f"N = {n}" for n in NUMBERS)), rows)


def likelihoods(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Seconds for all points together and one by one, by size of the decoders and number of threads."""
    header, rows = ["a modality"], [[name] for name in found]
    for threads in next(iter(found.values())):
        with_threads = "one thread" if threads == "1" else f"{threads} threads"
        header += [f"{with_threads}: together, s", "point by point, s", "times as fast"]
        for row, one in zip(rows, found.values()):
            together, apart = one[threads]["together"], one[threads]["one by one"]
            row += [f"{together:.1f}", f"{apart:.1f}", f"{apart / together:.1f}"]
    return markdown(header, rows)


def posteriors(kept: dict[str, Any]) -> str:
    """Errors and log-likelihoods of the model and of what it generates, means and deviations over seeds."""
    columns = {"at mean": 2, "averaged": 2, "model": 1, "generated": 1}
    rows = []
    for name, found in kept["found"].items():
        cells = [
            Scale(1.0, places).pair(np.mean(found[key]), np.std(found[key], ddof=1)) if key in found else ""
            for key, places in columns.items()
        ]
        rows.append((name, *cells))
    header = ("", "error at the mean", "error averaged", "log p(rest), model", "log p(rest), generated")
    return markdown(header, rows)


def evidence(kept: dict[str, Any]) -> str:
    """Mean log-likelihood of the last quadrant by how many of the others are given."""
    rows = [
        (f"{name}, {which}", *(f"{np.mean(found[f'{which}, {count} given']):.2f}" for count in range(4)))
        for name, found in kept["found"].items()
        if "model" in found
        for which in ("model", "generated")
    ]
    return markdown(("", "none given", "one", "two", "three"), rows)


def parts(found: dict[str, Any]) -> str:
    """The objectives on pictures in parts, half of the parts given; arrows mark what surely differs from m2vae."""
    decimals = {"error": 3 if _mean(found, "error") < 1 else 2, "conditional": 1, "coherent": 1}
    rows = []
    for name, one in found["variants"].items():
        cells = []
        for measure, places in decimals.items():
            values = np.array(one[measure])
            cells.append(Scale(1.0, places).pair(values.mean(), values.std(ddof=1)) + ARROWS[one["sure"][measure]])
        rows.append(
            (name, *cells, f"{np.mean(one['effective_samples']):.0f}", f"{100 * np.mean(one['few_draws']):.0f}")
        )
    draws = f"effective draws of {found['draws']}"
    header = ("", "error, pixels", "log p(the rest), nats", "coherence, %", draws, "under 10 effective, %")
    return markdown(header, rows)


def _mean(found: dict[str, Any], measure: str) -> float:
    return float(np.mean([one[measure] for one in found["variants"].values()]))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, numbers to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def page() -> str:
    """The whole page with the tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        mark = f"<!-- measured: {name} -->"
        before, found, rest = text.partition(mark)
        assert found, f"{PAGE.name} has no place for the table {name!r}: {mark}"
        text = f"{before}{mark}\n{table}\n<!-- end -->" + rest.partition("<!-- end -->")[2]
    return text


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    PAGE.write_text(page(), encoding="utf-8")
