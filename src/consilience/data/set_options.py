"""Checks of the options that data sets take."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from consilience.core.errors import InputError


def check_number(option: str, value: Any, *, least: float, below: float | None = None, whole: bool = False) -> None:
    """Refuse an option that is not a number in its range.

    >>> check_number("n", 0, least=10, whole=True)
    Traceback (most recent call last):
    consilience.core.errors.InputError: option n=0 must be a whole number ≥ 10
    """
    fits = False
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        fits = least <= number < (math.inf if below is None else below) and (not whole or number.is_integer())
    if not fits:
        kind = "a whole number" if whole else "a number"
        raise InputError(
            f"option {option}={value!r} must be {kind} ≥ {least}" + (f" and < {below}" if below is not None else "")
        )
