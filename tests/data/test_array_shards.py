"""Numbered .npy files against the same arrays in memory."""

from itertools import pairwise

import numpy as np
import pytest

from consilience import FusionClassifier
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.data import load_data

SIZES = (80, 41, 129)


@pytest.fixture(scope="module")
def arrays():
    drawn = np.random.default_rng(0)
    n = sum(SIZES)
    y = drawn.integers(0, 2, n)
    sequence = drawn.normal(size=(n, 5, 2)).astype(np.float32) + y[:, None, None]
    sequence[::7] = np.nan  # missing
    return {
        "y": y,
        "image": (drawn.integers(0, 200, (n, 1, 6, 6)) + 50 * y[:, None, None, None]).astype(np.uint8),
        "sound": sequence,
        "sound_lengths": drawn.integers(1, 6, n),
        "level": drawn.normal(size=n) + y,
    }


@pytest.fixture(scope="module")
def folder(arrays, tmp_path_factory):
    made = tmp_path_factory.mktemp("arrays")
    edges = np.cumsum([0, *SIZES])
    for number, (start, stop) in enumerate(pairwise(edges)):
        for name, array in arrays.items():
            np.save(made / f"{name}-{number + 9}.npy", array[start:stop])  # 9, 10, 11
    return made


@pytest.mark.parametrize("buffer", [16, 100, None])
def test_shards_are_the_arrays(folder, arrays, buffer):
    data = load_data(folder, buffer=buffer)
    lengths = {"sound": arrays["sound_lengths"]}
    whole = Samples.of({name: arrays[name] for name in ("image", "level", "sound")}, arrays["y"], lengths=lengths)
    assert data.samples.on_disk
    assert data.modalities == whole.modalities
    np.testing.assert_array_equal(data.samples.present, whole.present)
    np.testing.assert_array_equal(data.samples.lengths["sound"], whole.lengths["sound"])
    for name in whole:
        np.testing.assert_array_equal(data.test.read(name), whole[data.split == "test"].read(name))
    assert load_data(folder, modalities=["image"]).modalities.keys() == {"image"}


def test_a_model_learns_from_them(folder):
    data = load_data(folder, buffer=64)
    model = FusionClassifier("late", epochs=3, validation=data.validation, device="cpu").fit(data.train)
    assert model.score(data.test) > 0.8


def test_shards_behind_a_url(folder):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install fsspec")
    memory = fsspec.filesystem("memory")
    for file in folder.iterdir():
        memory.pipe(f"/array-shards/{file.name}", file.read_bytes())
    here, there = load_data(folder), load_data("memory://array-shards")
    for name in here.modalities:
        np.testing.assert_array_equal(there.samples.read(name), here.samples.read(name))


def test_a_folder_of_whole_arrays_is_read_as_before(arrays, tmp_path):
    for name in ("y", "image"):
        np.save(tmp_path / f"{name}.npy", arrays[name])
    np.save(tmp_path / "level-2.npy", arrays["level"])  # its name, and no shard
    assert set(load_data(tmp_path).modalities) == {"image", "level-2"}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"level-1": None}, "array 'level' lacks shards '1'"),
        ({"level-1": np.arange(3)}, r"in shard 1 every array must have one row per sample, but level has 3, y has 4"),
        ({"level-1": np.zeros((4, 2))}, r"the shards of array 'level' hold rows of different types"),
        ({"level": np.zeros(8)}, r"'level.npy' has no number; shards of arrays are called NAME-NUMBER.npy"),
        ({"level-1": np.asfortranarray(np.zeros((4, 2)))}, "level-1.npy is stored column by column"),
        ({"level-1": np.array([{}] * 4, dtype=object)}, "level-1.npy holds Python objects, which could run code"),
        ({"level-1": np.array(1.0)}, "level-1.npy is a single value"),
    ],
)
def test_shards_that_do_not_fit(broken, message, tmp_path):
    made = {f"{name}-{number}": np.arange(4) % 2 for name in ("y", "level") for number in (0, 1)}
    for name, array in (made | broken).items():
        if array is not None:
            np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(InputError, match=message):
        load_data(tmp_path)


def test_shards_of_two_folders_with_the_same_numbers(tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        for name in ("y", "level"):
            np.save(tmp_path / folder / f"{name}-0.npy", np.arange(4) % 2)
    with pytest.raises(InputError, match=r"first/.*-0.npy and .*second/.*-0.npy are both shard 0 of array"):
        load_data(tmp_path / "*" / "*.npy")


def test_gaps_are_not_filled(folder):
    with pytest.raises(InputError, match=r"fill does not apply to shards of .npy files: fill them beforehand"):
        load_data(folder, fill="mean")
