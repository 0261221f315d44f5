"""`fsdd`: the Free Spoken Digit Dataset as spectrograms, images of frequencies over time."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.media.recordings import read_recordings
from consilience.data.media.spectrograms import power_spectra
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

FILES = source_files("fsdd", "recordings.zip")
RATE = 8000
SIDE, WINDOW, HOP = 112, 256, 70  # 112 windows of 32 ms, 8.75 ms apart: a little over a second
_LENGTH = WINDOW + (SIDE - 1) * HOP
_DECIBELS = 80.0
_NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]+)")
_TEST_TAKES = 5


@register("fsdd", description="3 000 spoken digits of six speakers, as 112×112 spectrograms", files=FILES)
def fsdd(folder: Path, *, seed: NonNegativeInt = 0) -> DataSet:
    """Spectrograms of bytes `[1, 112, 112]`; each speaker's first five takes of a digit are the official test part."""
    images, labels, test = spoken_digits(folder)
    part_of_row = np.where(test, "test", "train")
    samples = Samples.of({"audio": images}, labels)
    return DataSet("fsdd", samples, "classification", *given_split(part_of_row, labels, "classification", seed=seed))


def spoken_digits(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All recordings in the order of their names: spectrograms `[n, 1, 112, 112]`, digits `[n]`, test or not `[n]`."""
    recordings = read_recordings(folder / FILES.names[0])
    if not recordings:
        raise InputError(f"{FILES.names[0]} holds no wav file")
    strange = [name for name in recordings if not _NAME.fullmatch(name)]
    if strange:
        raise InputError(f"{FILES.names[0]}: a recording is named DIGIT_SPEAKER_TAKE.wav, got {strange[0]}.wav")
    rates = np.array([rate for _, rate in recordings.values()])
    if (rates != RATE).any():
        raise InputError(
            f"{FILES.names[0]}: recordings have {RATE} samples a second, {name_rows(np.flatnonzero(rates != RATE))} "
            f"{rates[rates != RATE][0]}"
        )
    parts = [_NAME.fullmatch(name).groups() for name in recordings]  # type: ignore[union-attr]
    labels = np.array([int(digit) for digit, _, _ in parts])
    test = np.array([int(take) < _TEST_TAKES for _, _, take in parts])
    waves = np.stack([fitted(samples) for samples, _ in recordings.values()])
    return spectrograms(waves)[:, None], labels, test


def fitted(samples: np.ndarray) -> np.ndarray:
    """A recording, cut or padded with silence on both sides to the length of 112 windows."""
    surplus = len(samples) - _LENGTH
    if surplus >= 0:
        return samples[surplus // 2 : surplus // 2 + _LENGTH]
    return np.pad(samples, (-surplus // 2, -surplus - (-surplus // 2)))


def spectrograms(waves: np.ndarray) -> np.ndarray:
    """Recordings `[n, time]` → images of bytes `[n, 112 frequencies from high to low, 112 windows]`.

    Power of the lowest 112 bins (0 to 3.5 kHz) under a Hann window, in decibels below each recording's loudest bin,
    from −80 (0) to 0 (255). Computed in float64 and rounded to bytes, so that other machines get the same.
    """
    images = np.empty((len(waves), SIDE, SIDE), dtype=np.uint8)
    for first in range(0, len(waves), 256):  # 256 recordings at a time: the spectra are eight times as large
        some = waves[first : first + 256].astype(np.float64)
        power = power_spectra(some, WINDOW, HOP)[..., :SIDE]
        loudest = power.max(axis=(1, 2), keepdims=True)
        decibels = 10 * np.log10(np.maximum(power / np.where(loudest > 0, loudest, 1), 10 ** (-_DECIBELS / 10)))
        images[first : first + 256] = np.rint(255 * (1 + decibels / _DECIBELS)).transpose(0, 2, 1)[:, ::-1]
    return images
