"""The nets of experiment B.1: the late net, its loops, the two controls, and early fusion as a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.methods import Method, Spec, build

HIDDEN = 16  # units of each of the two layers of a modality
_EARLY = 26  # units of early fusion's two layers: as many parameters as the loop, to within 3 %
BASE = "late"


@dataclass(frozen=True)
class Net:
    """A net to train. label: in tables · method, settings: as `build` takes them · training: what differs for it ·
    against: the net it is compared with, trained in the same way.
    """

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    against: str = BASE

    def build(self, d: int, seeds: Iterable[int]) -> list[Method]:
        """One for each seed. A loop has the first weights of its base: its own links are drawn after them."""
        early = self.method == "early"
        shape = {"name": "mlp", "hidden": [_EARLY if early else HIDDEN] * 2, "dropout": 0.0, "normalise": False}
        modalities = {name: Modality(name, "vector", (d,)) for name in ("x1", "x2")}
        task = Task.of_numbers(np.array([-1.0, 1.0]))  # the targets come standardised, each trial's by its own
        spec = Spec(modalities, task, {} if early else dict.fromkeys(modalities, shape))
        settings = {"encoder": shape} if early else {"width": None, **self.settings}
        built = []
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                built.append(build(self.method, spec, settings))
        return built


MAIN = {
    BASE: Net("late net", "concat"),
    "add": Net("progressive, add", "pro:concat", {"mode": "add"}),
    "concat": Net("progressive, concat", "pro:concat", {"mode": "concat"}),
    "wide": Net("control: wide net", "wide:concat", {"mode": "add"}),
    "unimodal": Net("control: unimodal feedback", "unimodal-feedback:concat", {"mode": "add"}),
    "early": Net("early fusion", "early"),
}
_COSINE = {"schedule": "cosine", "patience": 10**6}  # to the end, where the learning rate is lowest
# Where the feedback joins, how often it runs and how it is trained; judged on validation data.
SEARCH = {
    "add-2": Net("add into layer 2", "pro:concat", {"mode": "add", "into": "block2"}),
    "concat-2": Net("concat into layer 2", "pro:concat", {"mode": "concat", "into": "block2"}),
    "add-r3": Net("add, R = 3", "pro:concat", {"mode": "add", "steps": 3}),
    "add-r4": Net("add, R = 4", "pro:concat", {"mode": "add", "steps": 4}),
    "concat-r3": Net("concat, R = 3", "pro:concat", {"mode": "concat", "steps": 3}),
    "add-losses": Net("add, loss at each pass", "pro:concat", {"mode": "add", "step_loss": 0.5}),
    "add-detach": Net("add, passes detached", "pro:concat", {"mode": "add", "detach": True}),
    "late-cosine": Net("no loop, cosine", "concat", training=_COSINE),
    "add-cosine": Net("add, cosine", "pro:concat", {"mode": "add"}, _COSINE, "late-cosine"),
}
NETS = MAIN | SEARCH
