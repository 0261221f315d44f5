"""An estimator's parameters: declared once, and searched by name (`settings__width`)."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from consilience.core.errors import ConsilienceError, InputError, WrongTypeError, show
from consilience.core.settings import (
    NonNegativeInt,
    Setting,
    accepts,
    check_value,
    checked,
    plain_type,
    resolve,
    settings_of,
)
from consilience.training.training_settings import TrainingSettings

# Every setting of training is a parameter of the estimators that train; they call the seed `random_state`.
TRAINING: dict[str, Setting] = {
    name: setting for name, setting in settings_of(TrainingSettings).items() if name != "seed"
}
_TRAINING_LINE = "        **training settings\n"


class DeclaredParameters(BaseEstimator):
    """A scikit-learn estimator whose parameters are its annotated class attributes, as in a dataclass.

    `__init__` takes them by keyword and stores them unchanged; its signature lists all of them. A parameter that is a
    mapping can be searched entry by entry.

    Attributes:
        first: The parameter that may be given by position.
        nested: Parameters that are mappings, each entry of which is a parameter too.
        trains: Whether the settings of training are parameters too. A line `**training settings` under `Args` in the
            docstring is replaced by their list.
        training_defaults: Defaults that differ from those of `TrainingSettings`.

    Example:
        >>> class Model(DeclaredParameters):
        ...     nested = ("settings",)
        ...     settings: dict | None = None
        >>> Model(settings={"width": 8, "dropout": 0.1}).set_params(settings__width=16).settings
        {'width': 16, 'dropout': 0.1}
    """

    first: ClassVar[str] = ""
    nested: ClassVar[tuple[str, ...]] = ()
    trains: ClassVar[bool] = False
    training_defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        parameters = _declared(cls)
        written = cls.__init__ is not object.__init__ and not hasattr(cls.__init__, "generated")
        if written or "__init__" in vars(cls) or not parameters:
            return
        self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.Signature([self, *parameters])

        def construct(self: Any, *arguments: Any, **given: Any) -> None:
            for name in given:
                if name not in signature.parameters:
                    near = difflib.get_close_matches(name, [parameter.name for parameter in parameters], n=1)
                    hint = f": did you mean {near[0]!r}?" if near else ""
                    raise WrongTypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}{hint}")
            bound = signature.bind(self, *arguments, **given)
            bound.apply_defaults()
            for name in list(bound.arguments)[1:]:
                setattr(self, name, bound.arguments[name])

        construct.__name__, construct.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
        construct.__signature__, construct.generated = signature, True  # type: ignore[attr-defined]
        cls.__init__ = construct  # type: ignore[method-assign]
        if cls.trains and cls.__doc__:
            lines = [f"        {name} ({setting.allowed}): {setting.help}.\n" for name, setting in TRAINING.items()]
            cls.__doc__ = cls.__doc__.replace(_TRAINING_LINE, "".join(lines))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with `deep` also every entry of a mapping, as `settings__width`."""
        parameters = super().get_params(deep=False)
        for name in self.nested if deep else ():
            if isinstance(parameters.get(name), Mapping):  # fit raises an error for anything else
                parameters |= {f"{name}__{entry}": value for entry, value in parameters[name].items()}
        return parameters

    @checked
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.dict = True
        return tags

    def _check_declared(self) -> None:
        """Check the parameters by their annotations; those of training are checked where a trainer is built."""
        for name, annotation in _annotations(type(self)).items():  # type: ignore[arg-type]  # a class is hashable
            check_value(name, getattr(self, name), annotation)

    def _forget(self) -> None:
        """Delete what an earlier fit learned, so that a failed fit leaves no model."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)


def _declared(cls: type[DeclaredParameters]) -> list[inspect.Parameter]:
    """The annotated attributes of a class and its bases that have a default, and the settings of training."""
    defaults: dict[str, tuple[Any, Any]] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, DeclaredParameters) and base is not DeclaredParameters:
            for name, annotation in vars(base).get("__annotations__", {}).items():
                if name in vars(base) and not name.startswith("_") and "ClassVar" not in str(annotation):
                    defaults[name] = (annotation, vars(base)[name])
    if cls.trains:
        for name, setting in TRAINING.items():
            defaults[name] = (plain_type(setting.annotation), cls.training_defaults.get(name, setting.default))
    by_position, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, by_position if name == cls.first else by_name, default=default, annotation=annotation)
        for name, (annotation, default) in sorted(defaults.items(), key=lambda entry: entry[0] != cls.first)
    ]


@functools.cache
def _annotations(cls: type[DeclaredParameters]) -> dict[str, Any]:
    """Parameter → annotation, without those of training."""
    found = {}
    for parameter in _declared(cls):
        if parameter.name not in TRAINING:
            base = next(base for base in cls.__mro__ if parameter.name in vars(base).get("__annotations__", {}))
            found[parameter.name] = resolve(parameter.annotation, vars(sys.modules[base.__module__]))
    return found


class UnfittedError(ConsilienceError, NotFittedError):
    """An estimator is used before it was fitted."""


def check_fitted(estimator: BaseEstimator, attribute: str) -> None:
    """Raise an error unless an estimator has what fitting learns."""
    try:
        check_is_fitted(estimator, attribute)
    except NotFittedError as error:
        raise UnfittedError(str(error)) from None


def draw_seed(random_state: Any) -> int:
    """Return a seed for a random state as scikit-learn takes it; a whole number is the seed itself."""
    if random_state is None or random_state is np.random or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if accepts(NonNegativeInt, random_state):
        return int(random_state)
    raise InputError(f"random_state must be a whole number ≥ 0, a RandomState or None, got {show(random_state)}")
