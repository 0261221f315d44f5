"""Fill in missing modalities with a latent model, from those that are present."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.core.samples import Samples
from consilience.methods.latent.trained_latent_model import TrainedLatent


def fill_missing(trained: TrainedLatent, samples: Samples, device: str = "auto", draws: int = 0) -> Samples:
    """Return the samples with every missing modality filled in: the mean of the decoder's means at draws of z.

    With draws=0 it is the decoder's mean at the posterior's mean. A sample without any modality stays as it is. A
    filled sequence is as long as the longest of the training set.
    """
    anything = samples.present.any(axis=1)
    absent = dict(zip(trained.names, ~samples.present_among(trained.names).T))
    gaps = {name: rows & anything for name, rows in absent.items()}
    incomplete = [name for name, rows in gaps.items() if rows.any()]
    if not incomplete:
        return samples
    rows = np.flatnonzero(np.any([gaps[name] for name in incomplete], axis=0))
    generated = trained.generate(samples[rows], incomplete, average=draws, device=device)
    modalities, values, lengths = dict(samples.modalities), dict(samples.values), dict(samples.lengths)
    for name in incomplete:
        modality = trained.preparation.raw[name]
        filled = generated[name].astype(object) if modality.kind == "text" else generated[name]
        steps = filled.shape[1] if modality.timed else 0
        old = _empty(len(samples), filled) if name not in samples else samples.read(name)
        if modality.timed:
            old, filled = _same_length(old, filled)
            before = lengths.get(name, np.zeros(len(samples), dtype=np.int64))
            lengths[name] = np.where(gaps[name], steps, before)
        new = np.array(old, dtype=np.result_type(old.dtype, filled.dtype))
        new[gaps[name]] = filled[gaps[name][rows]]
        values[name] = new
        modalities[name] = replace(modality, shape=new.shape[1:])
    order = [name for name in trained.names if name in modalities]
    present = np.stack([~absent[name] | gaps[name] for name in order], axis=1)
    return Samples(
        {name: modalities[name] for name in order},
        {name: values[name] for name in order},
        present,
        {name: lengths[name] for name in order if name in lengths},
        samples.y,
        samples.weight,
        samples.index,
        samples.group,
        samples.time,
    )


def _empty(n: int, like: np.ndarray) -> np.ndarray:
    return np.full((n, *like.shape[1:]), "" if like.dtype == object else 0, dtype=like.dtype)


def _same_length(*arrays: np.ndarray) -> list[np.ndarray]:
    """Return arrays `[n, time, …]` padded with zeros to the same number of steps."""
    steps = max(values.shape[1] for values in arrays)
    return [np.pad(values, [(0, 0), (0, steps - values.shape[1]), *[(0, 0)] * (values.ndim - 2)]) for values in arrays]
