"""Which sample of a scene the live page shows first, by models whose answers are written down here."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from consilience.core.samples import Samples
from consilience.live.shown_samples import LOUDEST, shown_samples, typical

Y = np.array(["a", "b", "a", "b", "a", "b"])
RHO = np.array([[0.2, 0.7], [0.2, 0.4], [0.6, 0.7], [0.2, 0.7], [0.2, 0.7], [0.2, 0.7]])
STD = {"left": np.array([2.0, 0.5]), "right": np.array([1.0, 1.0])}


def samples():
    """Six samples of two modalities; the first value of the left one is the number of the sample."""
    left = np.stack([np.arange(6.0), np.zeros(6)], axis=1)
    return Samples.of({"left": left, "right": np.ones((6, 2))}, Y)


class Model:
    """A model whose n-th answer is wrong about the samples `wrong[n]`, and any later one about the last of these."""

    classes_ = np.array(["a", "b"])

    def __init__(self, *wrong):
        self.wrong = list(wrong)
        self.asked = []

    def predict(self, given):
        wrong = self.wrong[min(len(self.asked), len(self.wrong) - 1)]
        self.asked.append(given)
        return np.where(np.isin(np.arange(6), wrong), "neither", Y)

    def full_prediction(self, given):
        self.asked.append(given)
        return SimpleNamespace(extra={"reliability": RHO})


def test_typical_are_samples_that_show_what_the_page_is_about():
    # As they are, with the left one broken, with the right one broken.
    models = {"late": Model([0]), "bayes-robust": Model([], [3], [4])}
    # 0: late is wrong; 1: ρ of the right one falls too; 2: ρ of the broken one does not fall; 3, 4: wrong when broken.
    assert typical(samples(), [samples(), samples()], models).tolist() == [False] * 5 + [True]


def test_the_first_typical_sample_comes_first_and_the_others_as_they_come():
    found = shown_samples(samples(), STD, {"bayes-robust": Model([0, 3])})
    assert [int(each["x"]["left"][0]) for each in found["samples"]] == [4, 0, 1, 2, 3, 5]
    assert [each["y"] for each in found["samples"]] == [0, 0, 1, 0, 1, 1]
    assert found["typical"] == 2


def test_without_a_typical_sample_all_come_as_they_are():
    found = shown_samples(samples(), STD, {"bayes-robust": Model(range(6))})
    assert [int(each["x"]["left"][0]) for each in found["samples"]] == list(range(6))
    assert found["typical"] == 0


def test_noise_belongs_to_a_sample_wherever_it_is_shown():
    moved, kept = (
        shown_samples(samples(), STD, {"bayes-robust": Model(wrong)})["samples"] for wrong in ([0], range(6))
    )
    assert moved != kept
    assert {each["x"]["left"][0]: each["noise"] for each in moved} == {
        each["x"]["left"][0]: each["noise"] for each in kept
    }


@pytest.mark.parametrize(("place", "name"), [(1, "left"), (2, "right")])
def test_the_broken_samples_are_those_that_a_visitor_sees(place, name):
    leader = Model(range(6))
    shown = shown_samples(samples(), STD, {"bayes-robust": leader})["samples"]
    broken = leader.asked[place]
    for row, each in enumerate(shown):
        for other in ("left", "right"):
            level = LOUDEST if other == name else 0
            expected = np.array(each["x"][other]) + level * STD[other] * np.array(each["noise"][other])
            np.testing.assert_allclose(broken[other][row], expected, rtol=1e-6)
