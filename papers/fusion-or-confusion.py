"""Fusion or confusion: every method tuned with the same budget on every set, clean, with gaps and with noise.

A result is one method on one set with one seed. A run goes on where it stopped, several processes may work on one
folder, and the page is of the sets on which every method has a result.
"""

import logging
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import torch
import yaml
from sklearn.metrics import log_loss

from consilience import FusionClassifier, load_data
from consilience.comparison.plan import Job, digest
from consilience.comparison.store import Result
from consilience.core.errors import ConsilienceError
from consilience.reproduction.study import load_script

HERE = Path(__file__).parent
NAME = "fusion-or-confusion"
TITLE = "Fusion or confusion: which methods are worth having when all are tuned alike?"
PAPER = "After Rheude et al. 2025, Fusion or Confusion? Multimodal Complexity Is Not All You Need"
SETS = ("digits", "gaussians", "breast-tcga", "handwritten", "hydraulic", "mosi", "mvsa", "utd-mhad")
STUDY = yaml.safe_load((HERE / "studies" / f"{NAME}.yaml").read_text(encoding="utf-8"))
DEFAULTS = {"defaults": True}  # a trial with the method's own encoders, rate and steps
FULL, QUICK = STUDY["settings"], STUDY["settings"] | STUDY["quick_settings"]
default_sets = load_script(HERE.parent / "benchmarks" / "default_sets.py")

logger = logging.getLogger("consilience")


def describe(settings, store, command):
    """The page of what is measured."""
    field_page = load_script(HERE / "field" / "field_page.py")
    return field_page.describe(TITLE, PAPER, STUDY, settings, read(settings, store), command, store.read_plan())


def job_of(settings, name, method, seed):
    return Job(name, method, seed, "", digest([asked_of(settings), name, method, seed]))


def jobs_of(settings):
    """All jobs: seeds outermost, then sets as they are listed."""
    for seed in range(settings["seeds"]):
        for name in settings["sets"]:
            for method in settings["methods"]:
                yield name, method, seed


def work(settings, store, until=float("inf")):
    """Measure whatever no other process has measured or is measuring. until: begin nothing later."""
    torch.set_num_threads(1)
    for name, method, seed in jobs_of(settings):
        if time.monotonic() > until:
            return
        job = job_of(settings, name, method, seed)
        if store.has(job):
            continue
        with store.claim(job) as mine:
            if mine and not store.has(job):
                store.write(job, measure(settings, name, method, seed))
                logger.info("%s on %s, seed %d", method, name, seed)


def measure(settings, name, method, seed):
    """Tune a method and test the best trial; an error of the method is a result."""
    began = time.perf_counter()
    parts, (learned, judged) = default_sets.draw(name, "all", seed), default_sets.hold_out(name, "all", seed)
    classes, tried, best = np.unique(learned.y), [], None
    judged = judged[np.isin(judged.y, classes)]
    trials = draw_trials(settings, seed) if method not in settings["untuned"] else [{}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for trial in trials:
            try:
                model = fit(settings, method, trial, learned, judged, seed)
                loss = float(log_loss(judged.y, probabilities(model, judged), labels=classes))
            except ConsilienceError as error:
                tried.append({**trial, "error": f"{type(error).__name__}: {error}"})
                continue
            tried.append({**trial, "validation": loss})
            if best is None or loss < best[0]:
                best = loss, model
        if best is None:
            return Result({"error": tried[0]["error"], "tried": tried})
        scores = {"accuracy": {}, "log-loss": {}}
        for title, samples in default_sets.shown(parts, seed):
            if title in settings["conditions"]:
                p = probabilities(best[1], samples)
                scores["accuracy"][title] = float(np.mean(classes[p.argmax(axis=1)] == parts.test.y))
                scores["log-loss"][title] = float(log_loss(parts.test.y, p, labels=classes))
    seconds = time.perf_counter() - began
    return Result({"scores": scores, "tried": tried, "seconds": seconds, "tested": len(parts.test)})


def fit(settings, method, trial, learned, judged, seed):
    """The estimator of one trial."""
    chosen = settings["balanced"].get(method, {"method": method})
    arguments = {"random_state": seed, "device": "cpu", "verbose": 0}
    if trial == DEFAULTS:
        arguments |= {name: value for name, value in chosen.items() if name == "balance"}
        arguments["validation"] = judged
    elif trial:
        encoder = {"name": "mlp", "hidden": [trial["hidden"]], "dropout": trial["dropout"]}
        rates = {name: trial[name] for name in ("lr", "weight_decay")}
        # `early` has one encoder over all columns.
        encoders = {"encoders": dict.fromkeys(learned.names, encoder)}
        encoders = {"settings": {"encoder": encoder}} if method == "early" else encoders
        arguments |= {**settings["training"], **rates, **encoders}
        arguments |= {name: value for name, value in chosen.items() if name == "balance"}
        arguments["validation"] = judged
    return FusionClassifier(chosen["method"], **arguments).fit(learned)


def probabilities(model, samples):
    """Class probabilities `[n, class]`, classes in sorted order."""
    p = np.asarray(model.predict_proba(samples.without_targets()), dtype=np.float64)
    return p / p.sum(axis=1, keepdims=True)


def draw_trials(settings, seed):
    """The trials of a seed, the same for every method and set: the defaults of the library, and draws."""
    random = np.random.default_rng([20270, seed])

    def spread(limits):
        return float(np.exp(random.uniform(*np.log(limits))))

    draws = [
        {
            "lr": spread(settings["lr"]),
            "weight_decay": spread(settings["weight_decay"]),
            "hidden": int(random.choice(settings["hidden"])),
            "dropout": float(random.choice(settings["dropout"])),
        }
        for _ in range(settings["trials"])
    ]
    return [DEFAULTS, *draws] if settings["with_defaults"] else draws


def read(settings, store):
    """What is measured: (set, method, seed) → result."""
    found = {key: store.read(job_of(settings, *key)) for key in jobs_of(settings)}
    return {key: result for key, result in found.items() if result is not None}


@cache
def generated(name):
    """A generated set as the sets with files are read."""
    return default_sets.Source(load_data("gaussians", **STUDY["generated"][name]).samples)


default_sets.SETS.update({name: (lambda name=name: generated(name)) for name in STUDY["generated"]})


shared = load_script(HERE / "shared" / "worked_together.py").SharedStudy(
    NAME,
    __file__,
    FULL,
    QUICK,
    extending=("sets", "methods", "seeds"),
    work=work,
    describe=describe,
    keep=lambda path, settings: default_sets.keep(settings["sets"], path),
)
run, settle, asked_of = shared.run, shared.settle, shared.asked_of

if __name__ == "__main__":
    shared.main(TITLE)
