"""Declared settings: type, range and help stand in a parameter's annotation, and one checker reads them all.

    def __init__(self, spec: Spec, *, width: PositiveInt = 128, mode: Literal["add", "concat"] = "add"): ...

A string in `Annotated` is the help of that setting. Whatever takes settings (methods, encoders, data sets, training)
is checked by `check_settings`, `checked` or `check_fields`, so that every refusal reads the same. `core.annotations`
says what an annotation allows.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from consilience.core.annotations import (
    Fraction,
    Interval,
    Names,
    NonNegativeFloat,
    NonNegativeInt,
    OwnCheck,
    PositiveFloat,
    PositiveInt,
    Rate,
    Share,
    accepts,
    check_value,
    describe,
    plain_type,
)
from consilience.core.errors import ConsilienceError, is_library_error, unknown_name, wrapped

__all__ = [
    "DeclaredSettings",
    "Fraction",
    "Interval",
    "Names",
    "NonNegativeFloat",
    "NonNegativeInt",
    "OwnCheck",
    "PositiveFloat",
    "PositiveInt",
    "Rate",
    "Setting",
    "Share",
    "accepts",
    "arguments_checked",
    "check_fields",
    "check_settings",
    "check_value",
    "checked",
    "describe",
    "plain_type",
    "resolve",
    "settings_of",
]

_REQUIRED = inspect.Parameter.empty
_NOTHING = object()


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


_Checks = tuple[tuple[Setting | None, ...], dict[str, Setting]]


def settings_of(declaring: Callable[..., Any]) -> dict[str, Setting]:
    """Return the declared settings of a dataclass (its fields) or of a function or class (keyword-only parameters).

    >>> from typing import Annotated
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
        resolved = resolve(annotation, names)
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
    """Check the arguments of a public function by their annotations whenever it is called.

    A value that is the default itself is not checked. What other libraries raise while the function runs is raised as
    an error of ours that names the function; `__cause__` is the original.

    >>> @checked
    ... def build(data: Any, *, width: PositiveInt = 8) -> float:
    ...     return len(data) / width
    >>> build([], width=0)
    Traceback (most recent call last):
    consilience.core.errors.InputError: build: width must be a whole number ≥ 1, got 0
    >>> build(None)
    Traceback (most recent call last):
    consilience.core.errors.WrongTypeError: build: object of type 'NoneType' has no len() (TypeError)
    """
    checking = arguments_checked(function)

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        try:
            return checking(*arguments, **given)
        except ConsilienceError:
            raise
        except BaseException as error:
            if not is_library_error(error):
                raise
            raise wrapped(error, operation_of(function, arguments)) from error

    return typing.cast(_Function, call)


def arguments_checked(function: _Function) -> _Function:
    """Check arguments as `checked` does, and let every error pass as it is, such as those of a user's own modules."""
    known: list[_Checks] = []  # filled by the first call: annotations may name what is imported later

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        if not known:
            known.append(_checks_of(function))
        by_place, by_name = known[0]
        if by_place and arguments:
            arguments = _check_places(function, by_place, arguments)
        for name in given:
            setting = by_name.get(name)
            if setting is not None and given[name] is not setting.default:
                given[name] = setting.check(given[name], operation_of(function, arguments))
        return function(*arguments, **given)

    return typing.cast(_Function, call)


def operation_of(function: Callable[..., Any], arguments: Sequence[Any]) -> str:
    """The name of a function in messages; a method is named after the class of its object."""
    name = function.__qualname__.rpartition("<locals>.")[2]
    _, dot, method = name.rpartition(".")
    if not dot or not arguments:
        return name
    cls = arguments[0] if isinstance(arguments[0], type) else type(arguments[0])
    return cls.__name__ if method == "__init__" else f"{cls.__name__}.{method}"


def _checks_of(function: Callable[..., Any]) -> _Checks:
    """The settings that are checked, by place up to the last of them, and by name."""
    names = getattr(inspect.unwrap(function), "__globals__", {})
    by_name: dict[str, Setting] = {}
    places: list[Setting | None] = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = resolve(parameter.annotation, names)
        # An annotation that allows anything need not be checked.
        setting = None if accepts(annotation, _NOTHING) else Setting(parameter.name, annotation, parameter.default)
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            places.append(setting)
        if setting is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            by_name[parameter.name] = setting
    while places and places[-1] is None:
        places.pop()
    return tuple(places), by_name


def _check_places(
    function: Callable[..., Any], by_place: tuple[Setting | None, ...], arguments: tuple[Any, ...]
) -> tuple[Any, ...]:
    fitting = list(arguments)
    for place, (setting, value) in enumerate(zip(by_place, arguments)):
        if setting is not None and value is not setting.default:
            fitting[place] = setting.check(value, operation_of(function, arguments))
    return tuple(fitting)


def _settings_checked(function: _Function) -> _Function:
    """Check the keyword-only arguments of a function whenever it is called."""

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
            cls.__init__ = _settings_checked(cls.__init__)  # type: ignore[method-assign]


def check_fields(instance: Any, where: str, declaring: type | None = None) -> None:
    """Check every field of a dataclass, or of a base class of it, in place; called from its `__post_init__`."""
    for name, setting in settings_of(declaring or type(instance)).items():
        object.__setattr__(instance, name, setting.check(getattr(instance, name), where))


def resolve(annotation: Any, names: Mapping[str, Any]) -> Any:
    """The annotation behind a string; one that names what is imported for type checkers only is not checked."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(names))  # noqa: S307 - an annotation in a source file, never what a user gives
    except NameError:
        return Any
