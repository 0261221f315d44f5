"""What a comparison costs: `digits`, each run in a fresh process. 1 to 3 with four methods and eight seeds.

1. Two processes against one: wall times of the whole command, start and report included. On a busy machine the ratio of
   wall times says little; beside it stands what the CPU times make of it: those of one process, over those of the
   parent and half of those of its two workers.
2. Bookkeeping: the share of the comparison's CPU time that is not spent in training, corruption, prediction and
   evaluation; that is splitting, writing results, statistics, figures and the page.
3. The same command again on the finished folder.
4. Experts in common: CPU time of a comparison whose methods share experts, over that of the same trainings repeated,
   measured alternately; and that both find the same. `python benchmarks/bench_comparison.py shared` is this part alone.

One thread a process, so that CPU times count work and not waiting.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

METHODS = ["late", "concat", "early", "best-unimodal"]
SEEDS = 8
IN_COMMON = ["auto", "bayes-robust"]


def cpu_seconds(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


@contextmanager
def working() -> Iterator[dict[str, float]]:
    """Adds up the CPU time of the work itself, calls within calls counted once."""
    from consilience.comparison import job as work
    from consilience.corruption import Corruptor
    from consilience.training import Model

    spent = {"seconds": 0.0}
    inside: list[bool] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*arguments: Any, **options: Any) -> Any:
            if inside:
                return function(*arguments, **options)
            inside.append(True)
            began = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                spent["seconds"] += time.process_time() - began
                inside.clear()

        return called

    Model.fit = classmethod(timed(Model.__dict__["fit"].__func__))
    Model.predict, Corruptor.apply, work.evaluate = map(timed, (Model.predict, Corruptor.apply, work.evaluate))
    yield spent


def child(jobs: int, out: str) -> None:
    """One comparison; prints what it cost as JSON."""
    from joblib.externals.loky import get_reusable_executor

    import consilience

    with working() as spent:
        began = time.process_time()
        consilience.compare("digits", METHODS, seeds=SEEDS, out=out, jobs=jobs, verbose=0)
        compared = time.process_time() - began
    if jobs > 1:
        get_reusable_executor().shutdown(wait=True)  # whoever has ended is counted
    costs = {"compared": compared, "worked": spent["seconds"]}
    costs |= {"own": cpu_seconds(resource.RUSAGE_SELF), "workers": cpu_seconds(resource.RUSAGE_CHILDREN)}
    print(json.dumps(costs))


def child_in_common(shares: bool, out: str) -> None:
    """One comparison of methods with experts in common; prints its CPU time and a digest of its results."""
    import hashlib

    import consilience
    from consilience.comparison.plan import Job
    from consilience.training import shared_training

    if not shares:
        shared_training.MOST_BYTES = -1  # nothing is small enough to be kept
    began = time.process_time()
    found = consilience.compare("digits", IN_COMMON, seeds=1, refit=False, out=out, verbose=0)
    spent = time.process_time() - began
    arrays = found.store.read_all((Job(**job) for job in found.store.read_plan()["jobs"]), "digits")
    content = b"".join(each.arrays[name].tobytes() for each in arrays.values() for name in sorted(each.arrays))
    print(json.dumps({"seconds": spent, "results": hashlib.sha256(content).hexdigest()}))


def report_in_common(rounds: int = 1) -> None:
    """What sharing saves."""
    seconds: dict[str, float] = {"shared": 0.0, "repeated": 0.0}
    results = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for how in seconds:
                found = json.loads(timed_run([__file__, "in-common", how, f"{folder}/{how}{number}"])[1])
                seconds[how] += found["seconds"]
                results.add(found["results"])
    ratio = seconds["shared"] / seconds["repeated"]
    print(f"{', '.join(IN_COMMON)}: experts in common trained once take {ratio:.2f} of the CPU time (target < 0.75)")
    print("the results are the same" if len(results) == 1 else "THE RESULTS DIFFER")


def timed_run(words: list[str]) -> tuple[float, str]:
    """The wall time of a fresh process, and what it prints."""
    began = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return time.perf_counter() - began, done.stdout


def measure(jobs: int, out: str) -> dict[str, float]:
    """The costs of one comparison in a fresh process, with its wall time."""
    wall, printed = timed_run([__file__, str(jobs), out])
    return {"wall": wall, **json.loads(printed)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two = measure(1, f"{folder}/one"), measure(2, f"{folder}/two")
        asked = ["--methods", *METHODS, "--seeds", str(SEEDS), "--out", f"{folder}/one"]
        again, _ = timed_run(["-m", "consilience", "compare", "digits", *asked])
    print(f"one process {one['wall']:.1f} s, two {two['wall']:.1f} s on {os.cpu_count()} cores")
    by_cpu = one["own"] / (two["own"] + two["workers"] / 2)
    print(f"--jobs 2 is {one['wall'] / two['wall']:.2f} × faster; by CPU time {by_cpu:.2f} × (target ≥ 1.7)")
    beside = one["compared"] - one["worked"]
    print(f"bookkeeping {beside:.1f} s of CPU, {100 * beside / one['compared']:.1f} % of the comparison (target < 5)")
    print(f"a finished run answers in {again:.2f} s (target < 3)")
    report_in_common()


if __name__ == "__main__":
    if sys.argv[1:2] == ["in-common"]:
        child_in_common(sys.argv[2] == "shared", sys.argv[3])
    elif sys.argv[1:] == ["shared"]:
        report_in_common()
    elif len(sys.argv) > 1:
        child(int(sys.argv[1]), sys.argv[2])
    else:
        main()
