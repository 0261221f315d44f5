"""An estimator's parameters: single settings searched by name (`settings__width`), and all of them as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.estimators.column_selection import describe_columns, restore_columns


class NestedParameters(BaseEstimator):
    """An estimator some of whose parameters are mappings, each entry of which is a parameter too.

    >>> class Model(NestedParameters):
    ...     nested = ("settings",)
    ...     def __init__(self, settings=None):
    ...         self.settings = settings
    >>> Model({"width": 8, "dropout": 0.1}).set_params(settings__width=16).settings
    {'width': 16, 'dropout': 0.1}
    """

    nested: ClassVar[tuple[str, ...]] = ()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with `deep` also every entry of a mapping, as `settings__width`."""
        parameters = super().get_params(deep=False)
        for name in self.nested if deep else ():
            if isinstance(parameters[name], Mapping):  # what else it may be is for fit to refuse
                parameters |= {f"{name}__{entry}": value for entry, value in parameters[name].items()}
        return parameters

    def set_params(self, **parameters: Any) -> Any:
        """Set parameters by name; `settings__width=8` changes one entry and leaves the others."""
        entries: dict[str, dict[str, Any]] = {}
        whole: dict[str, Any] = {}
        for name, value in parameters.items():
            mapping, _, entry = name.partition("__")
            if entry and mapping in self.nested:
                entries.setdefault(mapping, {})[entry] = value
            else:
                whole[name] = value
        super().set_params(**whole)
        for name, changed in entries.items():  # into a new mapping: the old one may be another estimator's too
            setattr(self, name, {**(getattr(self, name) or {}), **changed})
        return self


def draw_seed(random_state: Any) -> int:
    """A seed from what scikit-learn takes for a random state: a whole number is the seed itself."""
    if not isinstance(random_state, int | np.integer):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise InputError(f"random_state must be a whole number ≥ 0, a RandomState or None, got {random_state}")
    return int(random_state)


def describe_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON values for `restore_parameters`, without what is none.

    A validation set has served, a random generator has moved on, and encoders are saved with the model.

    >>> describe_parameters({"columns": {"a": slice(2)}, "class_weight": {0: 2.0}, "random_state": 0})
    {'columns': {'a': {'slice': [None, 2, None]}}, 'class_weight': [[0, 2.0]], 'random_state': 0}
    """
    described = dict(parameters)
    described.pop("encoders", None)
    described["columns"] = describe_columns(parameters.get("columns"))
    if isinstance(parameters.get("validation"), Samples | tuple | list):
        described["validation"] = None
    if not isinstance(parameters.get("random_state"), int | np.integer | None):
        described["random_state"] = None
    if isinstance(weights := parameters.get("class_weight"), Mapping):  # JSON would make strings of its keys
        described["class_weight"] = [list(pair) for pair in weights.items()]
    return described


def restore_parameters(described: Mapping[str, Any]) -> dict[str, Any]:
    """What `describe_parameters` wrote, back again."""
    parameters = dict(described) | {"columns": restore_columns(described["columns"])}
    if isinstance(weights := described.get("class_weight"), list):
        parameters["class_weight"] = dict(weights)
    return parameters
