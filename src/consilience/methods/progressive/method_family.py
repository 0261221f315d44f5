"""Families of methods around methods (`pro:concat`): for each base method, a class that is the family before the base.

Being a subclass of both, a member has the base's objective, phases and fitting, the settings of both, and is built,
saved and compared like any other method.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

from consilience.core.errors import unknown_name
from consilience.methods import Method, Spec, registry


class Family(Method):
    """What is put around another method. A subclass says around which (`no_member`)."""

    base: ClassVar[type[Method]]
    family: ClassVar[type[Family]]

    @classmethod
    def no_member(cls, base: type[Method]) -> str | None:
        """Why there is no member around this base method, or None if there is one."""
        raise NotImplementedError

    @classmethod
    def arguments(cls, modalities: Iterable[str]) -> list[str]:
        """Every method that can be the base."""
        return [name for name, base in registry().items() if not name.endswith(":") and cls.no_member(base) is None]

    @classmethod
    def member(cls, argument: str) -> type[Method] | None:
        """The class of `family:argument`."""
        known = registry()
        if argument not in known or argument.endswith(":"):
            raise unknown_name("method", argument, cls.arguments(()), f"It was given in '{cls.name}NAME'")
        return member_class(cls, known[argument])

    def __reduce__(self) -> Any:
        # A member's class is made on demand, so pickle cannot find it by name: it is told how to make it again.
        return blank_member, (type(self).family, type(self).base), self.__getstate__()


def member_class(family: type[Family], base: type[Method]) -> type[Method]:
    """The class of `family:base`, one for each pair; where there is none, one that says why not."""
    return _member_class(family, base)  # type: ignore[arg-type]


@cache
def _member_class(family: type[Family], base: type[Method]) -> type[Method]:
    name = f"{family.name}{base.name}"

    def construct(self: Family, spec: Spec, **settings: Any) -> None:
        family.__init__(self, spec, **settings)

    why = family.no_member(base)
    if why is not None:
        reason = f"there is no {name!r}: {why}"

        def reason_against(cls: type[Method], spec: Spec) -> str | None:
            return reason

        # With the settings that it would have, so that the reason is heard before a complaint about those.
        construct.__signature__ = merged_signature(family, base)  # type: ignore[attr-defined]
        return type(
            "NoMember",
            (Method,),
            {"__init__": construct, "name": name, "reason_against": classmethod(reason_against)},
        )

    shared = settings_of(family) & settings_of(base)
    if shared:
        raise TypeError(f"settings {sorted(shared)} of {base.__name__} are also settings of {family.__name__}")
    construct.__signature__ = merged_signature(family, base)  # type: ignore[attr-defined]
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


def merged_signature(family: type[Method], base: type[Method]) -> inspect.Signature:
    """The settings of the family and of the base method together."""
    both = [inspect.signature(one.__init__).parameters.values() for one in (base, family)]
    positional = [one for one in both[1] if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    settings = {one.name: one for each in both for one in each if one.kind is inspect.Parameter.KEYWORD_ONLY}
    return inspect.Signature([*positional, *settings.values()])


def settings_of(cls: type[Method]) -> set[str]:
    """The names of a class's keyword-only arguments."""
    arguments = inspect.signature(cls.__init__).parameters.values()
    return {one.name for one in arguments if one.kind is inspect.Parameter.KEYWORD_ONLY}


def blank_member(family: type[Family], base: type[Method]) -> Any:
    """An object of a member's class without any state, for unpickling and copying."""
    cls = member_class(family, base)
    return cls.__new__(cls)
