"""`breast-tcga`: tumours of The Cancer Genome Atlas by three measurements, one of which the test set does not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.r_data import read_r_data
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_MODALITIES = ("mrna", "mirna", "protein")
_PARTS = {"train": "data.train", "test": "data.test"}
_FILE = "breast.TCGA.rda"
_FILES = source_files("breast-tcga", _FILE)


@register("breast-tcga", description="Breast tumours of three subtypes; no protein in the test set", files=_FILES)
def breast_tcga(folder: Path, *, seed: NonNegativeInt = 0) -> DataSet:
    """Expression of 200 genes (mrna), 184 microRNAs (mirna) and 142 proteins (protein), already normalised.

    150 tumours for training, of which validation is drawn, and 70 for the test, whose proteins were not measured.
    """
    parts = _read_parts(folder / _FILE)
    y = np.concatenate([part["subtype"] for part in parts.values()])
    part_of_row = np.repeat(list(parts), [len(part["subtype"]) for part in parts.values()])
    values = {}
    for name in _MODALITIES:
        width = parts["train"][name].shape[1]
        unmeasured = {word: np.full((len(part["subtype"]), width), np.nan) for word, part in parts.items()}
        columns = [part.get(name, unmeasured[word]) for word, part in parts.items()]
        values[name] = np.concatenate(columns).astype(np.float32)
    split = given_split(part_of_row, y, "classification", seed=seed)
    return DataSet("breast-tcga", Samples.of(values, y), "classification", *split)


def _read_parts(path: Path) -> dict[str, Mapping[str, Any]]:
    """The train and the test part: arrays `[n, feature]` by modality, and the subtypes `[n]`."""
    content = read_r_data(path).get("breast.TCGA")
    if not isinstance(content, dict) or not all(isinstance(content.get(name), dict) for name in _PARTS.values()):
        raise InputError(f"{path.name} must hold a list breast.TCGA with lists data.train and data.test")
    parts = {word: content[name] for word, name in _PARTS.items()}
    for word, part in parts.items():
        wanted = (*_MODALITIES, "subtype") if word == "train" else ("mrna", "mirna", "subtype")
        if missing := [name for name in wanted if name not in part]:
            raise InputError(f"{path.name}: {_PARTS[word]} lacks {', '.join(missing)}; it holds {', '.join(part)}")
        for name in _MODALITIES:
            value = part.get(name, parts["train"][name][:0])
            wanted_shape = (len(part["subtype"]) if name in part else 0, parts["train"][name].shape[-1])
            if value.shape != wanted_shape:
                raise InputError(
                    f"{path.name}: {name} of {_PARTS[word]} must have shape {list(wanted_shape)}, a row for each "
                    f"subtype and the columns of data.train, got {list(value.shape)}"
                )
    return parts
