"""`nyu-depth` and `sun-rgbd`: rooms in colour and depth, in the layout of Han et al. (TMC) and Zhang et al. (QMF).

There is a folder for each part and in it one for each class, `train/CLASS/*.png`. The left half of a picture is the
colour image, the right half the depth, drawn in colours. NYU's own release, one MATLAB 7.3 file without this split, is
not supported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.media.picture_folders import load_images
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_PARTS = ("train", "val", "test")
_NEEDED = ("train/", "test/")
_PICTURES = (".png", ".jpg", ".jpeg")
_NYU = source_files("nyu-depth", *_NEEDED)
_SUN = source_files("sun-rgbd", *_NEEDED)
SIZE = 64
Side = Annotated[int, Interval(8)]


@register("nyu-depth", description="Ten kinds of rooms in colour and depth (NYU Depth V2, QMF's folders)", files=_NYU)
def nyu_depth(folder: Path, *, size: Side = SIZE, seed: NonNegativeInt = 0) -> DataSet:
    """Images `rgb` and `depth` of bytes `[3, size, size]`; train, test and, if there is a folder val, validation.

    Args:
        folder: Of the pictures.
        size: Pixels of a side; the papers take 224.
        seed: Of the validation part, if there is no folder val.
    """
    return _read("nyu-depth", folder, size, seed)


@register("sun-rgbd", description="Nineteen kinds of rooms in colour and depth (SUN RGB-D, QMF's folders)", files=_SUN)
def sun_rgbd(folder: Path, *, size: Side = SIZE, seed: NonNegativeInt = 0) -> DataSet:
    """Images `rgb` and `depth`; parts and options are those of `nyu_depth`."""
    return _read("sun-rgbd", folder, size, seed)


def _read(name: str, folder: Path, size: int, seed: int) -> DataSet:
    paths, part_of_row, classes = list_pictures(folder)
    rgb, depth = load_images(paths, int(size), parts=2)
    samples = Samples.of({"rgb": rgb, "depth": depth}, classes)
    return DataSet(name, samples, "classification", *given_split(part_of_row, classes, "classification", seed=seed))


def list_pictures(folder: Path) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """Every picture below `PART/CLASS/`, in the order of their names; its part `[n]` and its class `[n]`."""
    paths, part_of_row, classes = [], [], []
    for part in _PARTS:
        found = sorted(path for path in (folder / part).glob("*/*") if path.suffix.lower() in _PICTURES)
        if not found and f"{part}/" in _NEEDED:
            raise InputError(f"{folder.name}/{part} holds no picture: they lie in {part}/CLASS/*.png")
        paths += found
        part_of_row += [part] * len(found)
        classes += [path.parent.name for path in found]
    return paths, np.array(part_of_row), np.array(classes)
