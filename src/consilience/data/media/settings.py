"""The settings of decoders, one class for each family of files. `load_data(media={NAME: {...}})` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from consilience.core.errors import InputError
from consilience.core.settings import Interval, check_settings

# Files that make more than this of one sample are refused, whatever the settings ask for.
_MOST_VALUES = 2**28


@dataclass(frozen=True)
class PictureSettings:
    """How a picture becomes an image `[channel, size, size]`."""

    size: Annotated[int, Interval(1, 4096), "pixels of a side"] = 64
    colour: Annotated[
        Literal["auto", "rgb", "grey"], "three channels or one; auto: grey if pictures from the whole column are"
    ] = "auto"
    fit: Annotated[
        Literal["stretch", "crop", "pad"],
        "stretch: into a square; crop: its middle square; pad: with black into a square",
    ] = "stretch"
    values: Annotated[
        Literal["auto", "bytes", "float"],
        "bytes: 0 to 255; float: as stored; auto: float if a picture has more than 8 bits",
    ] = "auto"


@dataclass(frozen=True)
class SoundSettings:
    """How a recording becomes a log-mel spectrogram or a waveform; several channels become their mean."""

    form: Annotated[
        Literal["mel", "wave"], "mel: decibels of bands of frequencies over time; wave: the samples themselves"
    ] = "mel"
    rate: Annotated[int, Interval(100, 768_000), "samples a second, after resampling"] = 16_000
    seconds: Annotated[
        Annotated[float, Interval(0, 3600, above=True)] | None,
        "length; of longer recordings the middle is kept; None: of the longest, at most 10",
    ] = None
    bands: Annotated[int, Interval(1, 512), "bands of frequencies of a spectrogram"] = 40
    window: Annotated[float, Interval(0.001, 1), "seconds of a window of a spectrogram"] = 0.032
    hop: Annotated[float, Interval(0.001, 1), "seconds from one window to the next"] = 0.016


@dataclass(frozen=True)
class ArraySettings:
    """How the arrays of a modality are laid out."""

    steps: Annotated[
        Annotated[int, Interval(1, 2**24)] | None, "time steps of a sequence; None: of the longest array"
    ] = None


Family = Literal["picture", "sound", "array"]
Settings = PictureSettings | SoundSettings | ArraySettings
SETTINGS: Mapping[Family, type[Settings]] = {
    "picture": PictureSettings,
    "sound": SoundSettings,
    "array": ArraySettings,
}


def read_settings(family: Family, given: Mapping[str, Any], name: str) -> Any:
    """The settings of a family with some of them given, checked; errors name the modality.

    Example:
        >>> read_settings("picture", {"size": 28}, "photo").size
        28
        >>> read_settings("picture", {"sise": 28}, "photo")
        Traceback (most recent call last):
        consilience.core.errors.UnknownNameError: unknown setting 'sise': did you mean 'size'? Known: colour, fit, size,
        values. It was given for media of modality 'photo'
    """
    declaring = SETTINGS[family]
    return declaring(**check_settings(f"media of modality {name!r}", declaring, given))


def check_sample_size(name: str, shape: tuple[int, ...]) -> None:
    """Refuse settings by which one sample would take more than a gigabyte."""
    values = 1
    for length in shape:
        values *= length
    if values > _MOST_VALUES:
        raise InputError(
            f"modality {name!r}: a sample of {'×'.join(map(str, shape))} has {values} values, more than "
            f"{_MOST_VALUES}. Choose a smaller size, rate or length with media= (--media)"
        )
