"""DICOM files of one picture, by pydicom (the extra `dicom`)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.data.media.extras import import_extra

_DEFLATED = b"1.2.840.10008.1.2.1.99"
_MOST_PIXELS = 89_000_000


def is_grey(content: bytes) -> bool:
    """Whether a file has one channel."""
    return int(_parse(content, pixels=False).SamplesPerPixel) == 1


def read_dicom(content: bytes) -> np.ndarray:
    """The pixels `[channel, height, width]` in float32, with the file's slope and intercept.

    Pictures whose lowest number is white (MONOCHROME1) are inverted.
    """
    dataset = _parse(content)
    frames, channels = int(dataset.get("NumberOfFrames") or 1), int(dataset.SamplesPerPixel)
    if frames != 1 or channels not in (1, 3):
        raise InputError(f"it holds {frames} pictures of {channels} channels: one picture of 1 or 3 channels is read")
    if int(dataset.Rows) * int(dataset.Columns) > _MOST_PIXELS:
        raise InputError(f"it has {dataset.Columns}×{dataset.Rows} pixels, more than {_MOST_PIXELS}: make it smaller")
    pixels = np.asarray(dataset.pixel_array).astype(np.float32)
    if dataset.get("PhotometricInterpretation") == "MONOCHROME1":
        # The numbers lie in [0, 2^bits) or, if they are signed, in [−2^(bits−1), 2^(bits−1)).
        ends = -1 if int(dataset.PixelRepresentation) else 2 ** int(dataset.BitsStored) - 1
        pixels = ends - pixels
    pixels = pixels * float(dataset.get("RescaleSlope", 1)) + float(dataset.get("RescaleIntercept", 0))
    return np.moveaxis(pixels, -1, 0) if pixels.ndim == 3 else pixels[None]


def _parse(content: bytes, pixels: bool = True) -> Any:
    pydicom = import_extra("pydicom", "dicom", "DICOM files")
    if _DEFLATED in content:  # it is unpacked whole before anything of it is known
        raise InputError("it is deflated, and may unpack to any size: save it without deflation")
    return pydicom.dcmread(io.BytesIO(content), stop_before_pixels=not pixels)
