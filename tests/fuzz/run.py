"""Fuzz for a while in child processes, count the outcomes, and keep each failing case.

python tests/fuzz/run.py --seconds 3600
python tests/fuzz/run.py --case tests/fuzz/corpus/NAME.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.fuzzers import CORPUS, Fuzzer, discover

ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0
GRACE = 60.0  # seconds that a case may take after the end
SAID_EVERY = 60.0  # seconds between two lines of the counts so far
_IDLE = 0.005  # processor time as a share of time, below which nothing is going on
_CASES = 20_000  # after so many a child is replaced, so that what one case leaves behind does not stay for good


class Child:
    """A process that runs cases. One that died or hangs is replaced before the next case.

    Args:
        running: Where a case is written before it runs.
        bare: Start without loading what most fuzzers need.
    """

    def __init__(self, running: Path | None = None, bare: bool = False):
        self.running, self.bare = running, bare
        self._process: subprocess.Popen[str] | None = None
        self._cases = 0

    def run(self, fuzzer: Fuzzer, case: Any) -> dict[str, str]:
        """Run a case; returns its outcome: "right", "refused", or the kind of a failure with what was said.

        Failures are those that have something `said`.
        """
        if self.running is not None:
            self.running.write_text(json.dumps({"fuzzer": fuzzer.name, "case": case}), encoding="utf-8")
        if self._process is None or self._cases >= _CASES:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._cases += 1
        try:
            self._process.stdin.write(json.dumps({"fuzzer": fuzzer.name, "case": case}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._ended("crash")
        return self._answer(fuzzer.seconds)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()  # type: ignore[union-attr]
            self._process.stdout.close()  # type: ignore[union-attr]
            self._said.close()
            self._process = None

    def _start(self) -> None:
        self.close()
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        paths = [str(ROOT / "src"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        environment.setdefault("POLARS_MAX_THREADS", "2")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.child", *(["--bare"] * self.bare)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=environment,
        )
        self._cases = 0
        ready = self._answer(START_SECONDS)
        assert ready.get("ready"), ready

    def _answer(self, seconds: float) -> dict[str, str]:
        """Wait for an answer. Processor time counts: on a busy machine a case that does not hang may take minutes."""
        assert self._process is not None
        assert self._process.stdout is not None
        began = last = processor_seconds(self._process.pid)
        while not select.select([self._process.stdout], [], [], seconds)[0]:
            now = processor_seconds(self._process.pid)
            if now - began >= seconds or now - last < _IDLE * seconds:
                return self._ended("hang")
            last = now
        line = self._process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else self._ended("crash")

    def _ended(self, kind: str) -> dict[str, str]:
        assert self._process is not None
        if kind == "hang":
            self._process.kill()
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read()[-6000:]
        self.close()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        frames = [line.strip() for line in said.splitlines() if "consilience" in line and "File" in line]
        return {"outcome": kind, "where": frames[0] if frames else how, "said": f"{how}\n{said}"}


def processor_seconds(process: int) -> float:
    """Processor time of a process and of those that it has started."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # with that of children it has waited for
    return own + sum(processor_seconds(int(child)) for child in children)


def keep(folder: Path, fuzzer: Fuzzer, case: Any, answer: dict[str, str]) -> Path:
    """Write a failing case, one for each kind of failure, place and message less numbers and paths."""
    cause = f"{fuzzer.name} {answer['outcome']} {answer.get('where', '')}"
    said = (answer.get("said", "").strip().splitlines() or [""])[-1][:300]  # `--case` shows the rest
    alike = re.sub(r"/[^\s'\"]+|0x[0-9a-f]+|[0-9]+", "", said)
    known = hashlib.sha256(f"{cause} {alike}".encode(errors="replace")).hexdigest()[:10]
    path = folder / f"{fuzzer.name.replace(' ', '-')}-{known}.json"
    text = json.dumps({"fuzzer": fuzzer.name, "found": cause, "said": said, "case": case}, indent=1)
    if not path.exists() or len(path.read_text(encoding="utf-8")) > len(text):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    return path


