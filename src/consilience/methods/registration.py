"""The registry of all methods: they enter it by name, are found in it, and are built."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from consilience.core.errors import ConsilienceError, InputError, UnsupportedError, unknown_name
from consilience.methods.method import Method
from consilience.methods.spec import Spec

_Class = TypeVar("_Class", bound=type[Method])
_REGISTRY: dict[str, type[Method]] = {}
# The rooms where methods live. The registry knows the rooms, never what is in them.
_ROOMS = ("fusion", "opinions", "progressive", "latent")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*:?")


def register(name: str, *, paper: str = "", equation: str = "") -> Callable[[_Class], _Class]:
    """Put a method into the registry under a name, from the file that defines it.

    A name that ends in a colon is a family: its members are `name:argument` ("unimodal:image"), and its class takes
    the argument after the spec and lists what is possible in `arguments`.
    """
    if not _NAME.fullmatch(name):
        raise ConsilienceError(f"method name {name!r} must be lower-case words joined by hyphens")

    def enter(cls: _Class) -> _Class:
        if name in _REGISTRY:
            raise ConsilienceError(
                f"method {name!r} is registered twice: {_REGISTRY[name].__qualname__} and {cls.__qualname__}"
            )
        cls.name, cls.paper, cls.equation = name, paper, equation
        _REGISTRY[name] = cls
        return cls

    return enter


def load_room(package: str, path: Iterable[str]) -> None:
    """Import every module of a room, so that the methods in it register themselves."""
    for module in pkgutil.iter_modules(path, package + "."):
        importlib.import_module(module.name)


def registry() -> dict[str, type[Method]]:
    """All methods by name, in alphabetical order; other packages join through entry points `consilience.methods`."""
    from importlib.metadata import entry_points

    for room in _ROOMS:
        importlib.import_module(f"consilience.methods.{room}")
    for plugin in entry_points(group="consilience.methods"):
        plugin.load()
    return dict(sorted(_REGISTRY.items()))


def available(modalities: Iterable[str] = ("MODALITY",)) -> list[str]:
    """The names that can be asked for; families are spelled out for the given modalities.

    >>> "unimodal:audio" in available(["audio", "image"])
    True
    """
    names: list[str] = []
    for name, cls in registry().items():
        names += [name + argument for argument in cls.arguments(modalities)] if name.endswith(":") else [name]
    return names


def find(name: str, modalities: Iterable[str] = ("MODALITY",)) -> tuple[type[Method], str | None]:
    """The class of a method, and the argument of a family's member where the class takes one."""
    known = registry()
    family, colon, argument = name.partition(":")
    if colon and family + colon in known:
        member = known[family + colon].member(argument)
        return (known[family + colon], argument) if member is None else (member, None)
    if name + ":" in known:
        members = [f"{name}:{one}" for one in known[name + ":"].arguments(modalities)]
        raise unknown_name("method", name, members, "It is a family: say which of them")
    if name not in known or colon:
        raise unknown_name("method", name, available(modalities))
    return known[name], None


def check_settings(name: str, cls: type[Method], settings: Mapping[str, Any]) -> None:
    """Refuse a setting that the method does not have: its settings are its keyword-only arguments."""
    known = [
        parameter.name
        for parameter in inspect.signature(cls.__init__).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for setting in settings:
        if setting not in known:
            raise unknown_name("setting", setting, known, f"It was given for method {name!r}")


def build(name: str, spec: Spec, settings: Mapping[str, Any] | None = None) -> Method:
    """Build a method by name, checking that it serves the task and that its settings exist.

    >>> import numpy as np
    >>> from consilience.core.samples import Modality
    >>> from consilience.core.targets import Task
    >>> spec = Spec({"a": Modality("a", "vector", (3,))}, Task.of_labels(np.array([0, 1])))
    >>> type(build("concat", spec, {"width": 8})).__name__
    'Concat'
    """
    cls, argument = find(name, spec.modalities)
    given = dict(settings or {})
    check_settings(name, cls, given)
    reason = cls.reason_against(spec)
    if reason is not None:
        raise UnsupportedError(f"method {name!r} cannot be used here: {reason}")
    try:
        return cls(spec, **given) if argument is None else cls(spec, argument, **given)  # type: ignore[call-arg]
    except ConsilienceError as error:
        if type(error) is not InputError or str(error).startswith(("method", "encoder")):
            raise
        raise InputError(f"method {name!r}: {error}") from error
    except (TypeError, ValueError, RuntimeError) as error:  # what torch says to a width of -1 or a dropout of 2
        raise InputError(f"method {name!r} does not accept these settings {given}: {error}") from error
