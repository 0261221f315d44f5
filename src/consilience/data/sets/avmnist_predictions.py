"""`avmnist-predictions`: what three trained networks said about AV-MNIST's test set, for fusing opinions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import read_npz
from consilience.data.named_sets import Files, register
from consilience.data.splits import draw_split

_EXPERTS = ("image", "audio", "centralnet")
_FILE = "test_probabilities.npz"
_FILES = Files(
    folder="avmnist_predictions",
    names=(_FILE,),
    what="the file of saved predictions on AV-MNIST",
    origin="whoever trained the image, audio and CentralNet models (arrays image_1 … centralnet_3 and y)",
    licence="none stated",
)


@register(
    "avmnist-predictions",
    description="Class probabilities of trained image, audio and CentralNet models on AV-MNIST's test set",
    files=_FILES,
)
def avmnist_predictions(folder: Path, *, run: Literal[1, 2, 3] = 1, seed: NonNegativeInt = 0) -> DataSet:
    """Each modality is one network's probabilities `[10]` of training run 1, 2 or 3.

    Some are exactly 0 in 32 bits, so clip before taking logarithms. All rows are AV-MNIST's test set: the split into
    train, validation and test is drawn here, for methods that learn how to fuse.
    """
    arrays = read_npz(folder / _FILE)
    missing = [name for name in (*(f"{expert}_{run}" for expert in _EXPERTS), "y") if name not in arrays]
    if missing:
        raise InputError(f"{_FILE} lacks {', '.join(missing)}; it holds {', '.join(sorted(arrays))}")
    opinions = {expert: arrays[f"{expert}_{run}"] for expert in _EXPERTS}
    for expert, probabilities in opinions.items():
        off = (np.abs(probabilities.sum(axis=-1) - 1) > 1e-3) | (probabilities < 0).any(axis=-1)
        if off.any():
            raise InputError(f"{_FILE}: {expert}_{run} is no probability in {name_rows(np.flatnonzero(off))}")
    y = arrays["y"].astype(np.int64)
    split = draw_split(y, "classification", seed=seed, validation=0.2, test=0.2)
    return DataSet("avmnist-predictions", Samples.of(opinions, y), "classification", *split)
