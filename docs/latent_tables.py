"""Writes the measured tables of docs/latent.md from docs/latent.json: python docs/latent_tables.py.

The file is filled by runs, and no number in those tables is typed by hand; a test fails where page and file disagree.

    python benchmarks/bench_vae.py --keep docs/latent.json           # cost and noise
    python benchmarks/bench_likelihood.py --keep docs/latent.json    # likelihoods against a loop over points
    python benchmarks/bench_latent_posteriors.py --cells FOLDER --keep docs/latent.json  # imputation, posteriors
    python benchmarks/bench_latent_posteriors.py --rows 200 --draws 0 --cells FOLDER --keep docs/latent.json --part few
    python benchmarks/bench_latent_imputation.py --arrays FILE --cells FOLDER --keep docs/latent.json  # six cases
    python benchmarks/bench_latent_imputation.py --features 0 --part objectives …      # the same without regressions
    python benchmarks/bench_latent_defaults.py --keep docs/latent.json  # what the defaults were chosen from
    python benchmarks/bench_multivae.py --keep docs/latent.json      # speed against MultiVae
    python docs/latent_tables.py keep runs/m2vae-digits              # after consilience reproduce m2vae-digits
    python docs/latent_tables.py keep runs/m2vae-mnist 3             # the same on MNIST, of the first three seeds
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from marked_places import filled

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
BETTER = "better than m2vae, seeds"


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
    made |= {"choice": choice, "few": few, "multivae": multivae, "imputation": cases, "objectives": cases}
    made |= dict.fromkeys(CUTS, parts)
    written = {name: made[name](found) for name, found in content.items()}
    written["evidence"] = evidence(content["posteriors"])
    written["evidence-cases"] = evidence_by_case(content["objectives"])
    return written


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
        cells = [_over_seeds(found[key], places) if key in found else "" for key, places in columns.items()]
        cells[1] += ARROWS[kept["sure"].get(name, 0)]
        rows.append((name, *cells, _better(kept, name)))
    header = ("", "error at the mean", "error averaged", "log p(rest), model", "log p(rest), generated", BETTER)
    return markdown(header, rows)


def _better(kept: dict[str, Any], name: str) -> str:
    """In how many of the seeds that both have the error is less than that of m2vae."""
    if name == "m2vae":
        return ""
    mine, theirs = (dict(zip(kept["found"][each]["seed"], kept["found"][each]["averaged"])) for each in (name, "m2vae"))
    shared = mine.keys() & theirs.keys()
    return f"{sum(mine[seed] < theirs[seed] for seed in shared)} of {len(shared)}"


def evidence(kept: dict[str, Any]) -> str:
    """Log-likelihood of the last quadrant by how many of the others are given, means over seeds."""
    rows = [
        (
            f"{name}, {which}",
            *(Scale(1.0, 2).number(np.mean(found[f"{which}, {count} given"])) for count in range(4)),
            f"{_increasing(found, which)} of {len(found['model'])}",
        )
        for name, found in kept["found"].items()
        if "model" in found
        for which in ("model", "generated")
    ]
    return markdown(("", "none given", "one", "two", "three", "rises at every step, seeds"), rows)


def cases(kept: dict[str, Any]) -> str:
    """Errors by case, means and deviations over the seeds of m2vae; arrows mark what surely differs from it."""
    found = {case: one["found"] for case, one in kept.items() if "m2vae" in one["found"]}
    names = list(dict.fromkeys(name for one in found.values() for name in one))
    rows = []
    for name in names:
        cells = [_case_error(kept[case], name, "averaged") for case in found]
        rows.append((name, *cells))
        if any("alone" in one.get(name, {}) for one in found.values()):
            rows.append((f"{name}, expectation alone", *(_case_error(kept[case], name, "alone") for case in found)))
    counts = (str(len(one["m2vae"]["seed"])) for one in found.values())
    return markdown(("", *found), [*rows, ("splits of m2vae", *counts)])


def _case_error(one: dict[str, Any], name: str, key: str) -> str:
    shared = one["found"]["m2vae"]["seed"]
    own = one["found"].get(name, {})
    values = [value for seed, value in zip(own.get("seed", ()), own.get(key, ())) if seed in shared]
    if not values:
        return ""
    arrow = ARROWS[one["sure"].get(name, 0)] if key == "averaged" else ""
    return _over_seeds(values, 2 if np.mean(values) > 2 else 3) + arrow


def evidence_by_case(kept: dict[str, Any]) -> str:
    """Log-likelihood of the last modality by how many of the others are given, means over seeds, of every case."""
    rows = []
    for case, one in kept.items():
        for name, found in one["found"].items():
            counts = sum(f"model, {count} given" in found for count in range(4))
            for which in ("model", "generated") if counts else ():
                means = [np.mean(found[f"{which}, {count} given"]) for count in range(counts)]
                cells = [Scale(1.0, 2).number(mean) for mean in means] + [""] * (4 - counts)
                steps = "yes" if all(after > before for before, after in itertools.pairwise(means)) else "no"
                rows.append((f"{case}, {name}, {which}", *cells, steps))
    return markdown(("", "none given", "one", "two", "three", "rises at every step, in the mean"), rows)


def _increasing(found: dict[str, list[float]], which: str) -> int:
    """In how many seeds every further quadrant raises the log-likelihood."""
    steps = np.diff([found[f"{which}, {count} given"] for count in range(4)], axis=0)
    return int((steps > 0).all(axis=0).sum())


def few(kept: dict[str, Any]) -> str:
    """Errors of models that learned from few samples."""
    rows = []
    for name, found in kept["found"].items():
        collapsed = f"{sum(map(int, found['collapsed']))}" if "collapsed" in found else ""
        error = _over_seeds(found["averaged"], 2) + ARROWS[kept["sure"].get(name, 0)]
        rows.append((name, error, collapsed, _better(kept, name)))
    return markdown(("", "error averaged", "collapsed", BETTER), rows)


def choice(kept: dict[str, dict[str, list[float]]]) -> str:
    """Errors on validation samples of what the defaults were chosen from."""
    rows = [(name, _over_seeds(found["error"], 3), str(len(found["error"]))) for name, found in kept.items()]
    return markdown(("", "error averaged", "splits"), rows)


def multivae(kept: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """How many times as fast as MultiVae, by task, objective and number of modalities."""
    objectives = list(kept["training"])
    numbers = sorted({n for found in kept.values() for one in found.values() for n in one}, key=int)
    header = ("", *(f"{objective}, N = {n}" for objective in objectives for n in numbers))
    rows = []
    for task, found in kept.items():
        pairs = [found.get(objective, {}).get(n) for objective in objectives for n in numbers]
        rows.append((task, *("" if pair is None else f"{pair[0] / pair[1]:.2f}" for pair in pairs)))
    return markdown(header, rows)


def _over_seeds(values: Sequence[float], places: int) -> str:
    """Mean and standard deviation, of one value the value alone."""
    scale = Scale(1.0, places)
    return scale.pair(np.mean(values), np.std(values, ddof=1)) if len(values) > 1 else scale.number(values[0])


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
    return filled(PAGE, tables())


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    PAGE.write_text(page(), encoding="utf-8")
