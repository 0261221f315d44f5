"""The registry of all methods: register, list, find and build them by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal

from consilience.core import settings as declared
from consilience.core.errors import ConsilienceError, InputError, UnsupportedError, unknown_name
from consilience.core.modalities import Modality
from consilience.core.registry import Registry
from consilience.core.settings import checked
from consilience.core.targets import Task
from consilience.encoders import EncoderChoice
from consilience.methods.method import Method
from consilience.methods.spec import Spec

METHODS: Registry[type[Method]] = Registry(
    "method",
    packages=[
        f"consilience.methods.{package}" for package in ("fusion", "opinions", "baselines", "progressive", "latent")
    ],
    group="consilience.methods",
)


def register(name: str, *, paper: str = "", equation: str = "") -> Callable[[type[Method]], type[Method]]:
    """Register a method under a name, from the file that defines it.

    A name that ends in a colon is a family: its members are `name:argument` ("unimodal:image"). Its class takes the
    argument after the spec and lists the possible ones in `arguments`.
    """
    return METHODS.register(name, name=name, paper=paper, equation=equation)


def registry() -> dict[str, type[Method]]:
    """Return all methods by name, in alphabetical order, those of plugins included."""
    return dict(METHODS)


@checked
def available(modalities: Iterable[str] = ("MODALITY",)) -> list[str]:
    """Return the names of all methods, with every member of a family for the given modalities.

    >>> "unimodal:audio" in available(["audio", "image"])
    True
    """
    names: list[str] = []
    for name, cls in METHODS.items():
        names += [name + argument for argument in cls.arguments(modalities)] if name.endswith(":") else [name]
    return names


@checked
def find(name: str, modalities: Iterable[str] = ("MODALITY",)) -> tuple[type[Method], str | None]:
    """Find a method by name.

    Args:
        name: A registered name, or `family:argument`.
        modalities: The modalities of the data, which a message spells families out for.

    Returns:
        The class, and the argument of a family's member if the class takes one.

    Raises:
        UnknownNameError: If there is no such method; the nearest name is suggested.
    """
    family, colon, argument = name.partition(":")
    if not colon and name in METHODS:
        return METHODS[name], None
    if colon and family + colon in METHODS:
        member = METHODS[family + colon].member(argument)
        return (METHODS[family + colon], argument) if member is None else (member, None)
    if name + ":" in METHODS:
        members = [f"{name}:{argument}" for argument in METHODS[name + ":"].arguments(modalities)]
        raise unknown_name("method", name, members, "It is a family: choose one of its members")
    raise unknown_name("method", name, available(modalities))


def check_settings(name: str, cls: type[Method], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check the settings of a method: they are the keyword-only arguments of its class.

    Returns:
        The settings as plain Python values.

    Raises:
        UnknownNameError: If the method has no such setting; the nearest name is suggested.
        InputError: If a value is not allowed.
    """
    return declared.check_settings(f"method {name!r}", cls, settings)


def choose_encoders(
    name: str,
    encoders: Mapping[str, EncoderChoice] | Literal["auto"] | None,
    modalities: Mapping[str, Modality],
    task: Task,
) -> dict[str, EncoderChoice]:
    """Return the chosen encoders by modality.

    Args:
        name: The method.
        encoders: By modality. "auto": the encoder `auto` for the vectors of a classification, if the method takes an
            encoder for each modality; the default of its kind for everything else.
        modalities: The modalities as methods receive them.
        task: The task.
    """
    if encoders != "auto":
        return dict(encoders or {})
    vectors = [modality for modality, seen in modalities.items() if seen.kind == "vector"]
    chosen: dict[str, EncoderChoice] = dict.fromkeys(vectors if task.classification else [], "auto")
    cls, _ = find(name, modalities)
    return {} if chosen and cls.reason_against(Spec(modalities, task, chosen)) is not None else chosen


@checked
def build(name: str, spec: Spec, settings: Mapping[str, Any] | None = None) -> Method:
    """Build a method by name.

    Args:
        name: A registered name, or `family:argument`.
        spec: The modalities, the task and the encoders.
        settings: Setting → value; what is not given has its default.

    Raises:
        UnknownNameError: If there is no such method or setting.
        UnsupportedError: If the method does not support the task or the modalities.
        InputError: If a setting has a value that is not allowed.

    Example:
        >>> import numpy as np
        >>> from consilience.core.samples import Modality
        >>> from consilience.core.targets import Task
        >>> spec = Spec({"a": Modality("a", "vector", (3,))}, Task.of_labels(np.array([0, 1])))
        >>> type(build("concat", spec, {"width": 8})).__name__
        'Concat'
    """
    cls, argument = find(name, spec.modalities)
    given = check_settings(name, cls, settings or {})
    reason = cls.reason_against(spec)
    if reason is not None:
        raise UnsupportedError(f"method {name!r} cannot be used here: {reason}")
    try:
        return cls(spec, **given) if argument is None else cls(spec, argument, **given)  # type: ignore[call-arg]
    except ConsilienceError as error:
        if type(error) is not InputError or str(error).startswith(("method", "encoder")):
            raise
        raise InputError(f"method {name!r}: {error}") from error
    except (TypeError, ValueError, RuntimeError) as error:  # torch's errors, such as for a combination of widths
        raise InputError(f"method {name!r} does not accept these settings {given}: {error}") from error


def default_settings(method: type[Method]) -> dict[str, Any]:
    """The defaults of the settings of a method as JSON values, without those that JSON does not hold.

    >>> default_settings(METHODS["concat"])
    {'width': 256, 'dropout': 0.1}
    """
    found = {}
    for name, setting in declared.settings_of(method).items():
        with suppress(TypeError, ValueError):
            found[name] = json.loads(json.dumps(setting.default, allow_nan=False))
    return found


def former_defaults(name: str, spec: Spec, saved: Any) -> dict[str, Any]:
    """Of the defaults that were saved with a model, those that have changed since: the model is built with them."""
    if not isinstance(saved, Mapping):  # a model of a version that did not save them
        return {}
    method = find(name, spec.modalities)[0]
    known, now = declared.settings_of(method), default_settings(method)
    changed = [name for name in known if name in saved and (name not in now or saved[name] != now[name])]
    return {name: saved[name] for name in changed}
