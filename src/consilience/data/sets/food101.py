"""`food-101`: dishes as a picture and the text of the web page it was found on (UPMC Food-101).

The files are those of Kiela et al. (MMBT), which QMF uses: a line of JSON for each sample, with `img` (a path below the
folder, or null), `text` and `label`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Interval
from consilience.data.dataset import DataSet
from consilience.data.files.json_lines import read_json_lines
from consilience.data.media.picture_folders import load_images
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_PARTS = ("train", "dev", "test")
_FILES = source_files("food-101", *(f"{part}.jsonl" for part in _PARTS))
SIZE = 64


@register(
    "food-101", description="101 dishes, a picture and a web page's text (UPMC Food-101, QMF's files)", files=_FILES
)
def food101(folder: Path, *, size: Annotated[int, Interval(8)] = SIZE) -> DataSet:
    """Image of bytes `[3, size, size]`, the middle square of the picture, and text; all three parts come with the data.

    Args:
        folder: Of the files.
        size: Pixels of a side; the papers take 224.
    """
    parts = [read_json_lines(folder / name, ("text", "label")) for name in _FILES.names]
    dishes = [dish for part in parts for dish in part]
    part_of_row = np.repeat(_PARTS, [len(part) for part in parts])
    paths = find_pictures(folder, [dish.get("img") for dish in dishes])
    image = load_images(paths, int(size), crop=True)[0]
    text = np.array([dish["text"] for dish in dishes], dtype=object)
    y = np.array([dish["label"] for dish in dishes])
    seen = np.array([path is not None for path in paths])
    samples = Samples.of({"image": image, "text": text}, y, present={"image": seen})
    return DataSet("food-101", samples, "classification", *given_split(part_of_row, y, "classification"))


def find_pictures(folder: Path, names: Sequence[Any]) -> list[Path | None]:
    """The paths of these files below the folder; None where there is no name."""
    for name in names:
        if name is not None and (not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts):
            raise InputError(f"img must be a path below {folder.name}, or null where there is no picture, got {name!r}")
    paths = [folder / name if name else None for name in names]
    lacking = [str(path.relative_to(folder)) for path in paths if path is not None and not path.is_file()]
    if lacking:
        raise _FILES.missing(lacking[:1], f"lacks {len(lacking)} of the pictures that its lines name")
    return paths
