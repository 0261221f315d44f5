"""Noise at the scale of published tables: its statistics, clipping, and who is hit."""

import numpy as np
import pytest

from consilience import corrupt
from consilience.corruption import find_corruption


def grey(n=400, low=0.0, high=255.0):
    """Images in the middle of the range, so that clipping is rare; the first two set the range."""
    images = np.full((n, 1, 8, 8), (low + high) / 2)
    images[0], images[1] = low, high
    return images


@pytest.mark.parametrize(("low", "high"), [(0.0, 255.0), (-1.0, 1.0)], ids=["bytes", "standardised"])
def test_images_get_ten_grey_values_for_each_epsilon(low, high):
    images = grey(low=low, high=high)
    noisy = corrupt({"image": images}, "qmf-gaussian", 2.0, probability=1.0)["image"]
    noise = (noisy - images)[2:] / (high - low) * 255
    assert noise.std() == pytest.approx(20, rel=0.02)
    assert noise.mean() == pytest.approx(0, abs=0.5)


def test_all_channels_of_a_pixel_get_the_same_noise():
    images = np.repeat(grey(), 3, axis=1)
    noise = (corrupt({"image": images}, "qmf-gaussian", 2.0, probability=1.0)["image"] - images)[2:]
    assert np.ptp(noise, axis=1).max() == pytest.approx(0, abs=1e-4)
    assert np.corrcoef(noise[:, 0, 0, 0], noise[:, 0, 0, 1])[0, 1] == pytest.approx(0, abs=0.2)  # not over pixels


def test_images_are_clipped_and_do_not_wrap():
    noisy = corrupt({"image": grey().astype(np.uint8)}, "qmf-gaussian", 20.0, probability=1.0)["image"]
    assert (noisy.min(), noisy.max()) == (0, 255)
    # Half of the noise of 200 grey values is cut off at either end: P(|N(0, 200)| > 127.5) = 0.524.
    assert np.isin(noisy[2:], (0, 255)).mean() == pytest.approx(0.524, abs=0.01)


def test_each_modality_is_hit_with_probability_one_half_on_its_own():
    n = 4000
    X = {"rgb": grey(n)[:, :, :2, :2], "depth": grey(n)[:, :, :2, :2]}
    noisy = corrupt(X, "qmf-gaussian", 5.0)
    hit = np.stack([(noisy[name] != X[name]).any(axis=(1, 2, 3))[2:] for name in X])
    assert hit.mean(axis=1) == pytest.approx([0.5, 0.5], abs=0.03)
    assert (hit[0] & hit[1]).mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("corruption", ["qmf-gaussian", "qmf-salt-and-pepper"])
@pytest.mark.parametrize(("level", "share"), [(5, 0.5), (10, 1.0), (20, 1.0)])
def test_words_are_blanked_with_probability_epsilon_over_ten(corruption, level, share):
    texts = ["one two three four five"] * 1000
    blanked = corrupt({"text": texts}, corruption, level, probability=1.0)["text"]
    assert np.mean([text.split().count("_") / 5 for text in blanked]) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("level", "images_hit"), [(5, 0.5), (10, 1.0)])
def test_salt_and_pepper_strikes_a_tenth_of_the_pixels_of_some_images(level, images_hit):
    images = grey(2000)
    noisy = corrupt({"image": images}, "qmf-salt-and-pepper", level, probability=1.0)["image"][2:]
    jumped = noisy != 127.5
    assert set(np.unique(noisy[jumped])) == {0.0, 255.0}
    hit = jumped.any(axis=(1, 2, 3))
    assert hit.mean() == pytest.approx(images_hit, abs=0.04)
    assert jumped[hit].mean() == pytest.approx(0.1, abs=0.01)
    assert (noisy[jumped] == 255).mean() == pytest.approx(0.5, abs=0.05)


def test_vectors_get_standard_deviations():
    x = np.random.default_rng(0).normal(scale=[1.0, 10.0], size=(3000, 2))
    noise = corrupt({"v": x}, "qmf-gaussian", 3.0, probability=1.0)["v"] - x
    assert noise.std(axis=0) == pytest.approx([3, 30], rel=0.05)


def test_the_same_sample_gets_the_same_noise_in_any_batch():
    images = grey(20)
    whole = corrupt({"image": images}, "qmf-gaussian", 5.0)["image"]
    part = corrupt({"image": images[7:9]}, "qmf-gaussian", 5.0, reference={"image": images}, index=[7, 8])["image"]
    assert np.array_equal(whole[7:9], part)
    assert find_corruption("qmf-gaussian").options == ()


def test_series_suffer_three_faults_at_once():
    random = np.random.default_rng(0)
    X = {name: 100 + random.normal(size=(300, 40, 2)) for name in ("a", "b")}
    p = 0.3
    noisy = corrupt(X, "multibench-series", p, probability=1.0)
    lost = {name: noisy[name] == 0 for name in X}
    both = np.concatenate([lost["a"], lost["b"]], axis=2)
    # A whole step is lost in all modalities with probability p, or by all four entries happening to be lost.
    assert both.all(axis=2).mean() == pytest.approx(p + (1 - p) * p**4, abs=0.01)
    assert both.mean() == pytest.approx(1 - (1 - p) ** 2, abs=0.01)
    noise = {name: np.where(lost[name], np.nan, noisy[name] - X[name]) for name in X}
    assert np.nanstd(noise["a"]) == pytest.approx(p, rel=0.02)
    apart = noise["a"] - noise["b"][..., ::-1]  # one draw a step, for every feature of every modality
    assert np.nanmax(np.abs(apart)) < 1e-4


def test_series_lose_more_at_a_higher_level():
    X = {"a": np.ones((20, 30, 1))}
    mild, strong = (corrupt(X, "multibench-series", p, probability=1.0)["a"] == 0 for p in (0.2, 0.6))
    assert (mild <= strong).all()
    assert mild.sum() < strong.sum()
