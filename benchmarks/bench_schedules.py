"""Does a schedule for each modality help `late` and `concat`? Accuracy and log-loss on held-out training rows.

A modality that learns fast is over-fitted before a slow one has learned. Each schedule treats modalities differently;
a rule is worth having only if it helps on sets that it was not chosen on, so for each set the schedule with the lowest
mean log-loss on all others is judged. Of the training rows of a set some are drawn to learn from, a fifth of which
judges, in blocks where test rows are blocks. Test rows have no part in it.

    python benchmarks/bench_schedules.py --sets all --out schedules.json --jobs 2
    python benchmarks/bench_schedules.py --show schedules.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import default_sets
import numpy as np
import torch
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits
from timed_runs import results_within
from torch import Tensor, nn

from consilience import FusionClassifier
from consilience.methods.losses import expert_losses
from consilience.training.callbacks import Callback
from consilience.training.training_settings import LEAST_STEPS, PATIENCE_STEPS

METHODS = ("late", "concat")
# The training rows of breast-tcga-official are rows of breast-tcga, and every method knows the cooler's condition.
SETS = tuple(name for name in default_sets.SETS if name not in ("breast-tcga-official", "hydraulic-cooler"))
TOGETHER = "together"


class RateByWidth(Callback):
    """The encoder of a modality learns at a rate ∝ 1/√features, relative to the narrowest one.

    A wide input moves its encoder's outputs further with each step. Every update of the weights is shortened, which is
    a lower rate without an optimizer of its own.
    """

    def on_phase_start(self, run: Any) -> None:
        """Note the weights and the factor of each encoder."""
        widths = {name: np.prod(modality.shape) for name, modality in run.module.modalities.items()}
        self.scaled = [
            (weight, float(np.sqrt(min(widths.values()) / widths[name])), weight.detach().clone())
            for name, encoder in run.module.encoders.items()
            for weight in encoder.parameters()
        ]

    @torch.no_grad()
    def on_step_end(self, run: Any) -> None:
        """Shorten the update."""
        for weight, factor, before in self.scaled:
            weight.copy_(before.lerp(weight, factor))
            before.copy_(weight)


class OwnStop(Callback):
    """The expert of a modality stops at its own lowest validation loss, by the rule that stops a whole training.

    For `late`, whose experts have a loss of their own.
    """

    def on_phase_start(self, run: Any) -> None:
        """Begin with every expert learning."""
        self.best = dict.fromkeys(run.module.names, (np.inf, 0))
        self.weights: dict[str, dict[str, Tensor]] = {}
        self.stopped: set[str] = set()

    @torch.no_grad()
    def on_epoch_start(self, run: Any) -> None:
        """Judge the experts, and end those that have waited long enough."""
        method, batch = run.module, run.validation.everything
        own = expert_losses(method.task, method.eval()(batch).opinions, batch)
        own = (own * batch.present).sum(dim=0) / batch.present.sum(dim=0).clamp(min=1)
        for name, loss in zip(method.names, own.tolist()):
            if name in self.stopped:
                continue
            parts = self._parts(run, name)
            if loss < self.best[name][0]:
                self.best[name] = loss, run.steps
                self.weights[name] = {key: value.detach().clone() for key, value in parts.state_dict().items()}
            elif len(self.stopped) + 1 == len(method.names):
                return  # the last one ends with the training
            elif run.steps >= LEAST_STEPS and run.steps - self.best[name][1] >= PATIENCE_STEPS:
                self.stopped.add(name)
                parts.load_state_dict(self.weights[name])
                for weight in parts.parameters():
                    weight.requires_grad_(False)
                    weight.grad = None

    def on_phase_end(self, run: Any) -> None:
        """Leave no weight frozen."""
        for name in self.stopped:
            for weight in self._parts(run, name).parameters():
                weight.requires_grad_(True)

    def _parts(self, run: Any, name: str) -> nn.ModuleList:
        return nn.ModuleList([run.module.encoders[name], run.module.heads[name]])


# What the estimator is given beside its defaults.
SCHEDULES: dict[str, dict[str, Any]] = {
    TOGETHER: {},
    "rate by width": {"callbacks": RateByWidth},
    "own stop": {"callbacks": OwnStop},
    **{balance: {"balance": balance} for balance in ("ogm-ge", "agm", "pmr", "mmpareto")},
    "dropout of modalities": {"modality_dropout": 0.25},
}


def possible(method: str, schedule: str) -> bool:
    """Whether a method can have a schedule: features of `concat` are no opinions, whose loss could stop them."""
    return method == "late" or schedule != "own stop"


def measure(name: str, size: int | str, seed: int, method: str, schedule: str) -> tuple[str, list[float]]:
    """Return the key of a run, and its accuracy in per cent, log-loss and processor seconds."""
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learned, judged = default_sets.hold_out(name, size, seed)
        judged = judged[np.isin(judged.y, np.unique(learned.y))]
        given = dict(SCHEDULES[schedule])
        if "callbacks" in given:
            given["callbacks"] = [given["callbacks"]()]
        begun = time.process_time()
        model = FusionClassifier(method, random_state=seed, device="cpu", **given).fit(learned)
        seconds = time.process_time() - begun
        p = model.predict_proba(judged).astype(np.float64)
        right = model.classes_[p.argmax(axis=1)] == judged.y
        loss = log_loss(judged.y, p / p.sum(axis=1, keepdims=True), labels=model.classes_)
        figures = [100 * float(right.mean()), float(loss), seconds]
    return " ".join(map(str, (name, size, seed, method, schedule.replace(" ", "-")))), np.round(figures, 5).tolist()


def in_sets(found: Mapping[str, list[float]], method: str) -> dict[str, dict[str, np.ndarray]]:
    """Set and size → schedule → mean accuracy and log-loss over the seeds that all schedules have."""
    runs: dict[str, dict[str, dict[str, list[float]]]] = {}
    for key, figures in found.items():
        name, size, seed, own, schedule = key.split()
        if own == method:
            runs.setdefault(f"{name} {size}", {}).setdefault(seed, {})[schedule] = figures[:2]
    titles = {schedule.replace(" ", "-") for schedule in SCHEDULES if possible(method, schedule)}
    means = {}
    for name, by_seed in runs.items():
        whole = [own for own in by_seed.values() if titles <= own.keys()]
        if whole:
            means[name] = {title: np.mean([own[title] for own in whole], axis=0) for title in sorted(titles)}
    return means


def left_out(means: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, str]:
    """Set → the schedule with the lowest mean log-loss on all other sets; sizes of a set are left out together."""
    chosen = {}
    for name in means:
        others = [own for other, own in means.items() if other.split()[0] != name.split()[0]]
        if others:
            chosen[name] = min(others[0], key=lambda title: np.mean([own[title][1] for own in others]))
    return chosen


def show(found: Mapping[str, list[float]]) -> None:
    """Print the means over sets, and what the choice on other sets gains on each."""
    for method in METHODS:
        means = in_sets(found, method)
        if not means:
            continue
        print(f"\n{method}: accuracy in per cent / log-loss, mean over {len(means)} sets")
        for title in next(iter(means.values())):
            accuracy, loss = np.mean([own[title] for own in means.values()], axis=0)
            print(f"  {title:22} {accuracy:.2f} / {loss:.4f}")
        for name, title in left_out(means).items():
            gain = means[name][title] - means[name][TOGETHER]
            print(f"  {name:26} {title:22} {gain[0]:+.2f} / {gain[1]:+.4f}")


def main() -> None:
    """Measure what is not kept yet, and show everything."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--out", type=Path, help="a JSON file for all figures; what it holds is not computed again")
    reader.add_argument("--show", type=Path, help="print the figures of such a file and compute nothing")
    reader.add_argument("--sets", nargs="+", default=["wine"], choices=[*default_sets.SETS, "all"])
    reader.add_argument("--size", type=int, default=300, help="training rows; of a smaller set all")
    reader.add_argument("--seeds", type=int, default=2)
    reader.add_argument("--jobs", type=int, default=1)
    reader.add_argument("--minutes", type=float, help="end after so many minutes; runs under way are lost")
    reader.add_argument("--sets-from", type=Path, help="a folder of bench_defaults.py --keep-sets")
    asked = reader.parse_args()
    if asked.show is not None:
        show(json.loads(asked.show.read_text(encoding="utf-8")))
        return
    if asked.sets_from is not None:
        os.environ[default_sets.KEPT] = str(asked.sets_from)
    found = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out is not None and asked.out.is_file() else {}
    sets = SETS if "all" in asked.sets else asked.sets
    tasks = []
    for seed, name, method, schedule in product(range(asked.seeds), sets, METHODS, SCHEDULES):
        size = asked.size if asked.size < len(default_sets.draw(name, default_sets.ALL, seed).train) else "all"
        key = f"{name} {size} {seed} {method} {schedule.replace(' ', '-')}"
        if possible(method, schedule) and key not in found:
            tasks.append((name, size, seed, method, schedule))
    for key, figures in results_within(measure, tasks, asked.jobs, asked.minutes):
        found[key] = figures
        print(key, figures, flush=True)
        if asked.out is not None:
            asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show(found)


if __name__ == "__main__":
    main()
