"""Parameters by single settings, seeds, and parameters as JSON and back."""

import json

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.estimators.sklearn_parameters import (
    NestedParameters,
    describe_parameters,
    draw_seed,
    restore_parameters,
)


class Nested(NestedParameters):
    nested = ("settings", "training")

    def __init__(self, settings=None, training=None, lr=0.1):
        self.settings, self.training, self.lr = settings, training, lr


def test_entries_are_listed_only_when_deep():
    model = Nested({"width": 8})
    assert model.get_params(deep=False) == {"settings": {"width": 8}, "training": None, "lr": 0.1}
    assert model.get_params() == model.get_params(deep=False) | {"settings__width": 8}


def test_what_is_no_mapping_has_no_entries():
    assert set(Nested(settings=3, training="x").get_params()) == {"settings", "training", "lr"}


def test_entries_are_added_to_none():
    assert Nested().set_params(training__clip=2.0).training == {"clip": 2.0}


def test_unknown_parameters_are_refused():
    with pytest.raises(ValueError, match="Invalid parameter 'rate'"):
        Nested().set_params(rate=1)


def test_seeds():
    assert (draw_seed(5), draw_seed(np.int64(5))) == (5, 5)
    assert draw_seed(np.random.RandomState(1)) == draw_seed(np.random.RandomState(1))
    assert draw_seed(None) != draw_seed(None)
    with pytest.raises(InputError, match="random_state must be a whole number ≥ 0"):
        draw_seed(-1)


def test_parameters_survive_json():
    given = {
        "columns": {"a": slice(0, 2), "b": "mfcc_*"},
        "class_weight": {True: 2.0, False: 1.0},
        "random_state": 3,
        "validation": 0.2,
        "lr": 0.1,
    }
    assert restore_parameters(json.loads(json.dumps(describe_parameters(given)))) == given


@pytest.mark.parametrize(
    "validation", [(1, 2), [1, 2], Samples.of({"a": np.ones((2, 1))})], ids=["tuple", "list", "set"]
)
def test_what_is_no_plain_value_becomes_none(validation):
    described = describe_parameters(
        {"validation": validation, "random_state": np.random.RandomState(0), "encoders": {"a": object()}}
    )
    assert described == {"columns": None, "validation": None, "random_state": None}
