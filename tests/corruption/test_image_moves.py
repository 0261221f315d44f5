"""Moved and mirrored images against scipy and a loop over samples."""

import numpy as np
import pytest
from scipy.ndimage import shift

from consilience import FusionClassifier, corrupt
from consilience.core.errors import UnsupportedError
from consilience.core.samples import Samples
from consilience.corruption import Noise

N, SEED = 40, 4
IMAGES = np.random.default_rng(0).integers(0, 256, size=(N, 3, 8, 6), dtype=np.uint8)


def corrupted(name, level, values=IMAGES):
    return corrupt(Samples.of({"m": values}), name, level, probability=1.0, random_state=SEED)["m"]


@pytest.mark.parametrize("level", [2, 10, 40])
@pytest.mark.parametrize("values", [IMAGES, IMAGES.astype(np.float32)], ids=["bytes", "floats"])
def test_shifted(level, values):
    noise, share = Noise(SEED, "m", "shifted"), min(level / 10, 1)
    down, right = (2 * noise.within(part).uniform(np.arange(N)) - 1 for part in ("down", "right"))
    got = corrupted("shifted", level, values)
    for row in range(N):
        by = (0, round(share * 8 * down[row]), round(share * 6 * right[row]))
        np.testing.assert_array_equal(got[row], shift(values[row], by, order=0, mode="nearest"))


def test_mirrored():
    hit = Noise(SEED, "m", "mirrored").uniform(np.arange(N)) < 0.5
    got = corrupted("mirrored", 5)
    assert 0 < hit.sum() < N
    np.testing.assert_array_equal(got[hit], np.flip(IMAGES[hit], axis=3))
    np.testing.assert_array_equal(got[~hit], IMAGES[~hit])
    np.testing.assert_array_equal(corrupted("mirrored", 10), np.flip(IMAGES, axis=3))


def test_vectors_are_not_moved():
    with pytest.raises(UnsupportedError, match="vector"):
        corrupted("shifted", 2, np.zeros((N, 3)))


def test_training_with_moved_images():
    y = np.arange(N) % 2
    model = FusionClassifier("concat", epochs=2, augment={"m": ["shifted:0..1", "mirrored:5"]}, validation=0.2)
    assert model.fit({"m": IMAGES}, y).predict({"m": IMAGES}).shape == (N,)
