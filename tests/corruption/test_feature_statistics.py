import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.core.samples import Modality, Samples
from consilience.corruption import Corruptor, Statistics
from consilience.corruption import feature_statistics as statistics_module
from consilience.corruption.feature_statistics import measure


@pytest.mark.parametrize("scan_bytes", [64, 2**26])
def test_measure_equals_numpy_over_what_is_there(scan_bytes, monkeypatch):
    monkeypatch.setattr(statistics_module, "SCAN_BYTES", scan_bytes)
    rng = np.random.default_rng(0)
    image = rng.normal(1000.0, [[[1.0]], [[5.0]]], size=(30, 2, 4, 5))
    vector = rng.normal(size=(30, 3)).astype(np.float32)
    vector[[2, 9]] = np.nan
    sequence = [rng.normal(size=(length, 2)) for length in rng.integers(1, 6, size=30)]
    samples = Samples.of({"image": image, "vector": vector, "sequence": sequence})
    there = np.delete(vector, [2, 9], axis=0)
    for name, flat in {
        "image": np.moveaxis(image, 1, -1).reshape(-1, 2),
        "vector": there,
        "sequence": np.concatenate(sequence),
    }.items():
        found = measure(samples, name)
        np.testing.assert_allclose(found.std, flat.std(axis=0), rtol=1e-5)
        np.testing.assert_array_equal(found.low, flat.min(axis=0))
        np.testing.assert_array_equal(found.high, flat.max(axis=0))


def test_a_constant_feature_has_no_spread_at_all():
    values = np.stack([np.full(1001, 0.1), np.arange(1001.0)], axis=1)
    assert measure(Samples.of({"a": values}), "a").std[0] == 0


def test_memory_mapped_values_are_measured_as_those_in_memory(tmp_path):
    values = np.random.default_rng(0).integers(0, 255, size=(50, 1, 6, 6)).astype(np.uint8)
    np.save(tmp_path / "image.npy", values)
    mapped = Samples.of({"image": np.load(tmp_path / "image.npy", mmap_mode="r")})[5:40]
    assert mapped.on_disk
    found, expected = measure(mapped, "image"), measure(Samples.of({"image": values})[5:40], "image")
    assert (found.std, found.low, found.high) == (expected.std, expected.low, expected.high)


def test_missing_everywhere_is_an_error():
    with pytest.raises(InputError, match="'a' is missing in every sample of the reference"):
        measure(Samples.of({"a": np.full((3, 2), np.nan), "b": np.ones((3, 2))}), "a")


def test_a_statistic_must_fit():
    image = Modality("image", "image", (3, 8, 8))
    assert Statistics(std=[1, 2, 3]).around(image, "std").shape == (3, 1, 1)
    assert Statistics(std=2).around(image, "std").shape == ()
    with pytest.raises(InputError, match=r"one number or \[3\], got shape \[2\]"):
        Statistics(std=[1, 2]).around(image, "std")
    with pytest.raises(InputError, match="hold no 'high'"):
        Statistics(std=1).around(image, "high")
    with pytest.raises(InputError, match="must be finite and ≥ 0"):
        Statistics(std=-1).around(image, "std")


def test_statistics_stand_in_for_the_data():
    rng = np.random.default_rng(0)
    train = {"image": rng.normal(size=(40, 2, 3, 3)), "audio": rng.normal(size=(40, 4)) * 5, "text": ["a b"] * 40}
    test = {name: values[:7] for name, values in train.items()}
    corruptor = Corruptor(train)
    assert set(corruptor.statistics) == {"image", "audio"}
    without_data = Corruptor(corruptor.statistics)
    for corruption in ("gaussian", "stuck", "salt-and-pepper"):
        kinds = {"image": corruption, "audio": corruption}
        expected, found = (one.apply(test, kinds, 3.0, clip=True) for one in (corruptor, without_data))
        for name in train:
            np.testing.assert_array_equal(found[name], expected[name])


def test_tensors_serve_as_statistics():
    torch = pytest.importorskip("torch")
    x = {"a": np.zeros((5, 2))}
    found = Corruptor({"a": Statistics(std=torch.tensor([1.0, 3.0]))}).apply(x, probability=1)
    expected = Corruptor({"a": Statistics(std=np.array([1.0, 3.0]))}).apply(x, probability=1)
    np.testing.assert_array_equal(found["a"], expected["a"])


def test_statistics_and_values_do_not_mix():
    with pytest.raises(InputError, match="'b' came with values"):
        Corruptor({"a": Statistics(std=1.0), "b": np.ones((3, 2))})
