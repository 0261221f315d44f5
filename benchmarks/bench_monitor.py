"""How often `Monitor` raises a false alarm, and how many rows it takes to notice a sensor that breaks.

Two sets: three generated sensors, and digits. A `bayes-robust` is trained; reference and stream are drawn from rows it
has not seen, without repetition. Clean streams count how often any alarm is raised. In the others the first modality
breaks at a known row and stays broken; the delay is the number of rows until an alarm says that this modality is less
reliable, less trusted, missing or repeated. "wrong" is the share of streams in which another modality was named first.

    python benchmarks/bench_monitor.py --keep docs/watch.json
"""

import argparse
import json
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

import consilience as cs
from consilience.core.samples import Samples
from consilience.estimators import monitor as module
from consilience.estimators.monitored_values import Measured, measure
from consilience.evaluation.stream_alarms import ABSENCE, REPETITION, Alarm

REFERENCE, CLEAN_ROWS, BREAKS_AT, BROKEN_ROWS = 300, 500, 200, 300
SHARES = (0.1, 0.05, 0.01)
FAULTS = ("offset", "noise", "swapped", "stuck", "missing")
MISSING_SHARE = 0.3


def sensors(seed=0, train=1000, pool=20_000):
    """Three generated sensors of four channels each, three classes: training samples, and rows to draw from."""
    rng = np.random.default_rng(seed)
    centres = {name: 1.2 * rng.normal(size=(3, 4)) for name in ("vibration", "audio", "current")}

    def draw(n):
        y = rng.integers(3, size=n)
        return Samples.of({name: own[y] + rng.normal(size=(n, 4)) for name, own in centres.items()}, y)

    return draw(train), draw(pool)


def digits(seed=0):
    """The four quarters of handwritten digits."""
    data = cs.load_data("digits")
    rows = np.random.default_rng(seed).permutation(len(data.samples))
    return data.samples.select(rows[:700]), data.samples.select(rows[700:])


def break_first(samples, fault, reference, rng):
    """The samples with their first modality broken; numbers are in standard deviations of each column."""
    name = samples.names[0]
    values, known = np.asarray(samples[name], dtype=np.float64), np.asarray(reference[name], dtype=np.float64)
    scale = known.std(axis=0)
    if fault == "missing":
        there = samples.present.copy()
        there[rng.random(len(samples)) < MISSING_SHARE, samples.names.index(name)] = False
        return samples.replaced({}, present=there)
    broken = {
        "offset": lambda: values + 2 * scale,
        "noise": lambda: values + 2 * scale * rng.normal(size=values.shape),
        "swapped": lambda: known[rng.integers(len(known), size=len(values))],
        "stuck": lambda: np.repeat(values[:1], len(values), axis=0),
    }[fault]()
    return samples.replaced({name: broken})


def select(measured, rows):
    """Some rows of what was measured."""
    posterior = None if measured.posterior is None else measured.posterior[rows]
    return Measured(
        measured.quantities,
        measured.values[rows].copy(),
        measured.cells[rows].copy(),
        measured.patterns[rows],
        measured.codes[rows],
        posterior,
    )


def names_fault(alarm: Alarm) -> bool:
    """Whether an alarm says that something is wrong with its modality."""
    return bool(alarm.modality) and (alarm.fell or alarm.kind in (ABSENCE, REPETITION))


def clean_streams(model, pool, streams, rng):
    """The share of streams with any alarm, by the share that was stated."""
    raised = dict.fromkeys(SHARES, 0)
    for stream in range(streams):
        rows = rng.permutation(len(pool.values))[: REFERENCE + CLEAN_ROWS]
        for share in SHARES:  # from large to small: without an alarm at a large share, there is none at a small one
            watching = cs.Monitor(model, select(pool, rows[:REFERENCE]), false_alarms=share, random_state=stream)
            if not watching.update(select(pool, rows[REFERENCE:])).alarms:
                break
            raised[share] += 1
    return {str(share): count / streams for share, count in raised.items()}


def delays(model, pool, samples, fault, streams, rng):
    """Rows until the broken modality is named (nan: not within the stream), and whether another one was first."""
    found, wrong = np.full(streams, np.nan), np.zeros(streams, dtype=bool)
    broken_name = samples.names[0]
    measured = None if fault == "stuck" else measure(model, break_first(samples, fault, samples, rng))
    for stream in range(streams):
        rows = rng.permutation(len(samples))[: REFERENCE + BREAKS_AT + BROKEN_ROWS]
        before, after = rows[REFERENCE : REFERENCE + BREAKS_AT], rows[REFERENCE + BREAKS_AT :]
        watching = cs.Monitor(model, select(pool, rows[:REFERENCE]), random_state=stream)
        watching.update(select(pool, before))
        watching.reset()
        if measured is None:
            broken = measure(model, break_first(samples.select(after), fault, samples, rng))
        else:
            broken = select(measured, after)
        for start in range(0, BROKEN_ROWS, 25):
            named = [a for a in watching.update(select(broken, slice(start, start + 25))).alarms if names_fault(a)]
            wrong[stream] |= bool(named) and named[0].modality != broken_name
            if own := [alarm for alarm in named if alarm.modality == broken_name]:
                found[stream] = own[0].row - BREAKS_AT + 1
                break
    return found, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=["sensors", "digits"], default=["sensors", "digits"])
    parser.add_argument("--clean", type=int, default=1000, help="clean streams")
    parser.add_argument("--broken", type=int, default=200, help="streams of each fault")
    parser.add_argument("--keep", type=Path, help="a JSON file for all figures, such as docs/watch.json")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    content = {"reference": REFERENCE, "clean_rows": CLEAN_ROWS, "broken_rows": BROKEN_ROWS, "sets": {}}
    started = time.process_time()
    for name in asked.sets:
        train, samples = {"sensors": sensors, "digits": digits}[name]()
        model = cs.FusionClassifier("bayes-robust", epochs=30, random_state=0, device="cpu").fit(train)
        pool, rng = measure(model, samples.without_targets()), np.random.default_rng(1)
        samples = samples.without_targets()
        with patch.object(module, "measure", lambda _, X, present=None: X):  # what was measured once
            own = {"clean": {"streams": asked.clean, "raised": clean_streams(model, pool, asked.clean, rng)}}
            print(f"{name}: of {asked.clean} clean streams of {CLEAN_ROWS} rows with an alarm", own["clean"]["raised"])
            for fault in FAULTS:
                found, wrong = delays(model, pool, samples, fault, asked.broken, rng)
                never = np.where(np.isnan(found), np.inf, found)
                quantiles = [float(q) for q in np.quantile(never, [0.5, 0.95], method="inverted_cdf")]
                own[fault] = {
                    "median": None if np.isinf(quantiles[0]) else quantiles[0],
                    "95 %": None if np.isinf(quantiles[1]) else quantiles[1],
                    "found": float(np.isfinite(found).mean()),
                    "wrong": float(wrong.mean()),
                }
                print(f"{name}, {fault}: {own[fault]}", flush=True)
        content["sets"][name] = {"streams": asked.broken, **own}
    print(f"{time.process_time() - started:.0f} seconds of processor time")
    if asked.keep is not None:
        asked.keep.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
