"""Missing modalities filled in with what a latent model expects of them, given those that are there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.core.samples import Samples
from consilience.methods.latent.trained_latent_model import TrainedLatent


def fill_missing(trained: TrainedLatent, samples: Samples, device: str = "auto") -> Samples:
    """The same samples with every missing modality filled in, and present.

    What is filled in is the decoder's mean at the posterior's mean. A sample that has nothing at all stays as it is:
    there is nothing to conclude from. A filled sequence is as long as the longest of training.
    """
    anything = samples.present.any(axis=1)
    absent = {
        name: ~samples.present_in(name) if name in samples else np.ones(len(samples), bool) for name in trained.names
    }
    gaps = {name: rows & anything for name, rows in absent.items()}
    wanted = [name for name, rows in gaps.items() if rows.any()]
    if not wanted:
        return samples
    rows = np.flatnonzero(np.any([gaps[name] for name in wanted], axis=0))
    made = trained.generate(samples[rows], wanted, device=device)
    modalities, values, lengths = dict(samples.modalities), dict(samples.values), dict(samples.lengths)
    for name in wanted:
        modality = trained.preparation.raw[name]
        filled = made[name].astype(object) if modality.kind == "text" else made[name]
        steps = filled.shape[1] if modality.timed else 0
        old = _empty(len(samples), filled) if name not in samples else samples.read(name)
        if modality.timed:
            old, filled = _as_long(old, filled)
            before = lengths.get(name, np.zeros(len(samples), dtype=np.int64))
            lengths[name] = np.where(gaps[name], steps, before)
        new = np.array(old, dtype=filled.dtype if old.dtype.kind != "f" else old.dtype)
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
    )


def _empty(n: int, like: np.ndarray) -> np.ndarray:
    return np.full((n, *like.shape[1:]), "" if like.dtype == object else 0, dtype=like.dtype)


def _as_long(*arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays `[n, time, …]` padded with zeros to the same number of steps."""
    steps = max(one.shape[1] for one in arrays)
    return [np.pad(one, [(0, 0), (0, steps - one.shape[1]), *[(0, 0)] * (one.ndim - 2)]) for one in arrays]
