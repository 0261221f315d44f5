"""Picture files → images `[channel, size, size]`: PNG, JPEG, TIFF … by Pillow, `.npy`, and DICOM by pydicom."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from consilience.core.errors import InputError
from consilience.core.modalities import Kind
from consilience.data.media.array_files import parse_array
from consilience.data.media.extras import MissingPackageError
from consilience.data.media.settings import Family, PictureSettings, check_sample_size

if TYPE_CHECKING:
    from PIL import Image

# Formats that Pillow reads itself; for others, such as EPS, it starts programs.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
DICOM_ENDINGS = (".dcm", ".dicom")
PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".pgm", ".ppm", *DICOM_ENDINGS)
_MOST_PIXELS = 89_000_000  # Pillow itself warns of more than 89 478 485
# Modes of Pillow with more than 8 bits; all of them have one channel.
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")
_GREY = (*_DEEP, "1", "L", "LA")
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def check_pixels(name: Path | str, width: int, height: int) -> None:
    """Refuse a picture of so many pixels that decoding it would take a gigabyte or more."""
    if width * height > _MOST_PIXELS:
        raise InputError(
            f"{name} has {width}×{height} pixels, more than {_MOST_PIXELS}: make it smaller, or leave it out"
        )


@dataclass(frozen=True)
class PictureDecoder:
    """Decodes pictures with settings that are all decided: none of them is "auto"."""

    settings: PictureSettings
    kind: Kind = "image"
    family: ClassVar[Family] = "picture"

    @classmethod
    def learn(cls, name: str, kind: Kind | None, settings: PictureSettings, files: Sequence[str]) -> PictureDecoder:
        """Decide what is "auto" by the headers of some files; unreadable ones are skipped."""
        if "auto" in (settings.colour, settings.values):
            looked = [look for look in map(_look_at, files) if look is not None]
            grey, deep = all(grey for grey, _ in looked), any(deep for _, deep in looked)
            if settings.colour == "auto":
                settings = replace(settings, colour="grey" if looked and grey else "rgb")
            if settings.values == "auto":
                settings = replace(settings, values="float" if deep else "bytes")
        return cls.restore(name, kind or "image", settings)

    @classmethod
    def restore(cls, name: str, kind: Kind, settings: PictureSettings, shape: Sequence[int] = ()) -> PictureDecoder:
        """The decoder of a saved model."""
        if kind != "image":
            raise InputError(f"modality {name!r}: pictures are of kind image, not {kind}")
        if "auto" in (settings.colour, settings.values):
            raise ValueError("the settings of pictures are not decided")
        made = cls(settings)
        check_sample_size(name, made.shape)
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        return (1 if self.settings.colour == "grey" else 3, self.settings.size, self.settings.size)

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        return np.dtype(np.uint8 if self.settings.values == "bytes" else np.float32)

    def to_json(self) -> dict[str, Any]:
        """The settings."""
        return asdict(self.settings)

    def __call__(self, content: bytes, name: str) -> tuple[np.ndarray, int]:
        """Decode the content of a file; the number is 1 if it has colours and grey is read, else 0."""
        ending = os.path.splitext(name)[1].lower()
        if ending == ".npy":
            array = _as_picture(parse_array(content, name))
            return self._fit(array), self._loses(len(array) > 1)
        if ending in DICOM_ENDINGS:
            from consilience.data.media.dicom import read_dicom

            array = read_dicom(content)
            return self._fit(array), self._loses(len(array) > 1)
        from PIL import Image, ImageOps

        settings = self.settings
        with Image.open(io.BytesIO(content), formats=FORMATS) as file:
            check_pixels(name, file.width, file.height)
            _check_single(file)
            lost = self._loses(file.mode not in _GREY)  # a draft may change the mode
            if settings.values == "bytes":
                # A JPEG is decoded no larger than needed.
                file.draft("RGB" if settings.colour == "rgb" else "L", (settings.size, settings.size))
            picture = ImageOps.exif_transpose(file)
            if picture.mode in _DEEP:
                return self._fit(np.asarray(picture)[None]), lost
            return self._fit(picture.convert("RGB" if settings.colour == "rgb" else "L")), lost

    def _loses(self, coloured: bool) -> int:
        return int(coloured and self.settings.colour == "grey")

    def _fit(self, picture: Image.Image | np.ndarray) -> np.ndarray:
        """A picture of Pillow with 8 bits, or an array `[channel, height, width]`, as an image of the settings."""
        from PIL import Image

        settings, mode = self.settings, "RGB" if self.settings.colour == "rgb" else "L"
        if isinstance(picture, np.ndarray) and picture.dtype == np.uint8:
            picture = Image.fromarray(picture[0] if len(picture) == 1 else np.moveaxis(picture, 0, -1)).convert(mode)
        elif isinstance(picture, np.ndarray) and picture.dtype == np.uint16 and settings.values == "bytes":
            return self._fit((picture >> 8).astype(np.uint8))
        if settings.values == "bytes":
            if isinstance(picture, np.ndarray):
                raise InputError(
                    f"it holds values of type {picture.dtype}, which are not pictures of bytes: read all pictures of "
                    "this modality with the setting values='float'"
                )
            pixels = np.asarray(_resize(picture, settings))
            return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
        channels = picture if isinstance(picture, np.ndarray) else np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1)
        channels = channels.astype(np.float32)
        if not np.isfinite(channels).all():
            raise InputError("it holds NaN, infinity, or a number beyond 32 bits")
        if settings.colour == "grey" and len(channels) == 3:
            channels = np.tensordot(_LUMA, channels, axes=1)[None]
        fitted = np.stack([np.asarray(_resize(Image.fromarray(channel), settings)) for channel in channels])
        return np.broadcast_to(fitted, self.shape)


def _check_single(file: Image.Image) -> None:
    """Refuse a TIFF of several pictures, of which the first would be read; a preview is smaller."""
    if file.format == "TIFF":
        with suppress(EOFError):
            size = file.size
            file.seek(1)
            if file.size == size:
                raise InputError("it holds several pictures: save one in each file")
        file.seek(0)


def _resize(picture: Image.Image, settings: PictureSettings) -> Image.Image:
    from PIL import Image, ImageOps

    size = (settings.size, settings.size)
    if settings.fit == "crop":
        return ImageOps.fit(picture, size, Image.Resampling.BICUBIC)
    if settings.fit == "pad":
        return ImageOps.pad(picture, size, Image.Resampling.BICUBIC)
    return picture.resize(size, Image.Resampling.BICUBIC)


def _look_at(path: str) -> tuple[bool, bool] | None:
    """Whether a picture is grey, and whether it has more than 8 bits; None if it cannot be read."""
    from PIL import Image

    try:
        ending = os.path.splitext(path)[1].lower()
        if ending in DICOM_ENDINGS:
            from consilience.data.media.dicom import is_grey

            with open(path, "rb") as file:
                return is_grey(file.read()), True
        if ending == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return array.ndim == 2 or 1 in (array.shape[0], array.shape[-1]), array.dtype != np.uint8
        with Image.open(path, formats=FORMATS) as file:
            return file.mode in _GREY, file.mode in _DEEP
    except MissingPackageError:
        raise
    except Exception:  # it is named when it is decoded
        return None


def _as_picture(array: np.ndarray) -> np.ndarray:
    """An array `[height, width]`, `[channel, height, width]` or `[height, width, channel]` with the channel first."""
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and array.shape[0] not in (1, 3) and array.shape[-1] in (1, 3):
        array = np.moveaxis(array, -1, 0)
    if array.ndim != 3 or array.shape[0] not in (1, 3) or 0 in array.shape:
        raise InputError(
            f"it has shape {list(array.shape)}, which is no picture of one or three channels: give the kind array for "
            "arrays as they are"
        )
    check_pixels("it", array.shape[2], array.shape[1])
    return array
