"""Each corruption against a loop over samples that reads its definition."""

import math

import numpy as np
import pytest

from consilience.core.samples import KINDS, Samples
from consilience.corruption import Noise, corrupt, corruption_names, find_corruption

N, SEED = 60, 4
ON_ALL = ["blank", "swapped", "drop", "structured-drop", "missing"]
ON_NUMBERS = ["gaussian", "salt-and-pepper", "stuck", "scaled", *ON_ALL]
EVERY = {"vector": ON_NUMBERS, "image": ON_NUMBERS, "sequence": ON_NUMBERS, "tokens": ON_ALL, "text": ON_ALL}
CASES = [(kind, corruption) for kind, names in EVERY.items() for corruption in names]
GROWING = [(kind, corruption) for kind, corruption in CASES if corruption not in ("gaussian", "scaled", "blank")]


def make(kind, n=N, seed=0):
    rng = np.random.default_rng(seed)
    values = {
        "vector": lambda: rng.normal(size=(n, 7)) * [1, 2, 3, 4, 5, 6, 7],
        "image": lambda: rng.normal(size=(n, 2, 5, 6)),
        "sequence": lambda: [rng.normal(size=(length, 3)) for length in rng.integers(1, 9, size=n)],
        "tokens": lambda: [rng.integers(2, 30, size=length) for length in rng.integers(1, 9, size=n)],
        "text": lambda: [" ".join(f"w{word}" for word in range(length)) for length in rng.integers(0, 9, size=n)],
    }[kind]()
    return Samples.of({"m": values}, index=rng.permutation(10000)[:n])


def spread(samples):
    """Std, minimum and maximum by numpy, in a shape that stretches over one sample."""
    values, kind = samples["m"], samples.modalities["m"].kind
    if kind == "sequence":
        values = np.concatenate([row[:length] for row, length in zip(values, samples.lengths["m"])])
    if kind == "image":
        return [f(values, axis=(0, 2, 3))[:, None, None] for f in (np.std, np.min, np.max)]
    return [f(values, axis=0) for f in (np.std, np.min, np.max)]


def drawn(noise, index, shape=()):
    return noise.uniform(np.array([index]), shape)[0]


def run(noise, index, share, total, axis=""):
    """The steps of one run, as a range."""
    suffix = f" of {axis}" if axis else ""
    count = min(math.floor(share * total + drawn(noise.within(f"size{suffix}"), index)), total)
    start = math.floor(drawn(noise.within(f"place{suffix}"), index) * (total - count + 1))
    return range(start, start + count)


def one_by_one(samples, corruption, level):
    """What the corruption makes of each sample that it hits: a list of (value, present)."""
    kind, shape = samples.modalities["m"].kind, samples.modalities["m"].shape
    noise, share = Noise(SEED, "m", corruption), min(level / 10, 1)
    results = []
    for row, index in enumerate(samples.index):
        x = samples["m"][row]
        length = len(x.split()) if kind == "text" else len(x)
        if kind in ("sequence", "tokens"):
            length = samples.lengths["m"][row]
            x = x[:length]
        inner = x.shape if kind != "text" else (length,)
        present = True
        if corruption == "gaussian":
            std, _, _ = spread(samples)
            x = x + level * std * noise.normal(np.array([index]), inner)[0]
        elif corruption == "scaled":
            x = x * (1 + level)
        elif corruption == "missing":
            present = drawn(noise, index) >= share
        elif corruption == "swapped":
            if drawn(noise.within("hit"), index) < share:
                others = sorted((who, at) for at, who in enumerate(samples.index) if who != index)
                _, at = others[math.floor(drawn(noise.within("donor"), index) * len(others))]
                x = samples["m"][at]
                if kind in ("sequence", "tokens"):
                    x = x[: samples.lengths["m"][at]]
        elif corruption == "salt-and-pepper":
            _, low, high = spread(samples)
            entries = (1, *shape[1:]) if kind == "image" else inner
            jumps = drawn(noise, index, entries) < level / 100
            x = np.where(jumps, np.where(drawn(noise.within("salt"), index, entries) < 0.5, low, high), x)
        elif kind == "text":
            words = x.split()
            lost = set(np.flatnonzero(drawn(noise, index, inner) < share))
            if corruption == "structured-drop":
                lost = set(run(noise, index, share, length))
            if corruption == "blank":
                x = " ".join("_" if at in lost else word for at, word in enumerate(words))
            else:
                x = " ".join(word for at, word in enumerate(words) if at not in lost)
        elif corruption == "blank" and kind != "tokens":
            x = x * (1 - share)
        elif corruption in ("blank", "drop"):
            x = np.where(drawn(noise, index, inner) < share, 1 if corruption == "blank" else 0, x)
        else:
            x = x.copy()
            fill = spread(samples)[2] if corruption == "stuck" else np.zeros(())
            if kind == "image":
                _, height, width = shape
                for i in run(noise, index, math.sqrt(share), height, "height"):
                    for j in run(noise, index, math.sqrt(share), width, "width"):
                        x[:, i, j] = fill[:, 0, 0] if corruption == "stuck" else 0
            elif kind == "vector" and corruption == "stuck":
                count = math.floor(share * length + drawn(noise.within("size"), index))
                for feature in np.argsort(drawn(noise, index, inner))[:count]:
                    x[feature] = fill[feature]
            else:
                for step in run(noise, index, share, length):
                    x[step] = fill
        results.append((x, present))
    return results


