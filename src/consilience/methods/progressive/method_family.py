"""Families of methods around methods: `pro:concat` is a class with the base classes `Progressive` and `Concat`.

A member therefore has the objective, phases and fitting of its base method and the settings of both, and is built,
saved and compared like any other method.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

from consilience.core.errors import unknown_name
from consilience.core.settings import Setting, settings_of
from consilience.methods import Method, Spec, registry


class Family(Method):
    """What is put around another method.

    A subclass declares its settings in `own_settings`, and says in `reason_against_base` which methods it cannot be
    put around.
    """

    own_settings: ClassVar[Mapping[str, Setting]]
    base: ClassVar[type[Method]]
    family: ClassVar[type[Family]]

    @classmethod
    def reason_against_base(cls, base: type[Method]) -> str | None:
        """Return why there is no member around this method, or None if there is one."""
        raise NotImplementedError

    @classmethod
    def split_settings(cls, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the family's settings and those of the base method."""
        own = {name: value for name, value in settings.items() if name in cls.own_settings}
        return own, {name: value for name, value in settings.items() if name not in own}

    @classmethod
    def arguments(cls, modalities: Iterable[str]) -> list[str]:
        """Return every method that can be the base."""
        return [
            name
            for name, base in registry().items()
            if not name.endswith(":") and cls.reason_against_base(base) is None
        ]

    @classmethod
    def member(cls, argument: str) -> type[Method] | None:
        """Return the class of `family:argument`."""
        known = registry()
        if argument not in known or argument.endswith(":"):
            raise unknown_name("method", argument, cls.arguments(()), f"It was given in '{cls.name}NAME'")
        return member_class(cls, known[argument])

    def __reduce__(self) -> Any:
        # Pickle cannot find the class of a member by name, as it is made on demand.
        return blank_member, (type(self).family, type(self).base), self.__getstate__()


def member_class(family: type[Family], base: type[Method]) -> type[Method]:
    """Return the class of `family:base`, always the same; if there is no such member, a class that gives the reason."""
    return _member_class(family, base)  # type: ignore[arg-type]


@cache
def _member_class(family: type[Family], base: type[Method]) -> type[Method]:
    name = f"{family.name}{base.name}"

    def construct(self: Family, spec: Spec, **settings: Any) -> None:
        family.__init__(self, spec, **settings)

    construct.__signature__ = merged_signature(family, base)  # type: ignore[attr-defined]
    reason = family.reason_against_base(base)
    if reason is not None:

        def reason_against(cls: type[Method], spec: Spec) -> str | None:
            return f"there is no {name!r}: {reason}"

        # It has the settings of a member, so that the reason is reported before an unknown setting.
        return type(
            "NoMember", (Method,), {"__init__": construct, "name": name, "reason_against": classmethod(reason_against)}
        )
    if shared := sorted(settings_of(base).keys() & family.own_settings):
        raise TypeError(f"settings {shared} of {base.__name__} are also settings of {family.__name__}")
    return type(
        f"{family.__name__}{base.__name__}",
        (family, base),
        {
            "__init__": construct,
            "__module__": __name__,
            "__doc__": f"{family.__name__} around {base.__name__}.",
            "name": name,
            "family": family,
            "base": base,
            "paper": "; ".join(filter(None, (base.paper, family.paper))),
            "tasks": base.tasks,
            "reads": base.reads,
            "min_modalities": base.min_modalities,
            "keeps_history": base.keeps_history,
        },
    )


def merged_signature(family: type[Family], base: type[Method]) -> inspect.Signature:
    """Return the signature of a member's constructor: the settings of the base method, then those of the family."""
    positional = [
        parameter
        for parameter in inspect.signature(family.__init__).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    settings = [
        inspect.Parameter(
            setting.name, inspect.Parameter.KEYWORD_ONLY, default=setting.default, annotation=setting.annotation
        )
        for setting in (settings_of(base) | dict(family.own_settings)).values()
    ]
    return inspect.Signature([*positional, *settings])


def blank_member(family: type[Family], base: type[Method]) -> Any:
    """Return an object of a member's class without any state, for unpickling and copying."""
    cls = member_class(family, base)
    return cls.__new__(cls)