def fuzz(seconds: float, seed: int, names: list[str], corpus: Path, bare: bool = False, most: float = math.inf) -> int:
    """Run cases of all fuzzers in turn for so long, or so many; prints the counts and returns how many failed.

    A line of the counts so far is printed every minute. Ctrl-C and SIGTERM end the run with its summary too, and so
    does the end of the time: a case that is not done a minute later is left.
    """
    fuzzers = [fuzzer for name, fuzzer in discover().items() if name in names or (not names and fuzzer.examples)]
    random_of = {fuzzer.name: random.Random(f"{seed} {fuzzer.name}") for fuzzer in fuzzers}
    counts: dict[str, Counter[str]] = {fuzzer.name: Counter() for fuzzer in fuzzers}
    spent = dict.fromkeys(random_of, 0.0)
    kept: Counter[Path] = Counter()
    began = said = time.monotonic()
    handlers = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGTERM, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        child = Child(Path(folder) / "running.json", bare)
        try:
            while time.monotonic() - began < seconds and sum(map(Counter.total, counts.values())) < most:
                fuzzer = min(fuzzers, key=lambda each: spent[each.name])  # each gets the same time
                start = time.monotonic()
                if start - said >= SAID_EVERY:
                    said = start
                    print(state_line(fuzzers, counts, kept.total(), start - began), flush=True)
                case = fuzzer.draw(random_of[fuzzer.name])
                answer = child.run(fuzzer, case)
                spent[fuzzer.name] += time.monotonic() - start
                counts[fuzzer.name][answer["outcome"]] += 1
                if "said" in answer:
                    path = keep(corpus, fuzzer, case, answer)
                    if not kept[path]:
                        print(f"{fuzzer.name}: {answer['outcome']} at {answer.get('where')}: {path}", flush=True)
                    kept[path] += 1
        finally:
            child.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    for each, handler in handlers.items():
        signal.signal(each, handler)
    print_counts(fuzzers, counts, time.monotonic() - began, seed)
    for path, count in kept.most_common():
        print(f"{count} × {path}")
    return kept.total()


def state_line(fuzzers: list[Fuzzer], counts: dict[str, Counter[str]], failed: int, seconds: float) -> str:
    """The counts so far in one line: cases of each unit, and failures."""
    of_unit: Counter[str] = Counter()
    for fuzzer in fuzzers:
        of_unit[fuzzer.unit] += counts[fuzzer.name].total()
    units = ", ".join(f"{count} {unit}" for unit, count in of_unit.items())
    return f"{seconds / 60:.0f} min: {units}; {failed} failed"


def print_counts(fuzzers: list[Fuzzer], counts: dict[str, Counter[str]], seconds: float, seed: int) -> None:
    """Print the cases of each fuzzer, and of each unit, by their outcomes."""
    print(f"\n{seconds:.0f} seconds, seed {seed}")
    of_unit: dict[str, Counter[str]] = {}
    for fuzzer in fuzzers:
        of_unit.setdefault(fuzzer.unit, Counter()).update(counts[fuzzer.name])
        print(f"  {fuzzer.name}: {_say(counts[fuzzer.name])}")
    for unit, count in of_unit.items():
        print(f"{count.total()} {unit}: {_say(count)}")


def _say(count: Counter[str]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in count.most_common()) or "none"


def repeat(path: Path) -> int:
    """Run one kept case and print its outcome; returns whether it failed."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    child = Child()
    answer = child.run(discover()[kept["fuzzer"]], kept["case"])
    child.close()
    print(answer.get("said", ""), f"{path.name}: {answer['outcome']}", sep="\n")
    return "said" in answer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, help="of the cases; by default a new one, which is printed")
    parser.add_argument("--fuzzers", nargs="*", default=[], help="only these")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where failing cases are written")
    parser.add_argument("--case", type=Path, help="repeat this case instead")
    chosen = parser.parse_args()
    if chosen.case is not None:
        sys.exit(repeat(chosen.case))
    seed = random.SystemRandom().randrange(2**31) if chosen.seed is None else chosen.seed
    sys.exit(min(1, fuzz(chosen.seconds, seed, chosen.fuzzers, chosen.corpus)))
