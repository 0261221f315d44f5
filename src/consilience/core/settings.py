"""Declared settings: type, range and help stand in a parameter's annotation, and one checker reads them all.

    def __init__(self, spec: Spec, *, width: PositiveInt = 128, mode: Literal["add", "concat"] = "add"): ...

A string in `Annotated` is the help of that setting. Whatever takes settings (methods, encoders, data sets, training)
is checked by `check_settings`, `checked` or `check_fields`, so that every refusal reads the same.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union

import numpy as np

from consilience.core.errors import InputError, unknown_name

_REQUIRED = inspect.Parameter.empty


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


PositiveInt = Annotated[int, Interval(1)]
NonNegativeInt = Annotated[int, Interval(0)]
PositiveFloat = Annotated[float, Interval(0, above=True)]
NonNegativeFloat = Annotated[float, Interval(0)]
Rate = Annotated[float, Interval(0, 1, below=True)]
Fraction = Annotated[float, Interval(0, 1)]


@dataclass(frozen=True)
class Setting:
    """One declared setting: its name, its annotation, its default (`inspect.Parameter.empty`: none) and its help."""

    name: str
    annotation: Any
    default: Any = _REQUIRED
    help: str = ""

    def check(self, value: Any, where: str = "") -> Any:
        """Return the value as a plain Python value, or raise an error that says what is allowed."""
        return check_value(self.name, value, self.annotation, where)

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        return describe(self.annotation)


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
    raise InputError(f"{where + ': ' if where else ''}{name} must be {describe(annotation)}, got {value!r}")


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


def settings_of(declaring: Callable[..., Any]) -> dict[str, Setting]:
    """Return the declared settings of a dataclass (its fields) or of a function or class (keyword-only parameters).

    >>> def build(*, width: Annotated[int, Interval(1), "of the output"] = 8): ...
    >>> settings_of(build)["width"].help
    'of the output'
    """
    return dict(_settings_of(declaring))


@functools.cache
def _settings_of(declaring: Any) -> dict[str, Setting]:
    if dataclasses.is_dataclass(declaring):
        declared = [
            (field.name, field.type, _default_of(field), vars(sys.modules[base.__module__]))
            for field in dataclasses.fields(declaring)
            for base in declaring.__mro__  # type: ignore[union-attr]  # a class, by its use
            if field.name in vars(base).get("__annotations__", {})
        ]
    else:
        function = declaring.__init__ if inspect.isclass(declaring) else declaring
        names = getattr(inspect.unwrap(function), "__globals__", {})
        declared = [
            (parameter.name, parameter.annotation, parameter.default, names)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        ]
    found = {}
    for name, annotation, default, names in declared:
        resolved = _resolve(annotation, names)
        texts = [item for item in getattr(resolved, "__metadata__", ()) if isinstance(item, str)]
        found[name] = Setting(name, resolved, default, texts[0] if texts else "")
    return found


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return _REQUIRED if field.default_factory is dataclasses.MISSING else field.default_factory()


def check_settings(
    where: str, declaring: Callable[..., Any], given: Mapping[str, Any], noun: str = "setting"
) -> dict[str, Any]:
    """Check settings by name against what a function, class or dataclass declares.

    Args:
        where: What the settings belong to, put before every message ("method 'concat'").
        declaring: The function, class or dataclass.
        given: Name → value.
        noun: What a message calls a name that is not declared.

    Returns:
        The given settings as plain Python values.

    Raises:
        UnknownNameError: If there is no such setting; the nearest name is suggested.
        InputError: If a value is not allowed.
    """
    known = settings_of(declaring)
    for name in given:
        if name not in known:
            raise unknown_name(noun, name, known, f"It was given for {where}")
    return {name: known[name].check(value, where) for name, value in given.items()}


_Function = TypeVar("_Function", bound=Callable[..., Any])


def checked(function: _Function) -> _Function:
    """Check the keyword-only arguments of a function whenever it is called.

    >>> @checked
    ... def build(*, width: PositiveInt = 8) -> int:
    ...     return width
    >>> build(width=0)
    Traceback (most recent call last):
    consilience.core.errors.InputError: width must be a whole number ≥ 1, got 0
    """

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        declared = _settings_of(function)
        settings = {name: declared[name].check(value) if name in declared else value for name, value in given.items()}
        return function(*arguments, **settings)

    return typing.cast(_Function, call)


class DeclaredSettings:
    """A base class: the keyword-only arguments of its subclasses are checked when an object is built.

    >>> class Layer(DeclaredSettings):
    ...     def __init__(self, *, width: PositiveInt = 8): ...
    >>> Layer(width=0)
    Traceback (most recent call last):
    consilience.core.errors.InputError: width must be a whole number ≥ 1, got 0
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]


def check_fields(instance: Any, where: str, declaring: type | None = None) -> None:
    """Check every field of a dataclass, or of a base class of it, in place; called from its `__post_init__`."""
    for name, setting in settings_of(declaring or type(instance)).items():
        object.__setattr__(instance, name, setting.check(getattr(instance, name), where))


def _resolve(annotation: Any, names: Mapping[str, Any]) -> Any:
    """The annotation behind a string; one that names what is imported for type checkers only is not checked."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(names))  # noqa: S307 - an annotation in a source file, never what a user gives
    except NameError:
        return Any


def _members(annotation: Any) -> list[Any]:
    """The alternatives of a union, each number within the ranges of `Annotated` around it; other annotations alone."""
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
    if member in (Any, _REQUIRED) or isinstance(member, TypeVar):
        return True, value
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in typing.get_args(member)), value
    if member in (None, type(None)):
        return value is None, value
    if member is bool:
        return isinstance(value, bool), value
    if member in (int, float):
        return _fit_number(value, member, ranges)
    if origin in (Sequence, list, tuple):
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
    if kind is float and not math.isfinite(number):
        return False, value
    return all(value in allowed for allowed in ranges), number


def _fit_sequence(value: Any, member: Any) -> tuple[bool, Any]:
    """Check the elements; what is neither a list nor a tuple, such as a range, becomes a list."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False, value
    fixed = _fixed_elements(member)
    if fixed and len(value) != len(fixed):
        return False, value
    kinds = fixed or (typing.get_args(member) or (Any,))[:1] * len(value)
    fitted = [_accept(item, kind) for item, kind in zip(value, kinds)]
    items = [item for _, item in fitted]
    return all(fits for fits, _ in fitted), tuple(items) if isinstance(value, tuple) else items


def _fit_mapping(value: Any, member: Any) -> tuple[bool, Any]:
    """Check the values; the keys are not checked."""
    kind = (typing.get_args(member) or (Any, Any))[1]
    if not isinstance(value, typing.get_origin(member)) or kind is Any:
        return isinstance(value, typing.get_origin(member)), value
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
    if origin in (Sequence, list, tuple):
        if fixed := _fixed_elements(member):
            return f"a list of {len(fixed)} ({', '.join(map(describe, fixed))})"
        return "a list" + "".join(f", each {describe(kind)}" for kind in typing.get_args(member)[:1])
    if origin in (Mapping, dict):
        kinds = [kind for kind in typing.get_args(member)[1:] if kind is not Any]
        return "a mapping" + "".join(f", each value {describe(kind)}" for kind in kinds)
    return f"a {getattr(origin or member, '__name__', str(member))}"
