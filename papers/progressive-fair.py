"""A fair test of progressive fusion: equal tuned budgets, fresh pairs, three degrees of dependence, all six models.

Of every base method and variant the settings are chosen on validation pairs among equally many trials; then models with
new seeds are trained with the chosen ones and tested. Both are kept in the run folder, and a run goes on where it
stopped. Several processes may work on one folder.
"""

import argparse
import json
import logging
import shlex
import subprocess
import sys
import time
from functools import cache
from itertools import product
from pathlib import Path

import torch
import yaml

from consilience.comparison.plan import Job, digest, to_json
from consilience.comparison.store import Result, Store, versions_used, writing
from consilience.reproduction.study import Reproduction, load_script, run_folder
from consilience.version import __version__

HERE = Path(__file__).parent
TITLE = "A fair test of progressive fusion: does the loop help when modalities depend on each other?"
PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, table 9"
STUDY = yaml.safe_load((HERE / "studies" / "progressive-fair.yaml").read_text(encoding="utf-8"))
FULL, QUICK = STUDY["settings"], STUDY["settings"] | STUDY["quick_settings"]
NAME = "progressive-fair"
fresh_pairs = load_script(HERE / "progressive" / "fresh_pairs.py")
fair_search = load_script(HERE / "progressive" / "fair_search.py")

logger = logging.getLogger("consilience")


def run(*, quick=False, settings=None, out=None, jobs=1, cluster=None, verbose=1, command=""):
    settings = {**(QUICK if quick else FULL), **(settings or {})}
    folder = run_folder(NAME, quick, out)
    store = settle(settings, folder, command)
    others = [start_worker(settings, folder) for _ in range(jobs - 1)]
    work(settings, store)
    for process in others:
        process.wait()
    work(settings, store)  # what a process that died has left
    return write_page(settings, store, command)


def write_page(settings, store, command):
    """Write the page of what is measured: of all bases that have a result for every variant."""
    from consilience.report.document import write_document

    fair_page = load_script(HERE / "progressive" / "fair_page.py")
    document = fair_page.describe(TITLE, PAPER, STUDY, settings, read(settings, store), command, store.read_plan())
    with writing(store.folder):
        return Reproduction(store.folder, document, write_document(document, store.folder))


def settle(settings, folder, command=""):
    """The run folder for these settings. Where the arrays lie and how many seeds there are does not identify it."""
    store, asked = Store(folder), asked_of(settings)
    store.settle(asked, lambda: {"asked": asked, "jobs": [], "command": command, "versions": versions_used()})
    return store


def asked_of(settings):
    identifying = {name: value for name, value in settings.items() if name not in ("seeds", "arrays")}
    return json.loads(to_json({"experiment": NAME, **identifying, "version": __version__}))


def job_of(settings, what, base, variant, block=None):
    cell = {"what": what, "base": base, "variant": variant, "block": block}
    return Job(NAME, f"{variant} {base}", block or 0, "", digest([asked_of(settings), cell]))


def blocks_of(settings):
    """Which seeds are trained together."""
    size = settings["block"]
    return [list(range(first, first + size)) for first in range(0, settings["seeds"], size)]


def work(settings, store, until=float("inf")):
    """Measure whatever no other process has measured or is measuring; seeds outermost. until: begin nothing later."""
    # Base by base, so that a run that is stopped early has all variants of some; the slowest variant first.
    order = ["pro", "unimodal-feedback", "wide", "base"]
    pairs = [(base, variant) for base in settings["bases"] for variant in order if variant in settings["variants"]]
    for number, seeds in enumerate(blocks_of(settings)):
        for base, variant in pairs:
            final = job_of(settings, "seeds", base, variant, number)
            with store.claim(final) as mine:
                if not mine or store.done(final) or time.monotonic() > until:
                    continue
                losses = tuned(settings, store, base, variant)
                data = data_of(json.dumps(settings))
                arrays, about = fair_search.compare_seeds(base, variant, losses, seeds, data, settings)
                store.write(final, Result({"chosen": about, "device": device_name()}, arrays))
                logger.info("%s of %s: seeds %s to %s", variant, base, seeds[0], seeds[-1])


def tuned(settings, store, base, variant):
    """Validation losses of the trials, measured once."""
    job = job_of(settings, "trials", base, variant)
    known = store.read(job)
    if known is None:
        began = time.perf_counter()
        losses = fair_search.tune(base, variant, data_of(json.dumps(settings)), settings)
        known = Result({"seconds": time.perf_counter() - began, "device": device_name()}, {"losses": losses})
        store.write(job, known)
    return known.arrays["losses"]


def read(settings, store):
    """What is measured: (base, variant) → losses of the trials, and the results of each block of seeds."""
    found = {}
    for base, variant in product(settings["bases"], settings["variants"]):
        trials = store.read(job_of(settings, "trials", base, variant))
        finals = [
            store.read(job_of(settings, "seeds", base, variant, block)) for block in range(len(blocks_of(settings)))
        ]
        finals = [final for final in finals if final is not None]
        if trials is not None and finals:
            found[base, variant] = trials, finals
    return found


@cache
def data_of(settings):
    settings = json.loads(settings)
    build = {"arrays": settings["arrays"]} if settings.get("arrays") else settings["build"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    epoch_pairs = settings["steps"] * settings["batch_size"]
    return fresh_pairs.FreshPairs(fresh_pairs.arrays_of(build), settings["noise"], epoch_pairs, device)


def device_name():
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def start_worker(settings, folder, seconds=float("inf")):
    command = [sys.executable, str(Path(__file__)), "--settings", json.dumps(settings), "--out", str(folder)]
    return subprocess.Popen([*command, "--seconds", str(seconds)])  # noqa: S603  # its own file


def main():
    """Run it; with --settings only measure, in this process, as one of several on a folder."""
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--quick", action="store_true", help="minutes on two cores instead of full size")
    parser.add_argument("--out", metavar="FOLDER", help="run folder; by default one in runs")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--settings", help="measure with these settings (JSON, over those of the study); write no page")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many seconds")
    parser.add_argument("--keep-arrays", metavar="FILE", help="write what is drawn from to a file, and stop")
    given = parser.parse_args()
    settings = {**(QUICK if given.quick else FULL), **json.loads(given.settings or "{}")}
    if given.keep_arrays:
        fresh_pairs.keep(given.keep_arrays, settings["build"])
    elif given.settings:
        until = time.monotonic() + given.seconds
        store = settle(settings, run_folder(NAME, given.quick, given.out))
        others = [start_worker(settings, store.folder, given.seconds) for _ in range(given.jobs - 1)]
        work(settings, store, until)
        for process in others:
            process.wait()
    else:
        done = run(quick=given.quick, out=given.out, jobs=given.jobs, command=shlex.join(["python", *sys.argv]))
        print("\n".join(done.document.answer))
        print(f"\nreport: {done.page}")


if __name__ == "__main__":
    main()
