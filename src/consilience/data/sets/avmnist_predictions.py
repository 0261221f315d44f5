"""`avmnist-predictions`: the predictions of three trained networks on the test set of AV-MNIST, for fusing opinions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import read_npz
from consilience.data.named_sets import register, source_files
from consilience.data.splits import draw_split

_EXPERTS = ("image", "audio", "centralnet")
_FILE = "test_probabilities.npz"
_FILES = source_files("avmnist-predictions", _FILE)


@register(
    "avmnist-predictions",
    description="Class probabilities of trained image, audio and CentralNet models on AV-MNIST's test set",
    files=_FILES,
)
def avmnist_predictions(folder: Path, *, run: Literal[1, 2, 3] = 1, seed: NonNegativeInt = 0) -> DataSet:
    """Each modality holds the probabilities `[10]` of one network.

    Some are exactly 0 in 32 bits, so clip them before taking logarithms. All rows are from the test set of AV-MNIST.
    The split into train, validation and test is drawn here, for methods that learn how to fuse.

    Args:
        folder: Of the file.
        run: The training run of the networks.
        seed: Of the split.
    """
    arrays = read_npz(folder / _FILE, required=[*(f"{expert}_{run}" for expert in _EXPERTS), "y"])
    opinions = {expert: arrays[f"{expert}_{run}"] for expert in _EXPERTS}
    for expert, probabilities in opinions.items():
        off = (np.abs(probabilities.sum(axis=-1) - 1) > 1e-3) | (probabilities < 0).any(axis=-1)
        if off.any():
            raise InputError(f"{_FILE}: {expert}_{run} is no probability in {name_rows(np.flatnonzero(off))}")
    y = arrays["y"].astype(np.int64)
    split = draw_split(y, "classification", seed=seed, validation=0.2, test=0.2)
    return DataSet("avmnist-predictions", Samples.of(opinions, y), "classification", *split)
