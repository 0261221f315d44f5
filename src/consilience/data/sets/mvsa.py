"""`mvsa`: MVSA-Single, tweets with a picture and a sentiment, in the split of Zhang et al. (QMF)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Samples
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import read_npz_parts
from consilience.data.files.json_lines import read_json_lines
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_PARTS = ("train", "dev", "test")
_SENTIMENTS = np.array(["negative", "neutral", "positive"])
_FEATURES = source_files("mvsa", "features_effnetlite0_minilm.npz")
_TEXTS = source_files("mvsa-texts", *(f"qmf_{part}.jsonl" for part in _PARTS))


@register("mvsa", description="Tweets with a picture, three sentiments (MVSA-Single, QMF's split)", files=_FEATURES)
def mvsa(folder: Path, *, text: Literal["features", "raw"] = "features") -> DataSet:
    """Image features `[1280]` and text features `[384]`, or with text="raw" the tweets themselves.

    All three parts come with the data.
    """
    joined, part_of_row = read_npz_parts(folder / _FEATURES.names[0], ("img", "txt", "y"), _PARTS)
    if not np.isin(joined["y"], (0, 1, 2)).all():
        raise InputError(f"{_FEATURES.names[0]}: labels must be 0, 1 or 2, got {np.unique(joined['y'])}")
    y = _SENTIMENTS[joined["y"]]
    sentences = joined["txt"].astype(np.float32) if text == "features" else _read_tweets(folder, y)
    samples = Samples.of({"image": joined["img"].astype(np.float32), "text": sentences}, y)
    return DataSet("mvsa", samples, "classification", *given_split(part_of_row, y, "classification"))


def _read_tweets(folder: Path, y: np.ndarray) -> np.ndarray:
    """The tweets in the order of the features, which their labels confirm: strings `[n]`."""
    _TEXTS.check(folder)
    tweets = [tweet for name in _TEXTS.names for tweet in read_json_lines(folder / name, ("text", "label"))]
    if len(tweets) != len(y):
        raise InputError(f"MVSA-Single has {len(tweets)} texts and {len(y)} features: the files do not belong together")
    differ = np.flatnonzero(np.array([tweet["label"] for tweet in tweets]) != y)
    if len(differ):
        raise InputError(
            f"the texts of MVSA-Single are in another order than the features: labels differ in {name_rows(differ)}"
        )
    return np.array([tweet["text"] for tweet in tweets], dtype=object)
