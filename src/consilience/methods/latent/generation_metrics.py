"""Metrics of what a latent model generates: errors, coherence, and a linear probe of the latent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.methods.latent.trained_latent_model import TrainedLatent


def generation_errors(samples: Samples, generated: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the error of each generated modality over the samples that have the true one, in the user's units.

    It is the root mean squared error of numbers, the share of wrong ids of tokens, and the share of wrong texts.
    Padding of sequences and tokens is ignored. It is NaN if no sample has the modality.
    """
    errors = {}
    for name, values in generated.items():
        rows = np.flatnonzero(samples.present_in(name))
        kind = samples.modalities[name].kind
        true, guess = np.asarray(samples.read(name, rows)), values[rows]
        if kind in ("sequence", "tokens"):
            real = np.arange(true.shape[1]) < samples.lengths[name][rows, None]
            true, guess = true[real], guess[:, : true.shape[1]][real]
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
    """Return the samples with the modalities `of` generated from `given`; all others are missing.

    The given modalities are kept, or missing too if `keep_given` is False.
    """
    for name in of:
        if name in given:
            raise InputError(f"coherence: modality {name!r} is both given and to be generated")
    generated = trained.generate(samples, of, given, device=device)
    kept = samples.only([name for name in samples.names if name in of or (keep_given and name in given)])
    present = kept.present.copy()
    lengths = {}
    for name, values in generated.items():
        present[:, kept.names.index(name)] = True
        if name in samples.lengths:
            lengths[name] = np.full(len(samples), values.shape[1])
    return kept.replaced(generated, present, lengths)


def coherent(classifier: Any, generated: Any, reference: np.ndarray) -> np.ndarray:
    """Return for each generated sample whether a classifier predicts its reference class: booleans `[n]`."""
    if isinstance(generated, Samples):
        generated = generated.without_targets()
    return np.asarray(classifier.predict(generated)) == reference


def linear_probe(train: np.ndarray, y: np.ndarray, test: np.ndarray, test_y: np.ndarray) -> float:
    """Return the test accuracy of a linear classifier on latents `[n, latent]`, fitted on the training latents."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return float(probe.fit(train, y).score(test, test_y))
