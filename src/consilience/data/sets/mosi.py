"""`mosi`: CMU-MOSI's spoken reviews, one feature vector of text, voice and face for each utterance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import read_npz
from consilience.data.named_sets import Files, register
from consilience.data.splits import given_split

_PARTS = ("train", "test")
_NAMES = ("text", "audio", "video")
_FILES = Files(
    folder="mosi",
    names=("utterance_features.npz",),
    what="CMU-MOSI as utterance features",
    origin="the repositories that publish Poria et al.'s (bc-LSTM) features of Zadeh et al.'s CMU-MOSI, as an npz",
    licence="research use",
)


@register("mosi", description="Spoken reviews as text, voice and face; positive or negative (CMU-MOSI)", files=_FILES)
def mosi(folder: Path, *, seed: NonNegativeInt = 0) -> DataSet:
    """Text `[100]`, audio `[73]` and video `[100]`; the official parts, split by video.

    The features come from networks that were trained on the training part's labels: opinions formed on training
    samples, even out-of-fold, are far better than on test samples.
    """
    arrays = read_npz(folder / _FILES.names[0])
    missing = [f"{name}_{part}" for part in _PARTS for name in (*_NAMES, "y") if f"{name}_{part}" not in arrays]
    if missing:
        raise InputError(f"{_FILES.names[0]} lacks {', '.join(missing)}; it holds {', '.join(sorted(arrays))}")
    joined = {name: np.concatenate([arrays[f"{name}_{part}"] for part in _PARTS]) for name in (*_NAMES, "y")}
    y = np.array(["negative", "positive"])[joined["y"].astype(np.int64)]
    words = np.repeat(_PARTS, [len(arrays[f"y_{part}"]) for part in _PARTS])
    samples = Samples.of({name: joined[name].astype(np.float32) for name in _NAMES}, y)
    return DataSet("mosi", samples, "classification", *given_split(words, y, "classification", seed=seed))
