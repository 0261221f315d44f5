"""Gaussian κ with many classes: time to fit, time for one row, memory of many rows, each in a fresh process.

Four experts whose errors have a few directions in common. With --against, the same is measured with the source of
another commit and with this one, and ratios are printed; peak memory is then compared at a tenth of the rows.

    python benchmarks/bench_kappa.py
    python benchmarks/bench_kappa.py --against v0.1.0 --rows 20000
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
EXPERTS = 4


def draw(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Opinions `[n, expert, class]` with common errors of rank 8, and labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    common = np.random.default_rng(1).normal(size=(8, EXPERTS * classes)) / 2
    opinions = (rng.normal(size=(n, 8)) @ common).reshape(n, EXPERTS, classes)
    opinions += rng.normal(size=opinions.shape)
    opinions[np.arange(n), :, y] += 2.5
    return opinions, y


def peak() -> float:
    """The most memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(classes: int, samples: int, rows: int) -> dict[str, float]:
    """Fit, predict one row and many rows."""
    from consilience import BayesFusion

    few, labels = draw(300, 3)
    BayesFusion().fit(few, labels).predict_proba(few[:1])  # imports
    opinions, y = draw(samples + 500, classes)
    began = time.process_time()
    model = BayesFusion().fit(opinions[:samples], y[:samples])
    found = {"fit, s of CPU": time.process_time() - began, "fit, peak GB": peak()}
    held, held_y = opinions[samples:], y[samples:]
    model.predict_proba(held[:1])
    times = []
    for row in range(20):
        began = time.process_time()
        model.predict_proba(held[row : row + 1])
        times.append(time.process_time() - began)
    found["one row, ms of CPU"] = 1e3 * float(np.median(times))
    independent = BayesFusion("none").fit(opinions[:samples], y[:samples])
    for name, each in (("gaussian", model), ("none", independent)):
        found[f"log-loss, {name}"] = float(-each.predict_log_proba(held)[np.arange(500), held_y].mean())
    found["largest posterior, sum"] = float(model.predict_proba(held).max(axis=1).sum())
    del opinions, held
    many = np.tile(draw(1000, classes, seed=2)[0], (rows // 1000, 1, 1))
    began = time.process_time()
    model.predict_proba(many)
    return found | {f"{rows} rows, s of CPU": time.process_time() - began, f"{rows} rows, peak GB": peak()}


def run(source: Path, classes: int, samples: int, rows: int) -> dict[str, Any]:
    """The measurements in a process of their own that imports the package from `source`."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--measure", *map(str, (classes, samples, rows))]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def show(title: str, now: dict[str, float], before: dict[str, float] | None = None) -> None:
    print(f"\n{title}")
    for name, value in now.items():
        ratio = "" if before is None else f"   before {before[name]:10.4f}   ratio {before[name] / value:7.2f}"
        print(f"  {name:28} {value:10.4f}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", help="a commit to compare with")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of the prediction whose memory is measured")
    parser.add_argument("--samples", type=int, default=3000, help="samples to fit 100 classes")
    parser.add_argument("--measure", type=int, nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(*asked.measure)))
        return
    source = ROOT / "src"
    if asked.against:
        with tempfile.TemporaryDirectory() as folder:
            git = shutil.which("git") or sys.exit("git is not installed")
            words = [git, "archive", "--format=tar", asked.against, "src"]
            archive = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as source_files:
                source_files.extractall(folder, filter="data")
            size = (100, asked.samples, asked.rows // 10)
            before, now = run(Path(folder) / "src", *size), run(source, *size)
        show(f"100 classes, {EXPERTS} experts, {asked.samples} samples, against {asked.against}", now, before)
    size = (100, asked.samples, asked.rows)
    show(f"100 classes, {EXPERTS} experts, {asked.samples} samples (goals: ≤ 20 ms, ≤ 2 GB)", run(source, *size))
    show(f"1000 classes, {EXPERTS} experts, 5000 samples", run(source, 1000, 5000, asked.rows // 10))


if __name__ == "__main__":
    main()
