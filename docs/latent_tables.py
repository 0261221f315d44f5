"""Writes the measured tables of docs/latent.md from docs/latent.json: python docs/latent_tables.py.

The file is filled by runs, and no number in those tables is typed by hand; a test fails where page and file disagree.

    python benchmarks/bench_vae.py --keep docs/latent.json           # cost and noise
    python docs/latent_tables.py keep runs/m2vae-digits-quick        # after consilience reproduce m2vae-digits --quick
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments.m2vae_digits.account import summary
from consilience.comparison.store import Store

PAGE = Path(__file__).with_name("latent.md")
FILE = PAGE.with_suffix(".json")
GIVEN = 2  # of the four quadrants
NUMBERS = (2, 3, 5)
WAYS = ("tight, chain", "paper, chain", "tight, all", "paper, all")
MANY = "tight, chain, set encoder"


def keep(folder: Path) -> None:
    """Put what a quick run on digits found, from two of four quadrants, into the file."""
    protocol: Any = find_experiment("m2vae-digits").protocol(quick=True)  # type: ignore[attr-defined]
    results = Store(folder).read_all(protocol.cells(), protocol.experiment)
    found = {}
    for name in protocol.variants:
        mine = [results[cell.key].about for cell in protocol.cells() if cell.method == name]
        found[name] = {
            measure: summary(protocol, results, name, measure)[:, protocol.sizes.index(GIVEN)].round(4).tolist()
            for measure in ("error", "conditional", "coherent")
        }
        for key in ("effective_samples", "few_draws", "epochs"):
            found[name][key] = [round(float(one[key]), 4) for one in mine]
    content = json.loads(FILE.read_text(encoding="utf-8"))
    content["digits"] = {"seeds": protocol.seeds, "draws": protocol.draws, "variants": found}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def tables() -> dict[str, str]:
    """The tables of the page by name."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    made = {"cost": cost, "noise": noise, "digits": digits}
    return {name: made[name](found) for name, found in content.items()}


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


def digits(found: dict[str, Any]) -> str:
    """The objectives on digits, from two quadrants of four."""
    rows = []
    for name, one in found["variants"].items():
        error, conditional, coherent = (np.array(one[key]) for key in ("error", "conditional", "coherent"))
        rows.append(
            (
                name,
                f"{error.mean():.2f} ± {error.std(ddof=1):.2f}",
                f"{conditional.mean():.1f} ± {conditional.std(ddof=1):.1f}",
                f"{coherent.mean():.1f} ± {coherent.std(ddof=1):.1f}",
                f"{np.mean(one['effective_samples']):.0f}",
                f"{100 * np.mean(one['few_draws']):.0f}",
            )
        )
    draws = f"effective draws of {found['draws']}"
    header = ("", "error, pixels", "log p(other two), nats", "coherence, %", draws, "under 10 effective, %")
    return markdown(header, rows)


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
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
        keep(Path(sys.argv[2]))
    PAGE.write_text(page(), encoding="utf-8")
