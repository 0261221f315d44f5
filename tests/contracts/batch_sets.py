"""Sets on which rounding errors and padding would show, if a prediction depended on the others in its batch.

They have few distinct rows, many times each, constant features, missing modalities, sequences of very different
lengths, and rows far from everything in training.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from consilience.core.samples import Samples

N = 90
TEXTS = np.array(["a red square", "the large circle , which is blue , and nothing else in the world", "green"], object)


def _classes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Class of each sample, and the same with a quarter replaced at random."""
    y = np.arange(N) % 3
    return y, np.where(rng.random(N) < 0.25, rng.integers(0, 3, N), y)


def _some_missing(rng: np.random.Generator) -> np.ndarray:
    present = rng.random((N, 2)) < 0.8
    present[~present.any(axis=1), 0] = True
    return present


def words(rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Three texts, one for each class, and vectors of three kinds with a constant feature; both may be missing."""
    y, nearly = _classes(rng)
    few = np.array([[0.0, 1.0, 2.0, 7.0], [1.0, 1.0, 0.0, 7.0], [5.0, 1.0, -3.0, 7.0]])
    train = Samples.of({"text": TEXTS[y], "sensor": few[nearly]}, y, present=_some_missing(rng))
    test = Samples.of({"text": np.append(TEXTS[y[:-2]], ["unknown", ""]), "sensor": few[nearly]}, y)
    return train, test


def images(rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Three images with a constant part, and vectors of more features than samples."""
    y, nearly = _classes(rng)
    few = rng.normal(size=(3, 1, 8, 8))
    few[:, :, :2] = 0
    wide = rng.normal(size=(N, 300)) + y[:, None]
    train = Samples.of({"photo": few[nearly], "wide": wide}, y)
    return train, Samples.of(
        {"photo": few[y], "wide": wide + rng.normal(size=wide.shape)}, y, present=_some_missing(rng)
    )


def steps(rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Sequences of one to 25 steps and tokens of three kinds; both may be missing."""
    y, nearly = _classes(rng)
    ids = [[1, 2, 3], [4], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]
    sound = [rng.normal(size=(length, 3)) * [1, 1, 0] + label for length, label in zip(rng.integers(1, 25, N), y)]
    values = {"sound": sound, "codes": [ids[label] for label in nearly]}
    return Samples.of(values, y, present=_some_missing(rng)), Samples.of(values, y)


def recordings(rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Two texts of different lengths, which some samples have in common, and three sequences."""
    y, nearly = _classes(rng)
    few = [rng.normal(size=(length, 2)) for length in (2, 9, 17)]
    said = np.array(["x y z", "x", "x y x y x y x y x y x y x y z z z z z z z z"], object)
    values = {"text": TEXTS[y], "said": said[nearly], "sound": [few[label] for label in nearly]}
    return Samples.of(values, y), Samples.of(values, y)


def loud(rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Vectors, at test up to a million standard deviations from those of training, or equal to them."""
    y, nearly = _classes(rng)
    values = {"near": rng.normal(size=(N, 5)) + y[:, None], "far": np.eye(3)[nearly] + [0, 0, 5]}
    scale = np.resize([1.0, 1.0, 1e-3, 3.0, -1e3, 1e5, -1e30], N)[:, None]
    return Samples.of(values, y), Samples.of({name: value * scale for name, value in values.items()}, y)


HARD_SETS: dict[str, Callable[[np.random.Generator], tuple[Samples, Samples]]] = {
    function.__name__: function for function in (words, images, steps, recordings, loud)
}
