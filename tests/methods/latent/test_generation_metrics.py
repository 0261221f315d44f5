"""Errors and coherence of generated samples, against values written out by hand."""

import numpy as np
import pytest

from consilience.core.samples import Samples
from consilience.methods.latent.generation_metrics import coherent, generation_errors, linear_probe


def test_errors_count_what_is_there_and_no_padding():
    samples = Samples.of(
        {
            "numbers": np.array([[1.0, 2.0], [3.0, 4.0]]),
            "steps": [np.array([[1.0]]), np.array([[2.0], [4.0]])],
            "words": [np.array([1, 2]), np.array([3])],
            "title": np.array(["red", "blue"], dtype=object),
        },
        kinds={"words": "tokens", "steps": "sequence", "title": "text"},
        present=[[1, 1, 1, 1], [0, 1, 1, 1]],
    )
    generated = {
        "numbers": np.array([[1.0, 4.0], [0.0, 0.0]]),
        "steps": np.array([[[2.0], [9.0], [9.0]], [[2.0], [1.0], [9.0]]]),
        "words": np.array([[1, 1], [3, 4]]),
        "title": np.array(["red", "green"], dtype=object),
    }
    errors = generation_errors(samples, generated)
    assert errors["numbers"] == pytest.approx(np.sqrt(4 / 2))  # the second sample does not have it
    assert errors["steps"] == pytest.approx(np.sqrt((1 + 0 + 9) / 3))
    assert errors["words"] == pytest.approx(1 / 3)
    assert errors["title"] == 0.5
    assert np.isnan(generation_errors(samples[[1]], {"numbers": generated["numbers"][1:]})["numbers"])


class Sign:
    """A classifier by the sign of the first number; it must not be given the answers."""

    def predict(self, X):
        assert getattr(X, "y", None) is None
        return (np.asarray(X["a"])[:, 0] > 0).astype(int)


def test_coherence_is_asked_of_each_sample():
    samples = Samples.of({"a": np.array([[1.0], [-1.0], [2.0]])}, y=[1, 1, 1])
    assert coherent(Sign(), samples, np.array([1, 1, 0])).tolist() == [True, False, False]
    assert coherent(Sign(), {"a": np.array([[1.0]])}, np.array([1])).tolist() == [True]


def test_a_linear_probe_finds_what_is_linear():
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(200, 3))
    classes = (latents[:, 1] > 0).astype(int)
    assert linear_probe(latents[:150], classes[:150], latents[150:], classes[150:]) > 0.9
    assert linear_probe(latents[:150], classes[:150], latents[150:], 1 - classes[150:]) < 0.1
