"""`av-mnist`: digits written and spoken. Built from MNIST and FSDD by a recipe that gives the same bytes everywhere.

No build script of AV-MNIST was ever published, and published accuracies disagree, since the number of principal
components that are left of an image decides how much of it can be read. This one is written down:

1. Images: PCA of the 60 000 training images (their second moments are sums of whole numbers, so exact in float64);
   every image is replaced by its mean plus its first components, rounded to bytes.
2. Audio: each recording's spectrogram, see `fsdd`.
3. Pairs: the training images of a digit, in their order, take that digit's training recordings by turns, in an order
   drawn with the seed and drawn again at every turn; test images take the test recordings.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from consilience.data.dataset import DataSet
from consilience.data.options import check_number
from consilience.data.registry import Files, find_folder, register
from consilience.data.sets.fsdd import FILES as SPOKEN
from consilience.data.sets.fsdd import spoken_digits
from consilience.data.sets.mnist import FILES as WRITTEN
from consilience.data.sets.mnist import read_parts
from consilience.data.splits import given_split
from consilience.errors import InputError
from consilience.samples import MappedRows, Samples

_FILES = Files(
    folder=WRITTEN.folder,
    names=WRITTEN.names,
    what="AV-MNIST's written half, MNIST,",
    origin=WRITTEN.origin,
    licence=f"{WRITTEN.licence}; its spoken half, FSDD, {SPOKEN.licence}",
)
ENERGY = 0.25


@register("av-mnist", description="70 000 digits, written (few principal components left) and spoken", files=_FILES)
def avmnist(
    folder: Path, *, components: int | None = None, energy: float = ENERGY, noise: float = 0.0, seed: int = 0
) -> DataSet:
    """Images of bytes `[1, 28, 28]` and spectrograms of bytes `[1, 112, 112]`.

    components: how many principal components are left of an image; None: as many as keep the share `energy` of its
    variance. noise: standard deviation, in bytes, of noise on the spectrograms. seed: of the pairs, the noise and the
    validation part.
    """
    check_number("noise", noise, least=0)
    images, digits, words = read_parts(folder)
    spectrograms, spoken, test = spoken_digits(find_folder(SPOKEN, folder.parent))
    reduced, _ = reduce_images(images, words == "train", components, energy)
    rows = np.empty(len(digits), dtype=np.int64)
    for part, recordings in (("train", ~test), ("test", test)):
        here = words == part
        rows[here] = pair(digits[here], spoken, np.flatnonzero(recordings), seed)
    if noise:
        spectrograms = with_noise(spectrograms, noise, seed)
    samples = Samples.of({"image": reduced[:, None], "audio": MappedRows(spectrograms, rows)}, digits)
    return DataSet("av-mnist", samples, "classification", *given_split(words, digits, "classification", seed=seed))


def reduce_images(
    images: np.ndarray, train: np.ndarray, components: int | None, energy: float = ENERGY
) -> tuple[np.ndarray, int]:
    """Images `[n, height, width]` of bytes with few principal components of the training images left, and how few."""
    flat = images.reshape(len(images), -1)
    pixels = flat.shape[1]
    if components is not None:
        check_number("components", components, least=1, whole=True)
        if components > pixels:
            raise InputError(f"components must be at most {pixels}, the number of pixels, got {components}")
    check_number("energy", energy, least=0)
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
    """Spectrograms with Gaussian noise, clipped to bytes. One draw for each recording, not for each pair."""
    random = np.random.default_rng([seed, 1])
    noisy = np.empty_like(spectrograms)
    for row, image in enumerate(spectrograms):
        noisy[row] = np.rint(image + deviation * random.standard_normal(image.shape)).clip(0, 255)
    return noisy
