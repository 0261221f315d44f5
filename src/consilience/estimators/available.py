"""Methods that an estimator has only under a condition; whoever asks for one that is not there is told why."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any

from consilience.estimators.sklearn_parameters import UnfittedError


class _Available:
    """A method behind a check.

    As scikit-learn's `available_if`, which hides the reason behind a message of its own, and says of an estimator that
    is not fitted that it lacks the method.
    """

    def __init__(self, function: Callable[..., Any], check: Callable[[Any], None]):
        self.function, self.check = function, check
        self.__doc__ = function.__doc__

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is not None:
            self._check(estimator, owner)
            return MethodType(self.function, estimator)

        @wraps(self.function)
        def unbound(estimator: Any, *arguments: Any, **given: Any) -> Any:
            self._check(estimator, owner)
            return self.function(estimator, *arguments, **given)

        return unbound

    def _check(self, estimator: Any, owner: type) -> None:
        try:
            self.check(estimator)
        except UnfittedError:  # an AttributeError too, so that `hasattr` is False
            raise
        except AttributeError as error:
            name = self.function.__name__
            raise AttributeError(f"This {owner.__name__!r} has no attribute {name!r}: {error}") from error


def available_if(check: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator: the method is there unless the check of the estimator raises an AttributeError."""
    return lambda function: _Available(function, check)