def test_the_table_of_cases_is_complete():
    for kind in KINDS:
        assert set(EVERY[kind]) <= set(corruption_names(kind))
    for name in ON_NUMBERS:
        assert find_corruption(name).level


@pytest.mark.parametrize("level", [0.7, 4.0, 10.0, 25.0])
@pytest.mark.parametrize(("kind", "corruption"), CASES)
def test_equals_a_loop_over_samples(kind, corruption, level):
    samples = make(kind)
    out = corrupt(samples, corruption, level, probability=1, random_state=SEED)
    for row, (expected, present) in enumerate(one_by_one(samples, corruption, level)):
        assert out.present[row, 0] == present
        found = out["m"][row]
        if kind == "text":
            assert found == expected
            continue
        if kind in ("sequence", "tokens"):
            assert out.lengths["m"][row] == len(expected)
            assert not found[len(expected) :].any()
            found = found[: len(expected)]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "corruption"), CASES)
def test_level_zero_is_the_identity(kind, corruption):
    samples = make(kind)
    out = corrupt(samples, corruption, 0, probability=1)
    assert out["m"].dtype == samples["m"].dtype
    assert out["m"].tolist() == samples["m"].tolist()
    np.testing.assert_array_equal(out.present, samples.present)


@pytest.mark.parametrize(("kind", "corruption"), GROWING)
def test_what_is_hit_at_a_level_is_hit_at_every_higher_one(kind, corruption):
    samples = make(kind)
    before = None
    for level in (0, 1, 2, 3.5, 5, 8, 10):
        out = corrupt(samples, corruption, level, probability=1)
        if kind == "text":
            words = [set(text.split()) for text in samples["m"]]
            changed = np.array([len(a - set(b.split())) for a, b in zip(words, out["m"])])
        else:
            changed = out["m"] != samples["m"]
        changed = np.concatenate([changed.reshape(N, -1), ~out.present], axis=1)
        if before is not None:
            assert (before <= changed).all()
        before = changed
    assert before.any()


def test_gaussian_noise_scales_with_the_level():
    samples = make("vector")
    one, three = (corrupt(samples, "gaussian", level)["m"] - samples["m"] for level in (1, 3))
    np.testing.assert_allclose(three, 3 * one, rtol=1e-9, atol=1e-9)


def test_gaussian_noise_has_the_references_std():
    reference = make("vector", n=4000)
    x = {"m": np.zeros((20000, 7))}
    noise = corrupt(x, "gaussian", 2.0, probability=1, reference=reference)["m"]
    np.testing.assert_allclose(noise.std(axis=0), 2 * reference["m"].std(axis=0), rtol=0.02)
    raw = corrupt(x, "gaussian", 2.0, probability=1, reference=reference, scale="raw")["m"]
    np.testing.assert_allclose(raw.std(axis=0), 2.0, rtol=0.02)


