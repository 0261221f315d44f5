"""`av-mnist`: written and spoken digits, built from MNIST and FSDD with the same bytes on every machine.

No build script of AV-MNIST was published, and published accuracies disagree, since they depend on the number of
principal components that are kept of an image. This set is built as follows:

1. Images: PCA of the 60 000 training images (their second moments are sums of whole numbers, so exact in float64);
   every image is replaced by its mean plus its first components, rounded to bytes.
2. Audio: each recording's spectrogram, see `fsdd`.
3. Parts: MNIST's test images and FSDD's test takes are the test part. Of the training images 15 % are drawn for
   validation, and every seventh training recording of each digit is kept for them, so that validation and training
   share no recording.
4. Pairs: the images of a digit in one part get the recordings of that digit in turn, in an order that is drawn with
   the seed again for every turn. With `dependence`, they are dealt out again by style: within a digit, images of much
   ink get loud recordings.
5. Noise, if any: every pair has its own, so that a recording that occurs in many pairs is not memorised.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import MappedRows, Samples
from consilience.core.settings import Fraction, Interval, NonNegativeFloat, NonNegativeInt, PositiveInt, check_value
from consilience.data.dataset import DataSet
from consilience.data.named_sets import find_folder, register
from consilience.data.sets.fsdd import FILES as SPOKEN
from consilience.data.sets.fsdd import SIDE, spoken_digits
from consilience.data.sets.mnist import FILES as WRITTEN
from consilience.data.sets.mnist import read_parts
from consilience.data.sets.shared_nuisances import share_style
from consilience.data.splits import PARTS, Split, given_split, pick_stratified

_FILES = replace(
    WRITTEN,
    what="AV-MNIST's written half, MNIST,",
    licence=f"{WRITTEN.licence}; its spoken half, FSDD, {SPOKEN.licence}",
)
ENERGY = 0.25
_HELD = 7  # one in so many training recordings of a digit is for validation


@register("av-mnist", description="70 000 digits, written (few principal components left) and spoken", files=_FILES)
def avmnist(
    folder: Path,
    *,
    components: PositiveInt | None = None,
    energy: NonNegativeFloat = ENERGY,
    noise: NonNegativeFloat = 0.0,
    dependence: Fraction = 0.0,
    side: PositiveInt = SIDE,
    n: Annotated[int, Interval(100)] | None = None,
    seed: NonNegativeInt = 0,
) -> DataSet:
    """Images of bytes `[1, 28, 28]` and spectrograms of bytes `[1, side, side]`.

    Args:
        folder: Of the files of MNIST; those of FSDD are in the folder beside it.
        components: The number of principal components kept of an image; None for as many as keep the share `energy`.
        energy: The share of the variance of the images that is kept.
        noise: The standard deviation, in bytes, of noise on the spectrograms.
        dependence: How much the modalities share besides the digit, from 0 to 1: the correlation, within a digit and
            part, between the ink of an image and the loudness of its recording, both as normal scores of their ranks.
            At 0 the modalities are independent given the digit. Neither changes with it by itself: the images are
            the same, and so is how often each recording is used.
        side: Of the spectrograms, a divisor of 112; smaller ones are means over blocks.
        n: The number of pairs, the same share of every part and digit; None for all 70 000.
        seed: Of the validation part, the pairs, the noise and the choice of n pairs.

    `extra["style"]` has the ink and the loudness of each pair, mapping modality → `[n]`: means over pixels.
    """
    if SIDE % side:
        raise InputError(f"option side={side!r} must divide {SIDE}, the side of a spectrogram")
    images, digits, part_of_row = read_parts(folder)
    spectrograms, spoken, test = spoken_digits(find_folder(SPOKEN, folder.parent))
    reduced, _ = reduce_images(images, part_of_row == "train", components, energy)
    parts = given_split(part_of_row, digits, "classification", seed=seed).parts
    part_of_recording = np.where(test, "test", hold_recordings(spoken, ~test))
    ink, loudness = (values.reshape(len(values), -1).mean(axis=1) for values in (reduced, spectrograms))
    rows = np.empty(len(digits), dtype=np.int64)
    for part in PARTS:
        here = parts == part
        drawn = pair(digits[here], spoken, np.flatnonzero(part_of_recording == part), seed)
        rows[here] = share_style(drawn, digits[here], ink[here], loudness, dependence, seed)
    kept = np.arange(len(digits)) if n is None else some_pairs(digits, parts, n, seed)
    audio: Any = MappedRows(shrink(spectrograms, SIDE // side), rows[kept])
    if noise:
        audio = with_noise(audio.base[audio.rows], noise, seed)
    samples = Samples.of({"image": reduced[kept, None], "audio": audio}, digits[kept])
    # The pairs depend on the split, so that it cannot be drawn again.
    split = Split(parts[kept], official=True, drawn_validation=False)
    extra = {"style": {"image": ink[kept], "audio": loudness[rows[kept]]}}
    return DataSet("av-mnist", samples, "classification", *split, extra=extra)


def hold_recordings(spoken: np.ndarray, training: np.ndarray) -> np.ndarray:
    """The part of each recording `[n]`: every seventh of a digit is "validation", the others "train"."""
    part_of_row = np.full(len(spoken), "train", dtype="<U10")
    for digit in np.unique(spoken):
        part_of_row[np.flatnonzero(training & (spoken == digit))[::_HELD]] = "validation"
    return part_of_row


def some_pairs(digits: np.ndarray, parts: np.ndarray, n: int, seed: int) -> np.ndarray:
    """The rows of n pairs in their order: of every part, and in it of every digit, as large a share as of the whole."""
    check_value("n", n, Annotated[int, Interval(100, len(digits))])
    random = np.random.default_rng([seed, 2])
    group = digits + sum(10 * place * (parts == part) for place, part in enumerate(PARTS))
    return np.sort(pick_stratified(group, np.arange(len(digits)), int(n), random))


def shrink(spectrograms: np.ndarray, factor: int) -> np.ndarray:
    """Means over blocks of factor × factor pixels, rounded to bytes: `[n, 1, side, side]`."""
    if factor == 1:
        return spectrograms
    side = spectrograms.shape[-1] // factor
    blocks = spectrograms.reshape(-1, 1, side, factor, side, factor)
    return np.rint(blocks.mean(axis=(3, 5))).astype(np.uint8)


def reduce_images(
    images: np.ndarray, train: np.ndarray, components: int | None, energy: float = ENERGY
) -> tuple[np.ndarray, int]:
    """Images `[n, height, width]` of bytes with few principal components of the training images left, and how few."""
    flat = images.reshape(len(images), -1)
    pixels = flat.shape[1]
    if components is not None:
        check_value("components", components, Annotated[int, Interval(1, pixels)])
    check_value("energy", energy, NonNegativeFloat)
    first = np.zeros(pixels)
    second = np.zeros((pixels, pixels))
    learned = flat[train]
    for start in range(0, len(learned), 4096):
        some = learned[start : start + 4096].astype(np.float64)
        first += some.sum(axis=0)
        second += some.T @ some  # sums of products of bytes: whole numbers below 2^53, exact in any order
    mean = first / len(learned)
    values, vectors = np.linalg.eigh(second / len(learned) - np.outer(mean, mean))
    values, vectors = values[::-1].clip(min=0), vectors[:, ::-1]
    if components is None:
        components = int(np.searchsorted(np.cumsum(values) / values.sum(), energy) + 1)
    basis = vectors[:, :components]  # the sign of a vector is arbitrary and cancels in basis @ basis.T
    reduced = np.empty_like(flat)
    for start in range(0, len(flat), 4096):
        some = flat[start : start + 4096] - mean
        reduced[start : start + 4096] = np.rint((some @ basis) @ basis.T + mean).clip(0, 255)
    return reduced.reshape(images.shape), components


def pair(digits: np.ndarray, spoken: np.ndarray, recordings: np.ndarray, seed: int) -> np.ndarray:
    """A recording of the same digit for every image: `[image]` rows of the recordings.

    A digit's recordings are taken by turns, so that each is used as often as any other, to within one. The order is
    made from the raw stream of PCG64, which numpy promises never to change.
    """
    bits = np.random.PCG64(seed)
    rows = np.empty(len(digits), dtype=np.int64)
    for digit in np.unique(digits):
        images = np.flatnonzero(digits == digit)
        choices = recordings[spoken[recordings] == digit]
        if not len(choices):
            raise InputError(f"there is no recording of digit {digit} to go with its images")
        turns = -(-len(images) // len(choices))
        order = np.argsort(bits.random_raw(turns * len(choices)).reshape(turns, -1), axis=1, kind="stable")
        rows[images] = choices[order.ravel()[: len(images)]]
    return rows


def with_noise(spectrograms: np.ndarray, deviation: float, seed: int) -> np.ndarray:
    """Spectrograms of bytes `[n, …]` with Gaussian noise, rounded and clipped to bytes; every row has its own draw.

    It is made from the raw stream of PCG64, two bytes of it for each pixel: how much noise 65 536 equally likely
    numbers stand for is the same on every machine, and looked up faster than drawn.
    """
    from scipy.special import ndtri

    levels = np.rint(deviation * ndtri((np.arange(2**16) + 0.5) / 2**16)).clip(-256, 256).astype(np.int16)
    bits = np.random.PCG64([seed, 1])
    noisy = np.empty_like(spectrograms)
    for start in range(0, len(spectrograms), 1024):
        some = spectrograms[start : start + 1024]
        raw = bits.random_raw(-(-some.size // 4)).astype("<u8", copy=False).view("<u2")[: some.size]
        noisy[start : start + 1024] = (some + levels[raw].reshape(some.shape)).clip(0, 255)
    return noisy
