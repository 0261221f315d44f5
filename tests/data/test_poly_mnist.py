"""Digits on five backgrounds, from a tiny MNIST; the real one where CONSILIENCE_DATA names it."""

import gzip
import hashlib
import os
import pickle
import struct

import numpy as np
import pytest
from PIL import Image, ImageChops

from consilience.core.errors import InputError
from consilience.data import load_data
from consilience.data.sets.poly_mnist import BACKGROUNDS, Pictures, draw_backgrounds, group


def idx(values):
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.tobytes())


@pytest.fixture
def public(tmp_path):
    """MNIST with 120 + 60 images; the ink of an image says which it is."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for stem, n, first in (("train", 120, 0), ("t10k", 60, 120)):
        images = np.broadcast_to(np.arange(first, first + n, dtype=np.uint8)[:, None, None], (n, 28, 28))
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx((np.arange(n) % 10).astype(np.uint8)))
    return tmp_path


def test_a_picture_is_the_background_inverted_under_the_ink():
    rng = np.random.default_rng(0)
    background = rng.integers(0, 256, size=(3, 40, 50), dtype=np.uint8)
    digits = rng.integers(0, 256, size=(4, 28, 28), dtype=np.uint8)
    rows, corners = np.array([3, 0]), np.array([[12, 22], [5, 0]])
    got = Pictures(background, digits, rows, corners)
    for row, (top, left) in enumerate(corners):
        ground = Image.fromarray(background[:, top : top + 28, left : left + 28].transpose(1, 2, 0).copy())
        expected = Image.composite(ImageChops.invert(ground), ground, Image.fromarray(digits[rows[row]]))
        np.testing.assert_array_equal(got[row], np.asarray(expected).transpose(2, 0, 1))
        np.testing.assert_array_equal(got[np.arange(2)][row], got[row])


def test_a_sample_is_five_different_images_of_one_digit():
    digits = np.random.default_rng(0).integers(0, 3, size=100)
    rows = group(digits, 5, np.random.PCG64(1))
    assert (digits[rows] == digits[:, None]).all()
    assert all(len(set(row)) == 5 for row in rows.tolist())
    assert (np.sort(rows, axis=0) == np.arange(100)[:, None]).all()
    assert (group(digits, 5, np.random.PCG64(2)) != rows).any()
    with pytest.raises(InputError, match="takes 5 images of a digit; there are 4 of 7"):
        group(np.full(4, 7), 5, np.random.PCG64(0))


def test_backgrounds_have_the_bytes_they_had_and_leave_digits_legible():
    backgrounds = draw_backgrounds()
    together = hashlib.sha256(b"".join(one.tobytes() for one in backgrounds.values())).hexdigest()
    assert together[:16] == "1be116916a0673d7"
    for background in backgrounds.values():
        darkest, brightest = background.min(axis=(1, 2)).astype(int), background.max(axis=(1, 2)).astype(int)
        assert (brightest > darkest).all()
        # The nearest that a digit and the ground around it come to each other, in any channel.
        assert np.maximum(255 - 2 * brightest, 2 * darkest - 255).min() > 50


def test_the_set(public):
    data = load_data("poly-mnist", data_dir=public)
    assert data.samples.names == BACKGROUNDS
    assert {one.shape for one in data.modalities.values()} == {(3, 28, 28)}
    assert data.samples["clouds"].dtype == np.uint8
    assert data.official_split
    assert data.sizes == {"train": 102, "validation": 18, "test": 60}
    assert data.samples.on_disk  # made batch by batch, not held
    again, other = (load_data("poly-mnist", data_dir=public, seed=seed) for seed in (0, 1))
    for name in BACKGROUNDS:
        values = np.asarray(data.samples[name])
        assert values.shape == (180, 3, 28, 28)
        np.testing.assert_array_equal(values, np.asarray(again.samples[name]))
        assert (values != np.asarray(other.samples[name])).any()
        np.testing.assert_array_equal(np.asarray(data.test[name]), values[data.split == "test"])
    assert (pickle.loads(pickle.dumps(data)).test["blobs"][3] == data.test["blobs"][3]).all()


def test_test_pictures_are_of_test_images(public):
    data = load_data("poly-mnist", data_dir=public)
    for name in BACKGROUNDS:
        source = data.samples[name].base
        assert (source.rows[data.split == "test"] >= 120).all()
        assert (source.rows[data.split != "test"] < 120).all()
        np.testing.assert_array_equal(source.rows % 10, data.y)


def test_fewer_samples_keep_the_parts_proportion(public):
    data = load_data("poly-mnist", data_dir=public, n=90)
    assert len(data.test) == 30
    assert len(data) == 90
    whole = load_data("poly-mnist", data_dir=public)
    np.testing.assert_array_equal(data.test["checks"][:], whole.test["checks"][:30])
    with pytest.raises(InputError, match=r"n must be a whole number ≥ 20 and ≤ 180, got 181"):
        load_data("poly-mnist", data_dir=public, n=181)


@pytest.mark.skipif(
    not os.environ.get("CONSILIENCE_DATA"), reason="needs MNIST below the folder CONSILIENCE_DATA names"
)
def test_the_real_one_has_the_bytes_it_had():
    data = load_data("poly-mnist", n=700)
    assert data.sizes["test"] == 100
    summed = hashlib.sha256(b"".join(data.test[name][:].tobytes() for name in BACKGROUNDS)).hexdigest()
    assert summed[:16] == "9c364ec60d86a9e6"
