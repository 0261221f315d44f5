"""What an annotation allows: one checker for every setting and argument, and the words for what it refuses."""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union

import numpy as np

from consilience.core.errors import InputError, show, unknown_name


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`; `above` and `below` exclude the end itself."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        low = value > self.low if self.above else value >= self.low
        return low and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        ends = []
        if self.low > -math.inf:
            ends.append(f"{'>' if self.above else '≥'} {self.low:g}")
        if self.high < math.inf:
            ends.append(f"{'<' if self.below else '≤'} {self.high:g}")
        return " and ".join(ends)


if typing.TYPE_CHECKING:
    Names = Sequence[str]
else:
    Names = Iterable[str]  # a set, a generator, the keys of a mapping: whatever it is, the checker makes a list of it


class OwnCheck:
    """In `Annotated`: the value is checked where it is read, with a message of its own."""


PositiveInt = Annotated[int, Interval(1)]
NonNegativeInt = Annotated[int, Interval(0)]
PositiveFloat = Annotated[float, Interval(0, above=True)]
NonNegativeFloat = Annotated[float, Interval(0)]
Rate = Annotated[float, Interval(0, 1, below=True)]
Fraction = Annotated[float, Interval(0, 1)]
Share = Annotated[float, Interval(0, 1, above=True, below=True)]


def check_value(name: str, value: Any, annotation: Any, where: str = "") -> Any:
    """Check one value against an annotation.

    Args:
        name: The setting's name, for the message.
        value: What was given. NumPy scalars become Python values.
        annotation: Such as `PositiveInt`, `float | None`, `Literal["add", "mul"]` or `Sequence[PositiveInt]`.
        where: What the setting belongs to, put before the message ("training").

    Returns:
        The value; whole numbers given for a float become floats.

    Raises:
        UnknownNameError: If the value is not one of the words of a `Literal`.
        InputError: If the value has another type or lies outside its range.

    Example:
        >>> check_value("layers", 0, PositiveInt, "training")
        Traceback (most recent call last):
        consilience.core.errors.InputError: training: layers must be a whole number ≥ 1, got 0
    """
    accepted, result = _accept(value, annotation)
    if accepted:
        return result
    words = [word for member in _members(annotation) for word in _words(member)]
    if words and all(_words(member) or member in (None, type(None)) for member in _members(annotation)):
        raise unknown_name(name, value, words, f"It was given for {where}" if where else "")
    raise InputError(f"{where + ': ' if where else ''}{name} must be {describe(annotation)}, got {show(value)}")


def accepts(annotation: Any, value: Any) -> bool:
    """Return whether an annotation allows a value.

    >>> accepts(PositiveInt | None, None), accepts(PositiveInt, 0)
    (True, False)
    """
    return _accept(value, annotation)[0]


def describe(annotation: Any) -> str:
    """Say in words what an annotation allows.

    >>> describe(PositiveInt | None)
    'a whole number ≥ 1 or None'
    """
    return _either([_describe_member(member) for member in _members(annotation)])


def plain_type(annotation: Any) -> Any:
    """Return an annotation without ranges and help.

    >>> plain_type(Annotated[PositiveInt | None, "help"])
    typing.Optional[int]
    """
    return Union[tuple(map(_bare, _members(annotation)))]  # noqa: UP007  (built at run time)


def _members(annotation: Any) -> Sequence[Any]:
    """The alternatives of a union, each number within the ranges of `Annotated` around it; other annotations alone."""
    try:
        return _known_members(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _find_members(annotation)


@functools.cache
def _known_members(annotation: Any) -> tuple[Any, ...]:
    return tuple(_find_members(annotation))


def _find_members(annotation: Any) -> list[Any]:
    ranges, bare = _ranges(annotation), _bare(annotation)
    if typing.get_origin(bare) not in (Union, types.UnionType):
        return [annotation if ranges else bare]
    members = [member for part in typing.get_args(bare) for member in _members(part)]
    return [Annotated[member, *ranges] if ranges and _bare(member) in (int, float) else member for member in members]


def _ranges(annotation: Any) -> list[Interval]:
    return [item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Interval)]


def _bare(annotation: Any) -> Any:
    return annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation


def _words(member: Any) -> tuple[str, ...]:
    """The words of a `Literal` of strings; none for any other annotation."""
    words = typing.get_args(member) if typing.get_origin(member) is Literal else ()
    return words if all(isinstance(word, str) for word in words) else ()


def _accept(value: Any, annotation: Any) -> tuple[bool, Any]:
    """Whether a value fits one of the alternatives, and the value to use."""
    if annotation is type(value) and annotation in (str, bool, int):  # the usual case of a call for one row
        return True, value
    if OwnCheck in getattr(annotation, "__metadata__", ()):
        return True, value
    if isinstance(value, np.generic):
        value = value.item()
    for member in _members(annotation):
        fits, result = _fit(value, member)
        if fits:
            return True, result
    return False, value


def _fit(value: Any, member: Any) -> tuple[bool, Any]:
    ranges, member = _ranges(member), _bare(member)
    origin = typing.get_origin(member)
    if member in (Any, inspect.Parameter.empty) or isinstance(member, TypeVar):
        return True, value
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in typing.get_args(member)), value
    if member in (None, type(None)):
        return value is None, value
    if member is bool:
        return isinstance(value, bool), value
    if member in (int, float):
        return _fit_number(value, member, ranges)
    if origin in (Sequence, Iterable, list, tuple):
        return _fit_sequence(value, member)
    if origin in (Mapping, dict):
        return _fit_mapping(value, member)
    kind = origin or member
    return not isinstance(kind, type) or isinstance(value, kind), value


def _fit_number(value: Any, kind: type, ranges: list[Interval]) -> tuple[bool, Any]:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        return False, value
    try:
        number = kind(value)
    except OverflowError:  # a whole number beyond the largest float
        return False, value
    if kind is int and not -(2**63) <= number < 2**63:  # no array holds it
        return False, value
    if kind is float and not math.isfinite(number):
        return False, value
    return all(value in allowed for allowed in ranges), number


def _fit_sequence(value: Any, member: Any) -> tuple[bool, Any]:
    """Check the elements; what is neither a list nor a tuple, such as a range, becomes a list."""
    value = _as_sequence(value, any_order=typing.get_origin(member) is Iterable)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False, value
    fixed = _fixed_elements(member)
    if fixed and len(value) != len(fixed):
        return False, value
    kinds = fixed or (typing.get_args(member) or (Any,))[:1] * len(value)
    fitted = [_accept(item, kind) for item, kind in zip(value, kinds)]
    items = [item for _, item in fitted]
    return all(fits for fits, _ in fitted), tuple(items) if isinstance(value, tuple) else items


def _as_sequence(value: Any, any_order: bool) -> Any:
    """Arrays, columns and, if `any_order`, whatever else can be iterated over, as a list; other values unchanged."""
    if isinstance(value, Sequence):
        return value
    make = getattr(value, "tolist", None) or getattr(value, "to_list", None)
    if make is None and any_order and isinstance(value, Iterable):
        make = functools.partial(list, value)
    try:
        return value if make is None else make()
    except Exception:  # a tensor without memory, or an object of which only the name is known: it does not fit
        return value


def _fit_mapping(value: Any, member: Any) -> tuple[bool, Any]:
    """Check the values; the keys are not checked."""
    kind = (typing.get_args(member) or (Any, Any))[1]
    # A sparse matrix of SciPy may be a dictionary, of places.
    sparse = any(base.__module__.startswith("scipy.sparse") for base in type(value).__mro__)
    mapping = isinstance(value, typing.get_origin(member)) and not sparse
    if not mapping or kind is Any:
        return mapping, value
    fitted = {key: _accept(item, kind) for key, item in value.items()}
    return all(fits for fits, _ in fitted.values()), {key: item for key, (_, item) in fitted.items()}


def _fixed_elements(member: Any) -> tuple[Any, ...]:
    """The annotations of a tuple of fixed length, element by element; none for any other annotation."""
    kinds = typing.get_args(member) if typing.get_origin(member) is tuple else ()
    return () if Ellipsis in kinds else kinds


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _describe_member(member: Any) -> str:
    ranges, member = _ranges(member), _bare(member)
    if typing.get_origin(member) is Literal:
        return _either([repr(word) for word in typing.get_args(member)])
    if member in (int, float):
        return " ".join(
            filter(None, ("a whole number" if member is int else "a number", " and ".join(map(str, ranges))))
        )
    if member in (None, type(None)):
        return "None"
    if member is bool:
        return "True or False"
    if member is str:
        return "a string"
    origin = typing.get_origin(member)
    if origin in (Sequence, Iterable, list, tuple):
        if fixed := _fixed_elements(member):
            return f"a list of {len(fixed)} ({', '.join(map(describe, fixed))})"
        return "a list" + "".join(f", each {describe(kind)}" for kind in typing.get_args(member)[:1])
    if origin in (Mapping, dict):
        kinds = [kind for kind in typing.get_args(member)[1:] if kind is not Any]
        return "a mapping" + "".join(f", each value {describe(kind)}" for kind in kinds)
    return f"a {getattr(origin or member, '__name__', str(member))}"
