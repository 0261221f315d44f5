"""How good a latent model is beyond its likelihood: errors of what it generates, coherence, what the latent knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.methods.latent.trained_latent_model import TrainedLatent


def generation_errors(samples: Samples, generated: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Each generated modality's error over the samples that have the true one, in the user's units.

    Of numbers the root of the mean squared difference; of tokens the share of wrong ids; of texts the share of texts
    that differ. Padding of sequences and tokens does not count. NaN where no sample has the modality.
    """
    errors = {}
    for name, made in generated.items():
        rows = np.flatnonzero(samples.present_in(name))
        kind = samples.modalities[name].kind
        true, guess = np.asarray(samples.read(name, rows)), made[rows]
        if kind in ("sequence", "tokens"):
            counted = np.arange(true.shape[1]) < samples.lengths[name][rows, None]
            true, guess = true[counted], guess[:, : true.shape[1]][counted]
        if not len(rows):
            errors[name] = float("nan")
        elif kind in ("tokens", "text"):
            errors[name] = float(np.mean(true != guess))
        else:
            errors[name] = float(np.sqrt(np.mean(np.square(true.astype(np.float64) - guess))))
    return errors


def generated_samples(
    trained: TrainedLatent, samples: Samples, of: Sequence[str], given: Sequence[str], keep_given: bool, device: str
) -> Samples:
    """The samples with `of` generated from `given`, which stays as it is or is taken away; all else is missing."""
    for name in of:
        if name in given:
            raise InputError(f"coherence: modality {name!r} is both given and to be generated")
    made = trained.generate(samples, of, given, device=device)
    kept = [name for name in samples.names if name in of or (keep_given and name in given)]
    present = samples.only(kept).present.copy()
    lengths = {}
    for name in made:
        present[:, kept.index(name)] = True
        if name in samples.lengths:
            lengths[name] = np.full(len(samples), made[name].shape[1])
    return samples.only(kept).replaced(made, present, lengths)


def agreement(classifier: Any, generated: Samples, reference: np.ndarray) -> float:
    """The share of generated samples that a classifier takes for what they should be."""
    return float(np.mean(np.asarray(classifier.predict(_plain(generated))) == reference))


def linear_probe(train: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray) -> float:
    """The accuracy of a linear classifier on latents `[n, latent]`, fitted on those of training."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return float(probe.fit(train, y).score(test, test_y))


def _plain(samples: Samples) -> Samples:
    return Samples(samples.modalities, samples.values, samples.present, samples.lengths, None, None, samples.index)
