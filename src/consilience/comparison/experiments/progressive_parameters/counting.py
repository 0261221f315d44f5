"""Building and counting: a cell is one model, with and without a loop that joins at each place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from consilience.comparison.experiments.progressive_avmnist import INTO, Row
from consilience.comparison.plan import Job, digest
from consilience.comparison.store import Result, Store
from consilience.core.samples import Modality
from consilience.core.targets import Task
from consilience.methods import JointMethod, Method, Spec, build
from consilience.version import __version__

MODALITIES = {"image": Modality("image", "image", (1, 28, 28)), "audio": Modality("audio", "image", (1, 112, 112))}
CLASSES = 10
# Parameters in thousands.
TABLE10 = {
    "lowrank": Row("LFN", 1626, 1655),
    "mfm": Row("MFM", 1142, 1163),
    "refnet": Row("RefNet", 582, 607),
    "gradient-blend": Row("GB", 659, 671),
}
# Where the feedback joins, in words, and the loop's settings.
JOINS: dict[str, dict[str, Any]] = {
    "added to the input": {},
    "concatenated to the input": {"mode": "concat"},
    "second stage": {"into": "conv2"},
    "third stage": {"into": "conv3"},
    "fourth stage": {"into": "conv4"},
    "last stage of each": {"into": {"image": "conv4", "audio": "conv6"}},
    "behind the last stage": {"into": "end"},
}
# That of `progressive-table9`.
COMPARED = next(words for words, settings in JOINS.items() if settings == {"into": INTO})


@dataclass(frozen=True)
class Protocol:
    """All models of the table; there is nothing else to choose."""

    experiment: str

    def cells(self) -> list[Job]:
        """A job for each model."""
        return [Job(self.experiment, model, 0, "", digest([model, self.asked()])) for model in TABLE10]

    def asked(self) -> dict[str, Any]:
        """What a run folder must have been made with."""
        return {"experiment": self.experiment, "joins": JOINS, "version": __version__}


def count_cell(cell: Job, protocol: Protocol, store: Store) -> Result:
    """One model's parameters, as the engine asks for them."""
    return Result({"model": cell.method, **count_model(cell.method, MODALITIES)})


def count_model(model: str, modalities: Mapping[str, Modality]) -> dict[str, Any]:
    """`base`, `encoders`: parameters of the model and of its encoders · `added`: what a loop adds at each place ·
    `dense`: what it would add if every pixel had weights of its own.
    """
    spec = Spec(modalities, Task.of_labels(np.arange(CLASSES)), {})
    base = built(model, spec)
    assert isinstance(base, JointMethod)
    total = parameters(base)
    loops = {words: built(f"pro:{model}", spec, settings) for words, settings in JOINS.items()}
    plain = loops["added to the input"]
    # Images of one channel: the link to an input has one weight for each number of the context.
    channels = sum(modality.shape[0] for modality in modalities.values())
    context = (parameters(plain) - total) // channels
    return {
        "base": total,
        "encoders": sum(parameters(encoder) for encoder in base.encoders.values()),
        "added": {words: parameters(loop) - total for words, loop in loops.items()},
        "dense": context * sum(math.prod(modality.shape) for modality in modalities.values()),
    }


def built(name: str, spec: Spec, settings: Mapping[str, Any] | None = None) -> Method:
    """A method, without touching the caller's random numbers."""
    with torch.random.fork_rng(devices=[]):
        return build(name, spec, settings)


def parameters(module: torch.nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in module.parameters())
