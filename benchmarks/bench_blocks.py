"""Where rows resemble their neighbours: is `auto` as sure as its held-out blocks say, on blocks that it never saw?

Of the training rows of a component of the hydraulic rig a fifth, in other blocks of 45 cycles, judges. A temperature of
the whole answer is fitted to both: what held-out blocks of the training would choose, and what would have been best.

    python benchmarks/bench_blocks.py --components accumulator --size 300 --seeds 1 --keep docs/defaults_blocks.json
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from itertools import product
from pathlib import Path

import default_sets
import numpy as np
import torch
from scipy.optimize import minimize_scalar

from consilience.training import Model, Trainer

COMPONENTS = ("cooler", "valve", "pump", "accumulator")


def log_loss(log_p: np.ndarray, y: np.ndarray, temperature: float = 1.0) -> float:
    """The mean log-loss of log-probabilities `[n, class]`, divided by a temperature.

    >>> log_loss(np.log([[0.8, 0.2]]), np.array([0])).__round__(3)
    0.223
    """
    logits = log_p / temperature
    return float(-(logits - np.logaddexp.reduce(logits, axis=1)[:, None])[np.arange(len(y)), y].mean())


def best_temperature(log_p: np.ndarray, y: np.ndarray) -> float:
    """The temperature with the lowest log-loss."""
    found = minimize_scalar(lambda power: log_loss(log_p, y, np.exp(power)), bounds=(-2, 3), method="bounded")
    return float(np.exp(found.x))


def measure(component: str, size: int | str, seed: int) -> dict[str, float]:
    """Accuracy in per cent, log-loss and best temperature on held-out and on judged rows."""
    torch.set_num_threads(1)
    learned, judged = default_sets.hold_out(f"hydraulic-{component}", size, seed)
    judged = judged[np.isin(judged.y, np.unique(learned.y))]
    trainer = Trainer(seed=seed, device="cpu")
    model = Model.fit("auto", learned, encoders="auto", task="classification", trainer=trainer, keep_held_out=True)
    held_out = model.method.held_out_output(np.arange(len(learned)), learned.present_among(model.method.names))
    answers = {
        "held out": (held_out, model.task.encode(learned.y)),
        "judged": (model.predict(judged, device="cpu").output, model.task.encode(judged.y)),
    }
    figures: dict[str, float] = {"rows": len(learned)}
    for part, (output, y) in answers.items():
        log_p = output.double().log_softmax(dim=1).numpy()
        figures[f"{part}, accuracy"] = 100 * float((log_p.argmax(axis=1) == y).mean())
        figures[f"{part}, log-loss"] = log_loss(log_p, y)
        figures[f"{part}, best temperature"] = best_temperature(log_p, y)
        figures[f"{part}, log-loss at it"] = log_loss(log_p, y, figures[f"{part}, best temperature"])
    shares = np.bincount(answers["held out"][1]) / len(learned)
    figures["class shares, log-loss"] = float(-np.log(shares[answers["judged"][1]]).mean())
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Measure what is not kept yet, and print it."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--components", nargs="+", default=["pump"], choices=COMPONENTS)
    reader.add_argument("--size", default="300", help="training rows, or all")
    reader.add_argument("--seeds", type=int, default=1)
    reader.add_argument("--sets-from", type=Path, help="a folder of bench_defaults.py --keep-sets")
    reader.add_argument("--keep", type=Path, help="a JSON file for all figures; what it holds is not computed again")
    asked = reader.parse_args()
    if asked.sets_from is not None:
        os.environ[default_sets.KEPT] = str(asked.sets_from)
    size = asked.size if asked.size == default_sets.ALL else int(asked.size)
    kept = asked.keep is not None and asked.keep.is_file()
    found = json.loads(asked.keep.read_text(encoding="utf-8")) if kept else {}
    for seed, component in product(range(asked.seeds), asked.components):
        key = f"{component}|{size}|{seed}"
        if key not in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[key] = measure(component, size, seed)
            if asked.keep is not None:
                asked.keep.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(key, found[key], flush=True)


if __name__ == "__main__":
    main()
