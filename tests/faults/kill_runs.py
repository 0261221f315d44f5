"""Kill comparisons at random moments, continue them, and compare the end with an undisturbed run.

    python tests/faults/kill_runs.py --kills 100

Three kinds of kills take turns, each by SIGKILL: all processes, the parent, one of the processes that run jobs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from consilience.comparison import reopen

KINDS = ("tree", "parent", "worker")
PROTOCOL = (
    *("--methods", "late", "concat", "--seeds", "4", "--levels", "5", "--epochs", "3"),
    *("--jobs", "2", "--format", "markdown"),
)


@dataclass
class Account:
    """What happened: kills by kind, runs that came to their end, and everything that was not as it should be."""

    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    slowest_end: float = 0.0  # seconds between the death of a parent and that of its last process
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kills.items())
        return (
            f"{self.kills.total()} kills ({kinds}); {self.runs} runs ended, each compared with an undisturbed one; "
            f"processes ended at most {self.slowest_end:.2f} s after their parent; {len(self.problems)} problems"
        )


def make_data(folder: Path) -> Path:
    """Write a small set of two modalities."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=120)
    np.savez(folder / "small.npz", a=y[:, None] + rng.normal(size=(120, 2)), b=rng.normal(size=(120, 3)), y=y)
    return folder / "small.npz"


def outcome(run: Path) -> dict[str, object]:
    """What must not depend on kills: table, results and best model."""
    comparison = reopen(run)
    values = comparison.findings.values
    return {
        "table": comparison.table("markdown"),
        "values": values.sort(values.columns).to_dict(as_series=False),
        "statistics": comparison.statistics().to_dict(as_series=False),
        "best": (comparison.best / "weights.safetensors").read_bytes(),
        "leftovers": [path.name for path in run.rglob("*") if path.suffix in (".part", ".old", ".lock")],
    }


def disturb(folder: Path, kills: int, seed: int = 0, say: bool = False) -> Account:
    """Run comparisons until they were killed so many times; returns what happened."""
    chance, account = random.Random(seed), Account()
    data = make_data(folder)
    began = time.monotonic()
    finish(data, folder / "calm")
    duration = time.monotonic() - began
    calm = outcome(folder / "calm")
    while account.kills.total() < kills:
        run = folder / f"run{account.runs}"
        while account.kills.total() < kills and not kill_once(data, run, duration, chance, account):
            if say:
                print(account, flush=True)
        finish(data, run)
        found = outcome(run)
        account.problems += [f"{run.name}: {name} differs" for name, value in found.items() if value != calm[name]]
        account.runs += 1
        shutil.rmtree(run)
    return account


def command(data: Path, run: Path) -> list[str]:
    """The comparison, as a user would start it."""
    return [sys.executable, "-m", "consilience", "compare", str(data), *PROTOCOL, "--out", str(run)]


def finish(data: Path, run: Path) -> None:
    """Run a comparison to its end."""
    subprocess.run(command(data, run), check=True, capture_output=True)


def kill_once(data: Path, run: Path, duration: float, chance: random.Random, account: Account) -> bool:
    """Start a comparison and kill at a random moment; returns whether it had ended before."""
    kind = KINDS[account.kills.total() % len(KINDS)]
    with subprocess.Popen(
        command(data, run), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        if kind == "worker":
            while not children(running.pid) and running.poll() is None:
                time.sleep(0.01)
        time.sleep(chance.uniform(0.05, duration * (0.5 if kind == "worker" else 1.0)))
        workers = children(running.pid)
        if running.poll() is not None or (kind == "worker" and not workers):
            running.wait()
            return True
        account.kills[kind] += 1
        if kind == "tree":
            os.killpg(running.pid, signal.SIGKILL)
        else:
            os.kill(running.pid if kind == "parent" else chance.choice(workers), signal.SIGKILL)
        said = running.communicate()[1]
    if kind == "worker" and running.returncode != 0:
        account.problems.append(f"a killed worker ended the run with {running.returncode}: {said[-300:]}")
    began = time.monotonic()
    while any(map(lives, workers)) and time.monotonic() < began + 10:
        time.sleep(0.01)
    account.slowest_end = max(account.slowest_end, time.monotonic() - began)
    if survivors := list(filter(lives, workers)):
        account.problems.append(f"{len(survivors)} processes outlived their parent by ten seconds")
    return kind == "worker"


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(number) for number in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except FileNotFoundError:
        return []


def lives(process: int) -> bool:
    """Whether a process runs; one that has only not been waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        done = disturb(Path(temporary), chosen.kills, chosen.seed, say=True)
    print(done)
    print("\n".join(done.problems))
    sys.exit(bool(done.problems))
