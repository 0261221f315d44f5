"""How augmentations are read and chosen, and their levels by sample."""

import numpy as np
import pytest

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.corruption import Noise, Portion, corruption_names, find_corruption
from consilience.corruption.augmentation import (
    augment_samples,
    choose_augmentations,
    levels_of,
    read_augment,
    stream,
    within_modalities,
)
from consilience.corruption.corruptions import Corruption
from consilience.corruption.reference import Reference

MODALITIES = {
    "photo": Modality("photo", "image", (1, 4, 4)),
    "audio": Modality("audio", "sequence", (6, 2)),
    "title": Modality("title", "text", ()),
}


def described(given):
    return {
        name: [(each.corruption.name, each.low, each.high, each.probability) for each in own]
        for name, own in choose_augmentations(given, MODALITIES).items()
    }


def test_the_forms_in_which_augmentations_are_given():
    both = [("gaussian", 0.0, 0.5, 1.0)]
    assert described(None) == {}
    assert described("gaussian:0..0.5") == {"photo": both, "audio": both}
    assert described("gaussian:0...5@.3")["photo"] == [("gaussian", 0.0, 0.5, 0.3)]
    assert described({"audio": "gaussian:2"}) == {"audio": [("gaussian", 2.0, 2.0, 1.0)]}
    several = {"audio": ["drop:1..2", "swapped:10@0.1"], "photo": None}
    assert described(several) == {"audio": [("drop", 1.0, 2.0, 1.0), ("swapped", 10.0, 10.0, 0.1)]}
    named = described(["gaussian:0..0.5", "missing:1", "audio=missing:10@0.2", "title=none"])
    assert named == {"audio": [("missing", 10.0, 10.0, 0.2)], "photo": [*both, ("missing", 1.0, 1.0, 1.0)]}
    (raw,) = read_augment("gaussian:0..20@1,scale=raw,last=true")[None]
    assert (raw.options, raw.last) == ({"scale": "raw"}, True)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("gaussian", InputError, r"augment 'gaussian': expected \[MODALITY=\]CORRUPTION:LEVEL"),
        ("gaussian:", InputError, "expected"),
        ("gaussian:0..x", InputError, "'x' is not a number"),
        ("gaussian:-1..2", InputError, "levels must be ≥ 0"),
        ("gaussian:2..1", InputError, "the first not above the second"),
        ("gaussian:0", InputError, "the second > 0"),
        ("gaussian:0..inf", InputError, "not finite"),
        ("gaussian:1@0", InputError, "probability must be > 0 and ≤ 1"),
        ("gaussian:1@1.5", InputError, "probability must be > 0 and ≤ 1"),
        ("gaussian:1,raw", InputError, "'raw' is not OPTION=VALUE"),
        ("missing:1,last=2", InputError, "last must be true or false"),
        ("gausian:1", UnknownNameError, "did you mean 'gaussian'"),
        ("gaussian:1,scal=raw", UnknownNameError, "did you mean 'scale'"),
        ({"audio": [3]}, InputError, "augment: expected a string"),
        ({"audio": 3}, InputError, "augment: expected a string .*, got 3"),
        ("audo=gaussian:1", UnknownNameError, "did you mean 'audio'"),
        ("title=gaussian:1", UnsupportedError, r"'gaussian' does not apply to title \(text\), only to vector.* blank"),
        (["gaussian:1", "photo=none", "audio=none"], UnsupportedError, r"does not apply to title \(text\)"),
    ],
)
def test_what_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        choose_augmentations(given, MODALITIES)


def test_what_is_given_for_modalities_of_other_sets_is_left_out():
    assert within_modalities({"audio": "drop:1", "x": "drop:2"}, ["audio"]) == {"audio": "drop:1"}
    assert within_modalities(["drop:1", "x=drop:2", "drop:1,last=true"], ["audio"]) == ["drop:1", "drop:1,last=true"]
    assert within_modalities("x=drop:2", ["audio"]) is None


def test_levels_are_uniform_and_hits_have_their_probability():
    (augmentation,) = read_augment("gaussian:1..3@0.4")[None]
    levels = levels_of(augmentation, stream(5, "audio", 0, augmentation), np.arange(20_000))
    hit = levels[levels > 0]
    assert len(hit) / len(levels) == pytest.approx(0.4, abs=0.015)
    assert (hit.min(), hit.max()) == (pytest.approx(1, abs=0.01), pytest.approx(3, abs=0.01))
    assert hit.mean() == pytest.approx(2, abs=0.02)
    assert hit.std() == pytest.approx(2 / 12**0.5, abs=0.02)


def make_samples():
    random = np.random.default_rng(0)
    return Samples.of(
        {
            "vector": random.normal(2, 3, size=(9, 5)).astype(np.float32),
            "image": random.normal(1, 2, size=(9, 2, 4, 5)),
            "sequence": [random.normal(size=(steps, 3)) + 1 for steps in (4, 2, 7, 7, 1, 5, 3, 6, 2)],
            "tokens": [random.integers(1, 9, size=steps).tolist() for steps in (4, 2, 7, 7, 1, 5, 3, 6, 2)],
            "text": [" ".join("abcdefg"[: 1 + row % 7]) for row in range(9)],
        },
        np.arange(9) % 3,
        kinds={"tokens": "tokens"},
    )


@pytest.mark.parametrize("name", ["vector", "image", "sequence", "tokens", "text"])
def test_a_level_for_each_sample_is_each_sample_at_its_level(name):
    samples = make_samples()
    levels = np.linspace(0.5, 12, len(samples))
    for corruption in map(find_corruption, corruption_names(samples.modalities[name].kind)):
        noise, reference = Noise(3, name, corruption.name), Reference(samples)

        def portion(rows, noise=noise, reference=reference):
            lengths = samples.lengths[name][rows] if name in samples.lengths else None
            values = np.array(samples[name][rows])
            present = np.ones(len(values), dtype=bool)
            known = samples.modalities[name], values, samples.index[rows], lengths, present
            return Portion(*known, noise, reference, samples.y[rows])

        together = corruption.apply(portion(np.arange(9)), levels)
        one_by_one = Corruption(corruption.name, corruption.function, corruption.kinds, "", (), corruption.hides)
        grouped = one_by_one.apply(portion(np.arange(9)), levels)
        for row, level in enumerate(levels):
            alone = corruption.function(portion(np.array([row])), float(level))
            for made in (together, grouped):
                np.testing.assert_array_equal(made.values[row], alone.values[0], err_msg=corruption.name)
                assert made.present[row] == alone.present[0]
                assert made.lengths is None or made.lengths[row] == alone.lengths[0]


def test_samples_that_go_missing_are_told_apart_by_whether_the_last_may():
    samples = make_samples()
    chosen = choose_augmentations({"text": ["missing:10@0.5", "missing:10@0.5,last=true"]}, samples.modalities)["text"]
    after, soft, firm = augment_samples(samples, "text", chosen, 1, Reference(samples))
    for lost, place in ((soft, 0), (firm, 1)):
        level = levels_of(chosen[place], stream(1, "text", place, chosen[place]), samples.index)
        np.testing.assert_array_equal(lost, level > 0)
    assert soft.any()
    assert firm.any()
    assert after.present.all()
