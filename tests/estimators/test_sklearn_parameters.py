"""Parameters by single settings, seeds, and parameters as JSON and back."""

import inspect
import json
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from consilience import FusionClassifier, FusionRegressor, MultimodalVAE
from consilience.core.errors import InputError, WrongTypeError
from consilience.core.samples import Samples
from consilience.core.settings import settings_of
from consilience.estimators.saving import describe_parameters, restore_parameters
from consilience.estimators.sklearn_parameters import DeclaredParameters, draw_seed
from consilience.training.training_settings import TrainingSettings


class Nested(DeclaredParameters):
    first = "settings"
    nested = ("settings", "training")

    settings: Any = None
    training: Any = None
    lr: float = 0.1


def test_entries_are_listed_only_when_deep():
    model = Nested({"width": 8})
    assert model.get_params(deep=False) == {"settings": {"width": 8}, "training": None, "lr": 0.1}
    assert model.get_params() == model.get_params(deep=False) | {"settings__width": 8}


def test_what_is_no_mapping_has_no_entries():
    assert set(Nested(settings=3, training="x").get_params()) == {"settings", "training", "lr"}


def test_parameters_are_stored_as_given_and_listed_in_the_signature():
    settings = {}
    assert Nested(settings).settings is settings
    assert list(inspect.signature(Nested).parameters) == ["settings", "training", "lr"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'rate'"):
        Nested(rate=1)
    with pytest.raises(WrongTypeError, match=r"Nested got an unexpected .* 'setting': did you mean 'settings'\?"):
        Nested(setting={})
    with pytest.raises(TypeError, match="too many positional arguments"):
        Nested(settings, None)


class Own(Nested):
    def __init__(self, scale=1.0):
        super().__init__({"scale": scale}, lr=0.5)
        self.scale = scale


class OwnToo(Own):
    """A subclass of an estimator that has its own constructor keeps that one."""


def test_a_constructor_that_is_written_is_kept():
    model = OwnToo(scale=2.0)
    assert (model.settings, model.lr, model.scale) == ({"scale": 2.0}, 0.5, 2.0)
    assert model.get_params() == {"scale": 2.0}


class Child(Nested):
    trains = True
    training_defaults = MappingProxyType({"epochs": 7})

    depth: int = 2


def test_every_setting_of_training_is_a_parameter():
    declared = settings_of(TrainingSettings)
    parameters = Child().get_params(deep=False)
    assert set(parameters) == {"settings", "training", "lr", "depth"} | (set(declared) - {"seed"})
    assert (parameters["epochs"], parameters["batch_size"]) == (7, declared["batch_size"].default)


@pytest.mark.parametrize("estimator", [FusionClassifier, FusionRegressor, MultimodalVAE])
def test_help_lists_every_setting_of_training(estimator):
    signature = inspect.signature(estimator).parameters
    for name, setting in settings_of(TrainingSettings).items():
        if name != "seed":
            assert signature[name].default == estimator.training_defaults.get(name, setting.default)
            if estimator is not FusionRegressor:  # whose parameters are those of the classifier
                assert f"\n        {name} (" in estimator.__doc__


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
