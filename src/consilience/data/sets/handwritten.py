"""`handwritten`: UCI's Multiple Features, six views of handwritten digits, in the release of Han et al. (TMC)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.matlab import read_views
from consilience.data.named_sets import register, source_files
from consilience.data.splits import VALIDATION_SHARE, given_split

# UCI's names of the views. Their widths differ, so a width identifies a view.
_VIEWS = {240: "pix", 76: "fou", 216: "fac", 47: "zer", 64: "kar", 6: "mor"}
_FILE = "handwritten_6views.mat"
_FILES = source_files("handwritten", _FILE)

Share = Annotated[float, Interval(0.01, 0.5, below=True)]


@register("handwritten", description="Six feature sets of handwritten digits (UCI Multiple Features)", files=_FILES)
def handwritten(folder: Path, *, validation: Share = VALIDATION_SHARE, seed: NonNegativeInt = 0) -> DataSet:
    """Pixel averages (pix), Fourier coefficients (fou), profile correlations (fac), Zernike moments (zer),
    Karhunen-Loève coefficients (kar) and morphology (mor); 1600 for training, 400 test.

    Args:
        folder: Of the file.
        validation: The share of the 1600 that is drawn for validation; the release has no such part.
        seed: Of that draw.
    """
    views, y, part_of_row = read_views(folder / _FILE)
    widths = [value.shape[1] for value in views.values()]
    if sorted(widths) != sorted(_VIEWS):
        raise InputError(f"{_FILE} must have views of {', '.join(map(str, _VIEWS))} features, got {widths}")
    # The file counts classes from 1; its pixel view shows that class 1 is the digit 0.
    y = y.astype(np.int64) - 1
    samples = Samples.of({_VIEWS[value.shape[1]]: value for value in views.values()}, y)
    split = given_split(part_of_row, y, "classification", seed=seed, validation=validation)
    return DataSet("handwritten", samples, "classification", *split)
