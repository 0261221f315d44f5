"""A fair test of progressive fusion: equal tuned budgets, fresh pairs, three degrees of dependence, all six models.

Of every base method and variant the settings are chosen on validation pairs among equally many trials; then models with
new seeds are trained with the chosen ones and tested. Both are kept in the run folder, and a run goes on where it
stopped. Several processes may work on one folder.
"""

import json
import logging
import time
from functools import cache
from itertools import product
from pathlib import Path

import torch
import yaml

from consilience.comparison.plan import Job, digest
from consilience.comparison.store import Result
from consilience.reproduction.study import load_script
from consilience.version import __version__

HERE = Path(__file__).parent
TITLE = "A fair test of progressive fusion: does the loop help when modalities depend on each other?"
PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, table 9"
SETS = ("av-mnist",)
STUDY = yaml.safe_load((HERE / "studies" / "progressive-fair.yaml").read_text(encoding="utf-8"))
FULL, QUICK = STUDY["settings"], STUDY["settings"] | STUDY["quick_settings"]
NAME = "progressive-fair"
fresh_pairs = load_script(HERE / "progressive" / "fresh_pairs.py")
fair_search = load_script(HERE / "progressive" / "fair_search.py")
fair_synthetic = load_script(HERE / "progressive" / "fair_synthetic.py")

logger = logging.getLogger("consilience")


def describe(settings, store, command):
    """The page of what is measured: of all bases that have a result for every variant."""
    fair_page = load_script(HERE / "progressive" / "fair_page.py")
    found, synthetic = read(settings, store), read_synthetic(settings, store)
    return fair_page.describe(TITLE, PAPER, STUDY, settings, found, synthetic, command, store.read_plan())


def job_of(settings, what, base, variant, block=None):
    cell = {"what": what, "base": base, "variant": variant, "block": block}
    return Job(NAME, f"{variant} {base}", block or 0, "", digest([asked_of(settings), cell]))


def blocks_of(settings):
    """Which seeds are trained together."""
    size = settings["block"]
    return [list(range(first, first + size)) for first in range(0, settings["seeds"], size)]


def work(settings, store, until=float("inf")):
    """Measure whatever no other process has measured or is measuring; seeds outermost. until: begin nothing later."""
    for variant in settings["variants"] if settings["synthetic"] else ():
        job = synthetic_job(settings, variant)
        with store.claim(job) as mine:
            if mine and not store.done(job) and time.monotonic() < until:
                store.write(job, measure_synthetic(settings["synthetic"], variant))
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


def synthetic_job(settings, variant):
    return Job(NAME, f"{variant} synthetic", 0, "", digest(["synthetic", settings["synthetic"], variant, __version__]))


def measure_synthetic(settings, variant):
    seeds, device = list(range(settings["draws"])), "cuda" if torch.cuda.is_available() else "cpu"
    errors, chosen = fair_synthetic.measure(variant, fair_search, settings, seeds, device)
    return Result({"chosen": chosen, "device": device_name()}, {"errors": errors})


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


def read_synthetic(settings, store):
    """Variant → result on the synthetic regression; nothing before all variants have one."""
    found = {name: store.read(synthetic_job(settings, name)) for name in settings["variants"] if settings["synthetic"]}
    return {} if None in found.values() else found


@cache
def data_of(settings):
    settings = json.loads(settings)
    build = {"arrays": settings["arrays"]} if settings.get("arrays") else settings["build"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    epoch_pairs = settings["steps"] * settings["batch_size"]
    return fresh_pairs.FreshPairs(fresh_pairs.arrays_of(build), settings["noise"], epoch_pairs, device)


def device_name():
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


shared = load_script(HERE / "shared" / "worked_together.py").SharedStudy(
    NAME,
    __file__,
    FULL,
    QUICK,
    extending=("seeds", "arrays", "synthetic"),
    work=work,
    describe=describe,
    keep=lambda path, settings: fresh_pairs.keep(path, settings["build"]),
)
run, settle, asked_of = shared.run, shared.settle, shared.asked_of

if __name__ == "__main__":
    shared.main(TITLE)
