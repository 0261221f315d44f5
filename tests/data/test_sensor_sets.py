"""Sensor, speech and price sets, from tiny files in their public formats."""

import gzip

import numpy as np
import pytest

from consilience.core.errors import InputError, UnknownNameError
from consilience.data import load_data
from consilience.data.sets.finance import GROUPS
from consilience.data.sets.hydraulic import draw_blocks


def write(folder, name, **arrays):
    folder.mkdir()
    np.savez(folder / name, **arrays)


def rig(n=400):
    random = np.random.default_rng(0)
    sensors = {name: random.normal(size=(n, 60)) for name in ("CE", "CP", "SE", "TS1", "TS2", "TS3", "TS4", "VS1")}
    profile = np.stack([np.arange(n) // 20 % count for count in (3, 4, 3, 4, 2)], axis=1)
    return {**sensors, "profile": profile}


def test_hydraulic(tmp_path):
    arrays = rig()
    write(tmp_path / "hydraulic", "cycles_1hz.npz", **arrays)
    data = load_data("hydraulic", data_dir=tmp_path, component="pump", block=10)
    assert data.samples.names == ("CE", "CP", "SE", "TS1", "TS2", "TS3", "TS4", "VS1")
    assert data.samples["TS2"].shape == (400, 60, 1)
    np.testing.assert_array_equal(data.y, arrays["profile"][:, 2])
    with pytest.raises(UnknownNameError, match="accumulator"):
        load_data("hydraulic", data_dir=tmp_path, component="pumps")


def test_blocks_stay_together_and_every_part_sees_every_class():
    y = np.arange(400) // 20 % 4
    words = draw_blocks(y, 10, seed=0)
    assert all(len(set(words[start : start + 10])) == 1 for start in range(0, 400, 10))
    for part in ("train", "validation", "test"):
        assert set(y[words == part]) == {0, 1, 2, 3}
    assert 0.5 < (words == "train").mean() < 0.7
    assert (draw_blocks(y, 10, seed=1) != words).any()
    with pytest.raises(InputError, match="smaller blocks"):
        draw_blocks(y, 400, seed=0)


def test_mosi(tmp_path):
    random = np.random.default_rng(0)
    arrays = {}
    for part, n in (("train", 40), ("test", 12)):
        for name, width in (("text", 5), ("audio", 4), ("video", 3)):
            arrays[f"{name}_{part}"] = random.normal(size=(n, width)).astype(np.float32)
        arrays[f"y_{part}"] = (np.arange(n) % 2).astype(np.int8)
    write(tmp_path / "mosi", "utterance_features.npz", **arrays)
    data = load_data("mosi", data_dir=tmp_path)
    assert len(data.test) == 12
    np.testing.assert_array_equal(data.test["audio"], arrays["audio_test"])
    assert data.test.y[:2].tolist() == ["negative", "positive"]


def test_utd_mhad_splits_by_person_and_keeps_lengths(tmp_path):
    random = np.random.default_rng(0)
    arrays = {
        f"{kind}/a{action}_s{subject}_t{take}": random.normal(size=(10 + take + subject, *shape)).astype(np.float16)
        for kind, shape in (("inertial", (6,)), ("skeleton", (60,)))
        for action in (1, 2, 10)
        for subject in (1, 2, 3)
        for take in (1, 2)
    }
    del arrays["skeleton/a2_s1_t2"]
    write(tmp_path / "utd_mhad", "sequences.npz", **arrays)
    data = load_data("utd-mhad", data_dir=tmp_path)
    assert len(data.samples) == 18
    assert len(data.test) == 6  # the one person of even number
    assert data.samples.present.sum() == 35
    assert sorted(set(data.y.tolist())) == [1, 2, 10]
    np.testing.assert_array_equal(np.sort(np.unique(data.test.lengths["inertial"])), [13, 14])
    even = load_data("utd-mhad", data_dir=tmp_path, steps=7).samples
    assert even["skeleton"].shape == (18, 7, 60)
    first = arrays["inertial/a1_s1_t1"].astype(np.float32)
    times = np.linspace(0, len(first) - 1, 7)
    expected = np.stack([np.interp(times, np.arange(len(first)), column) for column in first.T], axis=1)
    np.testing.assert_allclose(even["inertial"][0], expected, atol=1e-5)
    with pytest.raises(InputError, match="steps must be a whole number ≥ 2 or None, got 1"):
        load_data("utd-mhad", data_dir=tmp_path, steps=1)


def prices(folder, days=700, tickers=GROUPS["food"][0], young=None):
    random = np.random.default_rng(0)
    walk = np.exp(np.cumsum(0.01 * random.normal(size=(days, len(tickers))), axis=0))
    lines = ["Date," + ",".join(tickers)]
    for day, row in enumerate(walk):
        cells = ["" if one == young and day < 100 else repr(float(value)) for one, value in zip(tickers, row)]
        lines.append(f"{2000 + day // 360}-{day % 360 // 30 + 1:02}-{day % 30 + 1:02}," + ",".join(cells))
    folder.mkdir()
    (folder / "open_2000-06-01_2021-02-28.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return walk


def test_finance_predicts_the_day_after_the_window(tmp_path):
    walk = prices(tmp_path / "finance")
    data = load_data("finance", data_dir=tmp_path, window=50, train=300, validation=50)
    returns = np.diff(np.log(walk), axis=0)
    scaled = returns / returns[:350].std(axis=0)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [300, 50, 299]
    np.testing.assert_allclose(data.train["SBUX"][7, :, 0], scaled[7:57, 1], rtol=1e-5)
    squared = scaled[50:, 0] ** 2  # MCD, the day after each window
    np.testing.assert_allclose(data.y, squared / squared[:300].std(), rtol=1e-6)


def test_finance_can_predict_every_stock_on_one_scale(tmp_path):
    walk = prices(tmp_path / "finance")
    data = load_data("finance", data_dir=tmp_path, window=50, train=300, validation=500, targets="all")
    squared = np.diff(np.log(walk), axis=0)[50:] ** 2
    np.testing.assert_allclose(data.y, squared / squared[:300].std(), rtol=1e-6)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [300, 116, 233]
    with pytest.raises(UnknownNameError, match="'every'"):
        load_data("finance", data_dir=tmp_path, targets="every")


def test_finance_leaves_out_days_before_a_stock_existed(tmp_path):
    prices(tmp_path / "finance", young="HSY")
    data = load_data("finance", data_dir=tmp_path, window=50)
    assert len(data.samples) == 700 - 100 - 1 - 50
    assert len(data.test) > 0.1 * len(data.samples)


def test_finance_says_which_stock_is_not_there(tmp_path):
    prices(tmp_path / "finance")
    with pytest.raises(InputError, match=r"no column MRK, WST"):
        load_data("finance", data_dir=tmp_path, group="health")
    with pytest.raises(UnknownNameError, match="food-large"):
        load_data("finance", data_dir=tmp_path, group="foods")
