import tracemalloc

import numpy as np
import pytest

from consilience.core.errors import InputError, UnknownNameError
from consilience.data import load_data

rng = np.random.default_rng(0)


@pytest.fixture
def arrays():
    return {
        "image": rng.normal(size=(40, 1, 4, 4)),
        "motion": rng.normal(size=(40, 6, 3)),
        "motion_lengths": np.arange(40) % 6 + 1,
        "words": np.array([f"word {n}" for n in range(40)]),
        "y": np.arange(40) % 2,
    }


def save_npz(path, arrays):
    np.savez(path / "set.npz", **arrays)
    return path / "set.npz"


def save_folder(path, arrays):
    for name, values in arrays.items():
        np.save(path / f"{name}.npy", values)
    return path


@pytest.fixture(params=[save_npz, save_folder])
def save(request, tmp_path):
    return lambda arrays: request.param(tmp_path, arrays)


def test_arrays_become_modalities(save, arrays):
    data = load_data(save(arrays))
    assert {name: one.kind for name, one in data.modalities.items()} == {
        "image": "image",
        "motion": "sequence",
        "words": "text",
    }
    assert (data.samples.lengths["motion"] == arrays["motion_lengths"]).all()
    assert (data.samples["image"] == arrays["image"]).all()
    assert (data.y == arrays["y"]).all()
    assert data.sizes == {"train": 28, "validation": 6, "test": 6}
    assert not data.official_split
    assert data.task == "classification"


def test_split_target_kinds_and_names(save, arrays):
    arrays |= {"part": np.repeat(["train", "dev", "test"], [20, 10, 10]), "score": rng.normal(size=40)}
    arrays["ids"] = rng.integers(0, 9, size=(40, 5))
    data = load_data(save(arrays), target="score", split="part", modalities=["motion", "ids"], kinds={"ids": "tokens"})
    assert tuple(data.modalities) == ("motion", "ids")
    assert data.modalities["ids"].kind == "tokens"
    assert data.task == "regression"
    assert data.official_split
    assert data.sizes == {"train": 20, "validation": 10, "test": 10}


def test_targets_and_splits_are_never_modalities(save, arrays):
    words = np.repeat(["train", "dev", "test"], [20, 10, 10])
    path = save(arrays | {"split": words, "part": words, "score": arrays["y"] * 1.5})
    data = load_data(path, target="score", split="part")
    assert set(data.modalities) == {"image", "motion", "words"}


def test_a_split_array_is_found_by_itself(save, arrays):
    data = load_data(save(arrays | {"split": np.repeat(["train", "test"], [30, 10])}))
    assert data.official_split
    assert data.drawn_validation
    assert "split" not in data.modalities
    assert data.sizes["test"] == 10


def test_lengths_without_their_sequence_are_a_modality(save):
    data = load_data(save({"arm_lengths": rng.normal(size=(20, 2)), "y": np.arange(20) % 2}))
    assert tuple(data.modalities) == ("arm_lengths",)


def test_a_folder_stays_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("consilience.core.modalities.SCAN_BYTES", 2**18)
    big = np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(1000, 8000))
    big[:] = 1
    big[7] = np.nan
    big.flush()
    np.save(tmp_path / "y.npy", np.arange(1000) % 2)
    del big
    tracemalloc.start()
    try:
        data = load_data(tmp_path)
        parts = [data.train, data.validation, data.test, data.resplit(1).train, data.train[:100]]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4e6  # the file has 32 MB
    assert all(part.on_disk for part in parts)
    assert data.describe()["on_disk"]
    assert not data.samples.present_in("big")[7]
    assert data.train["big"][:3].shape == (3, 8000)


def test_gaps_are_filled_from_the_train_rows_and_again_after_a_new_split(tmp_path):
    values = rng.normal(size=(60, 2))
    values[::4, 0] = np.nan
    values[5] = np.nan
    path = save_npz(tmp_path, {"a": values, "y": np.arange(60) % 2})
    with pytest.raises(InputError, match="NaN or infinity in part of rows 0, 4"):
        load_data(path)
    data = load_data(path, fill="median")
    for one in (data, data.resplit(3)):
        expected = np.nanmedian(values[one.split == "train", 0])
        assert np.allclose(one.samples["a"][::4, 0], expected)
        assert not one.samples.present_in("a")[5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "unknown target 'y'"),
        ({"image": rng.normal(size=(39, 2))}, "image has 39"),
        ({"y": np.arange(39) % 2}, "39 rows"),
        ({"y": np.zeros(40, int)}, "two classes"),
        ({"y": np.eye(2, dtype=int)[np.arange(40) % 2]}, "multi-label"),
        ({"y": np.float64(3.0)}, "single value"),
        ({"split": np.array(["train"] * 40)}, "no test rows"),
        ({"split": np.arange(40)}, "holds 0"),
        ({"motion_lengths": np.full(40, 7)}, "from 0 to 6"),
        ({"image": np.full((40, 2), np.inf)}, "infinity"),
    ],
)
def test_bad_arrays_are_named(save, arrays, change, message):
    arrays = {name: values for name, values in (arrays | change).items() if values is not None}
    with pytest.raises(InputError, match=message):
        load_data(save(arrays))


def test_unknown_names_in_files(save, arrays):
    path = save(arrays)
    with pytest.raises(UnknownNameError, match="modality 'imgae': did you mean 'image'"):
        load_data(path, modalities=["imgae"])
    with pytest.raises(UnknownNameError, match="split 'fold'"):
        load_data(path, split="fold")
    with pytest.raises(UnknownNameError, match="modality 'sound'"):
        load_data(path, kinds={"sound": "image"})


def test_python_objects_are_refused(save, arrays):
    with pytest.raises(InputError, match="Python objects"):
        load_data(save(arrays | {"odd": np.array([{"a": 1}] * 40, dtype=object)}))


def test_truncated_and_foreign_files(tmp_path, arrays):
    path = save_npz(tmp_path, arrays)
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], b"", b"PK\x03\x04", b"a,b\n1,2\n"):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"set\.npz is truncated or not a numpy file"):
            load_data(path)
    np.save(tmp_path / "y.npy", np.zeros(3))
    (tmp_path / "y.npy").rename(path)
    with pytest.raises(InputError, match="holds one array"):
        load_data(path)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(InputError, match=r"a folder without tables and without \.npy files"):
        load_data(folder)
    save_folder(folder, arrays)
    (folder / "image.npy").write_bytes((folder / "image.npy").read_bytes()[:200])
    with pytest.raises(InputError, match=r"image\.npy is truncated"):
        load_data(folder)
    with pytest.raises(InputError, match="no modality"):
        load_data(save_npz(tmp_path, {"y": np.arange(9)}))


def test_filling_what_stays_on_disk_is_refused(tmp_path, arrays):
    with pytest.raises(InputError, match="stay on disk"):
        load_data(save_folder(tmp_path, arrays), fill="mean")
    with pytest.raises(UnknownNameError, match="fill 'medain': did you mean 'median'"):
        load_data(save_npz(tmp_path, arrays), fill="medain")
