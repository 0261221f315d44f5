"""`nyu-depth` and `sun-rgbd`: rooms seen in colour and depth, as Han et al. (TMC) and Zhang et al. (QMF) laid them out.

A folder for each part and in it one for each class, `train/CLASS/*.png`; in a picture the left half is the colours and
the right half the depth, drawn as colours. NYU's own release is one MATLAB 7.3 file, which is HDF5, without this split:
it is not read here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.image_files import load_images
from consilience.data.named_sets import Files, register
from consilience.data.splits import given_split

_ORIGIN = (
    "the repositories of Han et al., Trusted Multi-View Classification, or Zhang et al., Provable Dynamic Fusion for "
    "Low-Quality Multimodal Data (QMF), which link the folders of pictures with colours and depth side by side"
)
_LICENCE = "research use"
_PARTS = ("train", "val", "test")
_NEEDED = ("train/", "test/")
_PICTURES = (".png", ".jpg", ".jpeg")
_NYU = Files("nyud2_trainvaltest", _NEEDED, "NYU Depth V2 (Silberman et al.) as scenes", _ORIGIN, _LICENCE)
_SUN = Files("sunrgbd", _NEEDED, "SUN RGB-D (Song et al.) as scenes", _ORIGIN, _LICENCE)
SIZE = 64
Side = Annotated[int, Interval(8)]


@register("nyu-depth", description="Ten kinds of rooms in colour and depth (NYU Depth V2, QMF's folders)", files=_NYU)
def nyu_depth(folder: Path, *, size: Side = SIZE, seed: NonNegativeInt = 0) -> DataSet:
    """Images `rgb` and `depth` of bytes `[3, size, size]`; train, test and, where there is a folder val, validation.

    size: pixels of a side; the papers take 224. seed: of the validation part, where none came with the data.
    """
    return _read("nyu-depth", folder, size, seed)


@register("sun-rgbd", description="Nineteen kinds of rooms in colour and depth (SUN RGB-D, QMF's folders)", files=_SUN)
def sun_rgbd(folder: Path, *, size: Side = SIZE, seed: NonNegativeInt = 0) -> DataSet:
    """Images `rgb` and `depth` of bytes `[3, size, size]`; train, test and, where there is a folder val, validation.

    size: pixels of a side; the papers take 224. seed: of the validation part, where none came with the data.
    """
    return _read("sun-rgbd", folder, size, seed)


def _read(name: str, folder: Path, size: int, seed: int) -> DataSet:
    paths, words, classes = list_pictures(folder)
    rgb, depth = load_images(paths, int(size), parts=2)
    samples = Samples.of({"rgb": rgb, "depth": depth}, classes)
    return DataSet(name, samples, "classification", *given_split(words, classes, "classification", seed=seed))


def list_pictures(folder: Path) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """Every picture below `PART/CLASS/`, in the order of their names; its part `[n]` and its class `[n]`."""
    paths, words, classes = [], [], []
    for part in _PARTS:
        found = sorted(path for path in (folder / part).glob("*/*") if path.suffix.lower() in _PICTURES)
        if not found and f"{part}/" in _NEEDED:
            raise InputError(f"{folder.name}/{part} holds no picture: they lie in {part}/CLASS/*.png")
        paths += found
        words += [part] * len(found)
        classes += [path.parent.name for path in found]
    return paths, np.array(words), np.array(classes)
