import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer

from consilience.data import load_data


def test_digits_quadrants_make_up_the_picture():
    data = load_data("digits")
    parts = {name: data.samples[name].reshape(-1, 4, 4) for name in data.modalities}
    top = np.concatenate([parts["top_left"], parts["top_right"]], axis=2)
    bottom = np.concatenate([parts["bottom_left"], parts["bottom_right"]], axis=2)
    images, y = load_digits(return_X_y=True)
    assert (np.concatenate([top, bottom], axis=1).reshape(-1, 64) == images).all()
    assert (data.y == y).all()
    assert data.sizes["train"] / len(data) == pytest.approx(0.6, abs=0.01)


def test_progressive_synthetic_follows_its_equations():
    data = load_data("progressive-synthetic", n=5000, d=3, eta=0, sigma2=0)
    z, x1, x2 = data.extra["z"], data.samples["x1"].astype(float), data.samples["x2"].astype(float)
    assert data.task == "regression"
    assert np.abs(z).max() <= 2.5
    assert z.std() == pytest.approx(5 / np.sqrt(12), rel=0.03)
    # Without η the disturbance is only in x2, and x2 without noise is a sine.
    assert np.abs(x2).max() <= 1
    # Y = W_y Z + ε: least squares on Z recovers W_y and unit noise.
    weights, *_ = np.linalg.lstsq(z, data.y, rcond=None)
    assert weights == pytest.approx(data.extra["w_y"], abs=0.05)
    assert (data.y - z @ weights).std() == pytest.approx(1, abs=0.05)
    # x1 = lReLU(W₁Z) + ε₁ is linear in Z and in its rectified projections only: negative values are noise.
    assert x1.min() > -6


def test_eta_adds_twice_the_second_modality():
    plain = load_data("progressive-synthetic", n=200, eta=0, sigma2=0)
    for eta in (1.5, -1.5):
        strong = load_data("progressive-synthetic", n=200, eta=eta, sigma2=0)
        difference = strong.samples["x1"] - plain.samples["x1"]
        assert np.allclose(difference, 3 * plain.samples["x2"], atol=1e-5)


def test_sequences_are_aligned_and_of_varying_length():
    samples = load_data("sequences").samples
    assert (samples.lengths["motion"] == samples.lengths["sound"]).all()
    assert len(np.unique(samples.lengths["motion"])) > 5
    beyond = np.arange(24) >= samples.lengths["sound"][:, None]
    assert not samples["sound"][beyond].any()
    assert samples["sound"][~beyond].any()
    assert {name: one.kind for name, one in samples.modalities.items()} == {"motion": "sequence", "sound": "sequence"}


def align_at_event(samples):
    """Features that do not move with the event: cross-moments of the channels at small lags, and periodograms."""
    motion, sound = (samples[name].astype(float) for name in ("motion", "sound"))
    lags = [(motion[:, lag:, 0] * motion[:, : 24 - lag, 1]).sum(1) for lag in range(6)]
    lags += [(motion[:, lag:, 1] * motion[:, : 24 - lag, 0]).sum(1) for lag in range(1, 6)]
    spectrum = np.abs(np.fft.rfft(sound, axis=1)).reshape(len(sound), -1)
    return {"motion": np.stack(lags, axis=1), "sound": spectrum}


def bag_words(train, test):
    words = CountVectorizer().fit(train["text"])
    return [
        {"image": one["image"].reshape(len(one), -1), "text": words.transform(one["text"]).toarray()}
        for one in (train, test)
    ]


@pytest.mark.parametrize(("name", "chance"), [("sequences", 1 / 4), ("captions", 1 / 6)])
def test_each_modality_helps_and_both_are_needed(name, chance):
    data = load_data(name)
    if name == "sequences":
        train, test = align_at_event(data.train), align_at_event(data.test)
    else:
        train, test = bag_words(data.train, data.test)

    def score(*names):
        forest = RandomForestClassifier(100, random_state=0)
        forest.fit(np.hstack([train[one] for one in names]), data.train.y)
        return forest.score(np.hstack([test[one] for one in names]), data.test.y)

    alone = [score(one) for one in data.modalities]
    assert min(alone) > chance + 0.1
    assert max(alone) < 0.7
    assert score(*data.modalities) > max(alone) + 0.1


def test_captions_leave_something_open():
    data = load_data("captions")
    assert {name: one.kind for name, one in data.modalities.items()} == {"image": "image", "text": "text"}
    images = data.samples["image"]
    assert images.min() >= 0
    assert images.max() <= 1
    colours = [label.split()[0] for label in data.y]
    shapes = [label.split()[1] for label in data.y]
    named = np.mean([colour in text for colour, text in zip(colours, data.samples["text"])])
    shaped = np.mean([shape in text for shape, text in zip(shapes, data.samples["text"])])
    assert 0.7 < named < 0.9
    assert 0.3 < shaped < 0.5
    # No sentence names a colour or shape that is not there.
    for word in ("red", "green", "blue", "circle", "cross"):
        assert all(word in label for label, text in zip(data.y, data.samples["text"]) if word in text.split())
