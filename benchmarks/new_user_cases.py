"""Five tasks as a new user has them, with the commands that the guide gives: what they take, and whether they work.

    python benchmarks/new_user_cases.py [CASE ...] [--keep FOLDER]

Every case writes its own data, calls the command line in processes of its own, checks what came out against what the
data are known to hold, and prints processor seconds, seconds, and how many lines were printed. A case that gives
something else ends with an error. `stream` uses the model of `sensors`.
"""

import argparse
import csv
import io
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

import consilience as cs

STATES = {"ok": 0.62, "clogged": 0.2, "leak": 0.1, "worn": 0.05, "short": 0.03}
SENSORS = ("pressure", "temperature", "vibration", "current")
COLUMNS = " ".join(f"--modality '{name}={name}_*'" for name in SENSORS)
PACKAGE = """
import numpy as np

from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.named_sets import register as register_set
from consilience.data.splits import draw_split
from consilience.methods import register
from consilience.methods.fusion.concat import Concat


@register_set("buoys", description="Waves and wind at a harbour", licence="generated")
def buoys(*, n: int = 300, seed: int = 0) -> DataSet:
    rng = np.random.default_rng(seed)
    y = np.array(["closed", "open"])[rng.integers(2, size=n)]
    waves = rng.normal(size=(n, 5)) + (y == "closed")[:, None]
    wind = rng.normal(size=(n, 2)) + (y == "closed")[:, None]
    samples = Samples.of({"waves": waves, "wind": wind}, y)
    return DataSet("buoys", samples, "classification", *draw_split(y, "classification"))


@register("harbour", paper="A method of one's own")
class Harbour(Concat):
    pass
"""