@pytest.mark.parametrize("kind", ["vector", "image", "sequence"])
@pytest.mark.parametrize("corruption", ["stuck", "structured-drop", "drop"])
def test_the_mean_share_hit_is_exactly_the_level(kind, corruption):
    n = 4000
    shape = {"vector": (3,), "image": (1, 3, 5), "sequence": (7, 2)}[kind]
    x = {"m": np.ones((n, *shape))}
    x["m"][0] = 2.0  # so that the maximum is not what is there already
    hit = corrupt(x, corruption, 3.0, probability=1)["m"] != x["m"]
    assert abs(hit[1:].mean() - 0.3) < 0.02


def test_salt_and_pepper_jumps_to_either_extreme_as_often():
    rng = np.random.default_rng(0)
    x = {"m": rng.uniform(-1, 3, size=(2000, 40))}
    out = corrupt(x, "salt-and-pepper", 10, probability=1)["m"]
    jumped = out != x["m"]
    assert abs(jumped.mean() - 0.1) < 0.005
    low, high = x["m"].min(axis=0), x["m"].max(axis=0)
    salt, pepper = (out == high)[jumped].mean(), (out == low)[jumped].mean()
    assert salt + pepper == 1
    assert abs(salt - 0.5) < 0.02


def test_salt_and_pepper_of_fixed_density_hits_a_share_of_the_images():
    x = {"m": np.random.default_rng(0).uniform(size=(1000, 1, 20, 20))}
    changed = corrupt(x, "salt-and-pepper", 4, probability=1, density=0.1)["m"] != x["m"]
    images = changed.any(axis=(1, 2, 3))
    assert abs(images.mean() - 0.4) < 0.06
    assert abs(changed[images].mean() - 0.1) < 0.01


def test_salt_and_pepper_takes_whole_pixels():
    x = {"m": np.random.default_rng(0).uniform(size=(50, 3, 8, 8))}
    changed = corrupt(x, "salt-and-pepper", 20, probability=1)["m"] != x["m"]
    assert changed.any()
    assert (changed == changed[:, :1]).all()


def test_swapped_never_takes_itself_or_a_missing_donor():
    values = np.arange(1.0, 13.0)[:, None]
    present = np.ones((12, 1), dtype=bool)
    present[[2, 5]] = False
    samples = Samples.of({"m": values}, present=present, index=[9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11])
    seen = set()
    for seed in range(200):
        out = corrupt(samples, "swapped", 10, probability=1, random_state=seed)["m"][:, 0]
        assert not (out == values[:, 0])[present[:, 0]].any()
        assert out[0] not in (1.0, 2.0)  # rows 0 and 1 are the same sample twice
        assert not set(out[present[:, 0]]) & {3.0, 6.0}
        seen |= {(at, value) for at, value in enumerate(out) if present[at, 0]}
    assert len(seen) == 2 * 8 + 8 * 9


def test_swapped_takes_from_the_reference_and_cuts_at_the_longest_time():
    reference = Samples.of({"m": [np.full((length, 1), 100.0 + length) for length in (2, 6)]})
    samples = Samples.of({"m": [np.ones((length, 1)) for length in (4, 1, 3)]}, index=[50, 51, 52])
    lengths = set()
    for seed in range(20):
        out = corrupt(samples, "swapped", 10, probability=1, reference=reference, random_state=seed)
        for row in range(3):
            length = out.lengths["m"][row]
            lengths.add(int(length))
            assert set(out["m"][row, :length, 0]) == {102.0 if length == 2 else 106.0}
            assert not out["m"][row, length:].any()
    assert lengths == {2, 4}


def test_missing_is_missing_as_often_as_said():
    samples = Samples.of({"m": np.ones((4000, 2))})
    assert abs(corrupt(samples, "missing", 3, probability=1).present.mean() - 0.7) < 0.03
    assert not corrupt(samples, "missing", 10, probability=1).present.any()


def test_blank_uses_the_unknown_id_that_is_asked_for():
    samples = make("tokens")
    inside = np.arange(samples["m"].shape[1]) < samples.lengths["m"][:, None]
    assert (corrupt(samples, "blank", 10, probability=1, unknown=5)["m"] == np.where(inside, 5, 0)).all()


def test_blank_keeps_white_space_and_drop_may_leave_nothing():
    x = {"m": ["one  two\nthree", ""]}
    assert corrupt(x, "blank", 10, probability=1)["m"].tolist() == ["_  _\n_", ""]
    assert corrupt(x, "drop", 10, probability=1)["m"].tolist() == ["", ""]
