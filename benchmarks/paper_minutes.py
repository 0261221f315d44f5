"""How long `consilience reproduce NAME` takes: runs protocols and scripts of `papers`, and stores what they took.

    python benchmarks/paper_minutes.py NAME ... [--full] [--limit SECONDS] [--keep FOLDER]

Processor seconds of one process with one thread go to papers/timings.json, where `consilience reproduce --list` finds
them. Without names all are run whose time is not stored yet. One that takes longer than the limit is ended, and stored
as taking more than that. With --keep the run folders stay, for `docs/results.py keep`.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from consilience.core.files import write_atomically
from consilience.reproduction.needs import TIMINGS, read_timings
from consilience.reproduction.papers import list_papers
from consilience.version import __version__

PAPERS = Path(__file__).parent.parent / "papers"


def measure(name: str, quick: bool, limit: float, keep: Path | None = None) -> dict[str, object]:
    """Run it in a process of its own; return the processor seconds, the jobs, and where and with what it ran."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run" if keep is None else keep / name
        paper = str(PAPERS / path_of(name))
        command = [sys.executable, "-m", "consilience", "reproduce", paper, "--out", str(folder)]
        before = processor_seconds()
        began = time.perf_counter()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            subprocess.run(
                command + ["--quick"] * quick, timeout=limit, check=True, capture_output=True, env=environment
            )
        except subprocess.TimeoutExpired:
            took = {"more_than_seconds": round(processor_seconds() - before)}
        else:
            took = {"processor_seconds": round(processor_seconds() - before, 1)}
        jobs = sum(len(json.loads(plan.read_text())["jobs"]) for plan in folder.rglob("plan.json"))
        seconds = round(time.perf_counter() - began, 1)
    return {**took, "seconds": seconds, "jobs": jobs, "machine": machine(), "version": __version__}


def path_of(name: str) -> str:
    """The file of a protocol or script."""
    return next(f"{name}{ending}" for ending in (".yaml", ".py") if (PAPERS / f"{name}{ending}").is_file())


def processor_seconds() -> float:
    """Of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--full", action="store_true", help="the full size instead of the quick form")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a run is ended")
    parser.add_argument("--keep", type=Path, help="a folder in which the run folders stay")
    chosen = parser.parse_args()
    size = "full" if chosen.full else "quick"
    for name in chosen.names or [name for name in list_papers() if size not in read_timings(PAPERS).get(name, {})]:
        try:
            found = measure(name, not chosen.full, chosen.limit, chosen.keep)
        except subprocess.CalledProcessError as error:
            print(f"{name}: {error.stderr.decode().strip().splitlines()[-1]}", file=sys.stderr)
            continue
        stored = read_timings(PAPERS)
        stored.setdefault(name, {})[size] = found
        text = json.dumps(dict(sorted(stored.items())), indent=1, ensure_ascii=False) + "\n"
        write_atomically(PAPERS / TIMINGS, text.encode())
        print(f"{name}: {found}", flush=True)