class Case:
    """The folder of a case, and what its commands took."""

    def __init__(self, folder: Path):
        self.folder, self.printed, self.seconds, self.commands = folder, 0, 0.0, 0
        self.began = _used()

    def run(self, command: str, given: str | None = None, path: Path | None = None) -> str:
        """Call `consilience` with the words of a command; return what it prints to standard output."""
        words = [sys.executable, "-m", "consilience", *shlex.split(command)]
        environment = {**os.environ, **({} if path is None else {"PYTHONPATH": _joined(path)})}
        started = time.perf_counter()
        done = subprocess.run(words, cwd=self.folder, input=given, capture_output=True, text=True, env=environment)
        self.seconds += time.perf_counter() - started
        self.printed += len(done.stdout.splitlines()) + len(done.stderr.splitlines())
        self.commands += 1
        (self.folder / f"printed-{self.commands}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise SystemExit(f"consilience {command}\n{done.stderr}")
        return done.stdout

    def used(self) -> float:
        """Processor seconds of its commands."""
        return _used() - self.began


def sensors(case: Case) -> str:
    """3000 rows of 40 sensors with empty cells, groups and five unbalanced classes."""
    write_sensors(case.folder / "rig.csv", rows=3000)
    said = case.run(f"compare rig.csv --target state {COLUMNS} --group machine --out run")
    page = (case.folder / "run" / "report.html").read_text(encoding="utf-8")
    words = " ".join(said.split())
    check("Deploy " in words, "a recommendation is printed")
    check("whole groups of machine" in words, "groups are compared with random rows")
    check("cells filled" in page, "the report counts the cells that were filled")
    check("of class short" in words, "the rare class is named")
    return words[words.index("Deploy ") :][:160]


def write_sensors(path: Path, rows: int, seed: int = 0) -> None:
    """Machines that differ from each other, in five states; one cell in 30 is empty, and one modality in ten."""
    rng = np.random.default_rng(seed)
    machine = rng.integers(0, 60, size=rows)
    state = rng.choice(len(STATES), p=list(STATES.values()), size=rows)
    effect, offset = rng.normal(scale=0.4, size=(len(STATES), 40)), rng.normal(scale=0.7, size=(60, 40))
    values = effect[state] + offset[machine] + rng.normal(size=(rows, 40))
    values[rng.random(values.shape) < 1 / 30] = np.nan
    for place in range(len(SENSORS)):
        values[np.ix_(rng.random(rows) < 0.1, range(10 * place, 10 * place + 10))] = np.nan
    names = [f"{SENSORS[number // 10]}_{number % 10}" for number in range(40)]
    frame = pl.DataFrame(values, schema=names).fill_nan(None)
    labels = np.array(list(STATES))[state]
    known = [pl.Series("id", range(rows)), pl.Series("machine", [f"m{number}" for number in machine])]
    frame.with_columns(*known, pl.Series("state", labels)).write_csv(path)


def stream(case: Case) -> str:
    """Rows from standard input, scored one by one with their ids kept."""
    model = case.folder.parent / "sensors" / "run" / "best"
    if not model.is_dir():
        raise SystemExit("the case stream needs the model of the case sensors: run both")
    write_sensors(case.folder / "new.csv", rows=500, seed=1)
    text = (case.folder / "new.csv").read_text(encoding="utf-8")
    answers = case.run(f"predict {shlex.quote(str(model))} - --keep id --format jsonl", given=text).splitlines()
    ids = [json.loads(line)["id"] for line in answers]
    expected = [row["id"] for row in csv.DictReader(io.StringIO(text))]
    check(list(map(str, ids)) == expected, "every id comes back, in order")
    whole = case.run(f"predict {shlex.quote(str(model))} new.csv --keep id").splitlines()
    check(len(whole) == 501, "the same rows as a file")
    labels = [row["prediction"] for row in csv.DictReader(whole)]
    check([json.loads(line)["prediction"] for line in answers] == labels, "the stream decides as the file does")
    return answers[0][:160]


def patients(case: Case) -> str:
    """400 patients with paths of PNG files, notes and lab values: five folds, AUROC with intervals."""
    rng = np.random.default_rng(0)
    ill = rng.random(400) < 0.3
    (case.folder / "scans").mkdir()
    for number, sick in enumerate(ill):
        pixels = rng.normal(110, 30, size=(32, 32))
        pixels[8:20, 8:20] += 40 * sick
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(case.folder / "scans" / f"{number}.png")
    words = {True: ("cough", "fever", "tired for days"), False: ("check-up", "no complaints", "back pain")}
    notes = [
        f"patient reports {rng.choice(words[bool(sick)] if rng.random() < 0.7 else words[not sick])} since {day} days"
        for sick, day in zip(ill, rng.integers(1, 30, size=400))
    ]
    labs = rng.normal(size=(400, 5)) + 0.6 * ill[:, None]
    labs[rng.random(labs.shape) < 0.05] = np.nan
    frame = pl.DataFrame(labs, schema=[f"lab_{name}" for name in "abcde"]).fill_nan(None)
    paths = [f"scans/{number}.png" if rng.random() > 0.1 else None for number in range(400)]
    outcome = np.where(ill, "ill", "well")
    columns = [pl.Series("scan", paths), pl.Series("note", notes), pl.Series("outcome", outcome)]
    frame.with_columns(*columns).write_csv(case.folder / "patients.csv")
    kinds = "--modality scan=scan:image --modality note=note:text --modality 'labs=lab_*' --media scan.size=32"
    said = case.run(f"compare patients.csv --target outcome {kinds} --folds 5 --metric auroc --out run")
    words_said = " ".join(said.split())
    check("AUROC, mean ± standard deviation over 5 seeds" in words_said, "the AUROC of five folds")
    page = (case.folder / "run" / "report.html").read_text(encoding="utf-8")
    top = page[page.index('id="answer"') : page.index("<nav")]
    check("accuracy" not in top, "the recommendation speaks of the chosen metric")
    check("95 % interval" in page, "there are intervals")
    return words_said[words_said.index("Deploy ") :][:160]


def package(case: Case) -> str:
    """A data set and a method of a package of one's own, compared from the command line."""
    folder = case.folder / "site"
    (folder / "harbour-1.0.dist-info").mkdir(parents=True)
    (folder / "harbour.py").write_text(PACKAGE, encoding="utf-8")
    points = "[consilience.data_sets]\nbuoys = harbour\n\n[consilience.methods]\nharbour = harbour\n"
    (folder / "harbour-1.0.dist-info" / "entry_points.txt").write_text(points, encoding="utf-8")
    metadata = "Metadata-Version: 2.1\nName: harbour\nVersion: 1.0\n"
    (folder / "harbour-1.0.dist-info" / "METADATA").write_text(metadata, encoding="utf-8")
    command = "compare buoys --methods late harbour --seeds 2 --epochs 10 --jobs 2 --out run"
    said = case.run(command, path=folder)
    check("harbour" in said, "the own method has results")
    check("On buoys" in " ".join(said.split()), "on the own set")
    return next(line for line in said.splitlines() if line.strip().startswith("harbour")).strip()


def groups(case: Case) -> str:
    """A table without labels whose groups of columns are missing in some rows: they are imputed."""
    rng = np.random.default_rng(0)
    cause = rng.normal(size=(1500, 3))
    mixing = rng.normal(size=(3, 12))
    whole = cause @ mixing + 0.3 * rng.normal(size=(1500, 12))
    names = [f"{group}_{place}" for group in ("blood", "urine", "scan") for place in range(4)]
    holes = whole.copy()
    for place in range(3):
        holes[np.ix_(rng.random(1500) < 0.2, range(4 * place, 4 * place + 4))] = np.nan
    some = ~np.isnan(holes).all(axis=1)  # a row without anything teaches nothing, and is refused
    whole, holes = whole[some], holes[some]
    frame = pl.DataFrame(holes, schema=names).fill_nan(None)
    frame[:1200].write_csv(case.folder / "cohort.csv")
    columns = "--modality 'blood=blood_*' --modality 'urine=urine_*' --modality 'scan=scan_*'"
    case.run(f"train cohort.csv {columns} --method m2vae --out latent")
    complete = ~np.isnan(holes[1200:]).any(axis=1)
    new = frame[1200:].filter(pl.Series(complete))
    hidden = new.with_columns([pl.lit(None, dtype=pl.Float64).alias(name) for name in names[8:]])
    filled = cs.load(case.folder / "latent").impute(hidden)
    error = float(np.sqrt(np.mean((filled["scan"] - new[names[8:]].to_numpy()) ** 2)))
    median = float(np.sqrt(np.mean((np.nanmedian(holes[:1200, 8:], axis=0) - new[names[8:]].to_numpy()) ** 2)))
    check(error < 0.6 * median, f"imputed better than by the median ({error:.2f} against {median:.2f})")
    return f"error of the group that is missing {error:.2f}, of its median {median:.2f}"


CASES: dict[str, Callable[[Case], str]] = {
    "sensors": sensors,
    "stream": stream,
    "patients": patients,
    "package": package,
    "groups": groups,
}


def check(holds: bool, what: str) -> None:
    """End with an error unless something holds."""
    if not holds:
        raise SystemExit(f"does not hold: {what}")


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _joined(path: Path) -> str:
    before = os.environ.get("PYTHONPATH")
    return f"{path}{os.pathsep}{before}" if before else str(path)


def main(names: list[str], root: Path) -> None:
    """Run cases in folders below a root."""
    for name in names:
        (root / name).mkdir(parents=True)
        case = Case(root / name)
        result = CASES[name](case)
        took = f"{case.used():.0f} processor seconds, {case.seconds:.0f} s, {case.printed} lines printed"
        print(f"{name}: {took}. {result}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], default=[])
    parser.add_argument("--keep", metavar="FOLDER", help="a new folder for data, models and reports")
    chosen = parser.parse_args()
    if chosen.keep:
        main(chosen.cases or list(CASES), Path(chosen.keep).absolute())
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(chosen.cases or list(CASES), Path(folder))
