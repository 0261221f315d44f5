"""What a trained latent model makes of every subset of the parts of a picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.comparison.experiments.latent_parts.pictures import Pictures, flat, joined
from consilience.core.samples import Samples
from consilience.methods.latent.generation_metrics import linear_probe
from consilience.methods.latent.trained_latent_model import TrainedLatent

# Below so many effective draws an estimated log-likelihood is not to be leaned on.
FEW_DRAWS = 10
# Pictures that are kept to be looked at.
SHOWN = 8


def measure(
    trained: TrainedLatent,
    pictures: Pictures,
    sizes: Sequence[int],
    *,
    draws: int,
    estimated: int | None = None,
    device: str = "cpu",
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Each test sample's figures, and what there is but once.

    `squared_error` and `coherent` `[size, n]`, the mean over all subsets of a size; `conditional` `[size, m]` and
    `joint` `[m]`, of the first m = `estimated` test samples; `index` `[n]`; `pictures`, see `look`.
    """
    test, judge = pictures.test, pictures.judge
    likely = test[:estimated]
    joint = trained.log_likelihood(likely, draws=draws, device=device)
    found: dict[str, list[np.ndarray]] = {"squared_error": [], "conditional": [], "coherent": []}
    effective = [joint.effective_samples]
    for size in sizes:
        each: dict[str, list[np.ndarray]] = {name: [] for name in found}
        for given in itertools.combinations(test.names, size):
            of = [name for name in test.names if name not in given]
            made = trained.generate(test, of, given, device=device)
            each["squared_error"].append(np.square(flat(test, of) - flat(made, of)).mean(axis=1))
            each["coherent"].append(judge.predict({**dict(test), **made}) == test.y)
            evidence = trained.log_likelihood(likely, list(given), draws=draws, device=device)
            effective.append(evidence.effective_samples)
            each["conditional"].append((joint.value - evidence.value).numpy())
        for name, values in each.items():
            found[name].append(np.mean(values, axis=0))
    arrays = {name: np.stack(values) for name, values in found.items()}
    arrays |= {"joint": joint.value.numpy(), "index": test.index, "pictures": look(trained, test[:SHOWN], device)}
    latents = [trained.encode(part, device=device)[0] for part in (pictures.train, test)]
    effective_draws = np.concatenate([one.numpy() for one in effective])
    about = {
        "judge": float(np.mean(judge.predict(test) == test.y)),
        "probe": linear_probe(latents[0], np.asarray(pictures.train.y), latents[1], np.asarray(test.y)),
        "effective_samples": float(np.median(effective_draws)),
        "few_draws": float(np.mean(effective_draws < FEW_DRAWS)),
    }
    return arrays, about


def look(trained: TrainedLatent, samples: Samples, device: str = "cpu") -> np.ndarray:
    """Whole pictures of which the first half of the parts is given, `[3, n, height, width]`: what is given with zeros
    elsewhere, that with the rest generated, and the true ones.
    """
    true = {name: np.asarray(samples[name], dtype=np.float32) for name in samples.names}
    given = samples.names[: len(samples.names) // 2]
    made = trained.generate(samples, [name for name in samples.names if name not in given], given, device=device)
    blank = {name: true[name] if name in given else np.zeros_like(true[name]) for name in true}
    return np.stack([joined(one) for one in (blank, true | made, true)])
