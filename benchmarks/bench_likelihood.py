"""Joint likelihoods of 1000 points with 1000 draws each: all at once against a loop over points, in one run.

python benchmarks/bench_likelihood.py
"""

from __future__ import annotations

import time

import numpy as np
import torch

from consilience.generative.importance import log_evidence
from consilience.generative.trained import TrainedLatent
from consilience.samples import Samples
from consilience.training import Trainer

POINTS, DRAWS, LOOPED = 1000, 1000, 100


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(POINTS, 4))
    X = {name: z @ rng.normal(size=(4, 16)) + 0.3 * rng.normal(size=(POINTS, 16)) for name in "abcd"}
    samples = Samples.of(X)
    trained = TrainedLatent.fit(samples, latent=16, trainer=Trainer(epochs=2, device="cpu"))
    model, batch = trained.model.eval(), trained.preparation.batch(samples)
    names = list(model.names)

    def at_once() -> torch.Tensor:
        parts = [batch.part(start, start + 250) for start in range(0, POINTS, 250)]
        return torch.cat([log_evidence(model, part, names, DRAWS).value for part in parts])

    def looped() -> torch.Tensor:
        return torch.cat([log_evidence(model, batch.part(row, row + 1), names, DRAWS).value for row in range(LOOPED)])

    def looped_in_hundreds() -> torch.Tensor:
        """Over points, and over draws a hundred at a time, as MultiVae does by default."""
        values = []
        for row in range(LOOPED // 4):
            one = batch.part(row, row + 1)
            values.append(torch.stack([log_evidence(model, one, names, 100).value for _ in range(DRAWS // 100)]))
        return torch.cat(values)

    for work in (at_once, looped, looped_in_hundreds):
        work()
    seconds = {}
    for work, share in ((at_once, 1.0), (looped, POINTS / LOOPED), (looped_in_hundreds, POINTS / (LOOPED // 4))):
        began = time.process_time()
        work()
        seconds[work.__name__] = (time.process_time() - began) * share
    print(f"{POINTS} points, {DRAWS} draws, four modalities of 16; seconds of processor time, one thread")
    for name, value in seconds.items():
        print(f"{name.replace('_', ' '):20} {value:6.2f}   {value / seconds['at_once']:5.1f} × that of all at once")


if __name__ == "__main__":
    main()
