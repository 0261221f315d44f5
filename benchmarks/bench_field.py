"""What a training step of the newer methods costs, beside the nearest one of the older methods.

Forward, objective, backward and step of Adam on six vectors with the shapes of `handwritten`, in batches of 64: the
median of ratios of alternating measurements in this one process, in CPU time on one thread. `mla` trains one modality
in a step and is compared with late fusion, which trains all of them.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from consilience import methods
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.preparation import Preparation

WIDTHS = {"pix": 240, "fou": 76, "fac": 216, "zer": 47, "kar": 64, "mor": 6}
SIZE, CLASSES = 64, 10
# Method, the nearest old one, the largest ratio that is accepted.
PAIRS = (
    ("simbamm", "late", 1.5),
    ("simmlm", "pdf", 1.3),
    ("fuml", "ecml", 1.3),
    ("i2moe", "gradient-blend", 1.3),
    ("shaspec", "align", 1.3),
    ("mla", "late", 1.3),
    ("reconboost", "late", 1.3),
)


def stepper(name: str, train: Samples, preparation: Preparation, task: Task):
    """A function that takes one step."""
    torch.manual_seed(0)
    method = methods.build(name, methods.Spec(preparation.modalities, task)).train()
    if name == "mla":
        method.turn.fill_(0)
    batch = preparation.batch(train, slice(0, SIZE))
    optimizer = torch.optim.Adam(method.parameters(), 1e-3, fused=True)
    phase = "boost pix" if name == "reconboost" else "fit"

    def step() -> None:
        losses = method.objective(method(batch), batch, methods.Step(phase=phase))
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def seconds(step, times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - began) / times


def race(rounds: int = 15, times: int = 20) -> dict[str, float]:
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    values = {name: random.normal(size=(SIZE, width)) for name, width in WIDTHS.items()}
    train = Samples.of(values, np.arange(SIZE) % CLASSES)
    task = Task.of(train.y, "classification")
    preparation = Preparation.fit(train, task)
    found = {}
    for name, old, accepted in PAIRS:
        new_step, old_step = (stepper(each, train, preparation, task) for each in (name, old))
        new_step(), old_step()
        pairs = [(seconds(new_step, times), seconds(old_step, times)) for _ in range(rounds)]
        found[name] = statistics.median(new / before for new, before in pairs)
        own, before = (1e3 * statistics.median(column) for column in zip(*pairs))
        print(f"{name:11s} {own:6.2f} ms, {old:5s} {before:6.2f} ms, ratio {found[name]:.2f} (accepted {accepted})")
    return found


if __name__ == "__main__":
    race()
