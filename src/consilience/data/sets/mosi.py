"""`mosi`: CMU-MOSI's spoken reviews, one feature vector of text, voice and face for each utterance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import read_npz_parts
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_NAMES = ("text", "audio", "video")
_FILES = source_files("mosi", "utterance_features.npz")


@register("mosi", description="Spoken reviews as text, voice and face; positive or negative (CMU-MOSI)", files=_FILES)
def mosi(folder: Path, *, seed: NonNegativeInt = 0) -> DataSet:
    """Text `[100]`, audio `[73]` and video `[100]`; the official parts, split by video.

    The features come from networks that were trained on the training part's labels: opinions formed on training
    samples, even out-of-fold, are far better than on test samples.
    """
    joined, part_of_row = read_npz_parts(folder / _FILES.names[0], (*_NAMES, "y"), ("train", "test"))
    y = np.array(["negative", "positive"])[joined["y"].astype(np.int64)]
    samples = Samples.of({name: joined[name].astype(np.float32) for name in _NAMES}, y)
    return DataSet("mosi", samples, "classification", *given_split(part_of_row, y, "classification", seed=seed))
