"""Fill in missing modalities, and single empty cells of a table, with a latent model, from all that is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from consilience.core.samples import Samples
from consilience.methods.latent.trained_latent_model import TrainedLatent


def fill_missing(
    trained: TrainedLatent, samples: Samples, device: str = "auto", draws: int = 0, keep: Samples | None = None
) -> Samples:
    """Return the samples with every missing modality filled in: the mean of the decoder's means at draws of z.

    With draws=0 it is the decoder's mean at the posterior's mean. A regression that the model was trained with is
    combined with it (see `imputation_regression`). A sample without any modality stays as it is. A
    filled sequence is as long as the longest of the training set. What is present has the values of `keep`, by default
    those of the samples.
    """
    keep = samples if keep is None else keep
    anything = samples.present.any(axis=1)
    absent = dict(zip(trained.names, ~samples.present_among(trained.names).T))
    gaps = {name: rows & anything for name, rows in absent.items()}
    incomplete = [name for name, rows in gaps.items() if rows.any()]
    if not incomplete:
        return keep
    rows = np.flatnonzero(np.any([gaps[name] for name in incomplete], axis=0))
    generated = trained.generate(samples[rows], incomplete, average=draws, combined=True, device=device)
    modalities, values, lengths = dict(samples.modalities), dict(keep.values), dict(samples.lengths)
    for name in incomplete:
        modality = trained.preparation.raw[name]
        filled = generated[name].astype(object) if modality.kind == "text" else generated[name]
        steps = filled.shape[1] if modality.timed else 0
        old = _empty(len(samples), filled) if name not in samples else keep.read(name)
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


def fill_cells(trained: TrainedLatent, samples: Samples, device: str = "auto", draws: int = 0) -> Samples:
    """Return the samples with expected values in single empty cells of a table, which held a fill value.

    The model knows which features say where cells are empty, and has not learned from the fill values: its encoders
    read them together with these features, which are 1 there, and no decoder was trained to return them. In the result
    these features are as they were.
    """
    cells = {
        name: _cells(samples, name, trained.model.likelihoods[name].gaps) for name in trained.names if name in samples
    }
    cells = {name: where for name, where in cells.items() if where.any()}
    if not cells:
        return samples
    rows = np.flatnonzero(np.any([where.any(axis=1) for where in cells.values()], axis=0))
    made = trained.generate(samples[rows], list(cells), average=draws, device=device)
    values = {name: np.array(samples.read(name)) for name in cells}
    for name, where in cells.items():
        values[name][rows] = np.where(where[rows], made[name], values[name][rows])
    return samples.replaced(values)


def _cells(samples: Samples, name: str, gaps: Sequence[tuple[int, Sequence[int]]]) -> np.ndarray:
    """Which features hold a fill value `[n, feature]`, where the modality is present."""
    where = np.zeros((len(samples), samples.modalities[name].shape[0] if gaps else 0), dtype=bool)
    for flag, features in gaps:
        where[:, list(features)] = (samples.read(name)[:, flag] == 1)[:, None]
    return where & samples.present_in(name)[:, None]


def _empty(n: int, like: np.ndarray) -> np.ndarray:
    return np.full((n, *like.shape[1:]), "" if like.dtype == object else 0, dtype=like.dtype)


def _same_length(*arrays: np.ndarray) -> list[np.ndarray]:
    """Return arrays `[n, time, …]` padded with zeros to the same number of steps."""
    steps = max(values.shape[1] for values in arrays)
    return [np.pad(values, [(0, 0), (0, steps - values.shape[1]), *[(0, 0)] * (values.ndim - 2)]) for values in arrays]
