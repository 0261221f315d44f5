"""Checks of what methods and encoders are set to: a refusal names the setting, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError, unknown_name

Range = Literal["", "≥ 0", "> 0", "< 0", "≥ 0 and < 1"]
_RANGES: dict[Range, Callable[[float], bool]] = {
    "": lambda value: True,
    "≥ 0": lambda value: value >= 0,
    "> 0": lambda value: value > 0,
    "< 0": lambda value: value < 0,
    "≥ 0 and < 1": lambda value: 0 <= value < 1,
}


def whole_number(setting: str, value: Any, least: int = 1) -> int:
    """Check a setting that counts something.

    >>> whole_number("layers", 0)
    Traceback (most recent call last):
    consilience.core.errors.InputError: layers must be a whole number ≥ 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{setting} must be a whole number ≥ {least}, got {value!r}")
    return int(value)


def number(setting: str, value: Any, allowed: Range = "") -> float:
    """Check a setting that is a finite number, in a range.

    >>> number("strength", -1, "≥ 0")
    Traceback (most recent call last):
    consilience.core.errors.InputError: strength must be a number ≥ 0, got -1
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or not _RANGES[allowed](value):
        raise InputError(f"{setting} must be a number{f' {allowed}' if allowed else ''}, got {value!r}")
    return float(value)


def dropout_rate(value: Any) -> float:
    """Check a dropout rate: a number from 0 up to, not including, 1."""
    return number("dropout", value, "≥ 0 and < 1")


def yes_or_no(setting: str, value: Any) -> bool:
    """Check a setting that is on or off; 1 and 0 are refused, which may have been meant for a neighbour.

    >>> yes_or_no("calibrate", "no")
    Traceback (most recent call last):
    consilience.core.errors.InputError: calibrate must be True or False, got 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{setting} must be True or False, got {value!r}")
    return bool(value)


def one_of(setting: str, value: Any, allowed: Iterable[str]) -> Any:
    """Check a setting that is one of some words.

    >>> one_of("evidence", "soft", ("softplus", "exp"))
    Traceback (most recent call last):
    consilience.core.errors.UnknownNameError: unknown evidence 'soft': did you mean 'softplus'? Known: exp, softplus
    """
    known = tuple(allowed)
    if not isinstance(value, str) or value not in known:
        raise unknown_name(setting, value, known)
    return value
