"""Which columns of a table make up which modality: names, or globs such as `mfcc_*`."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

from consilience.core.errors import InputError, UnknownNameError


def choose_columns(
    header: Sequence[str], modalities: Any, reserved: Sequence[str], *, owner: str = "modality"
) -> dict[str, list[str]]:
    """Modality → its columns, in the order of the globs, then of the table.

    reserved: the target and the split column. A glob passes over them; naming one outright is an error · owner: what
    messages call the one whose columns they are.

    >>> choose_columns(["a1", "a2", "b", "label"], {"a": "a*", "rest": ["b", "l*"]}, reserved=["label", "a2"])
    Traceback (most recent call last):
    consilience.core.errors.InputError: modality 'rest': 'l*' matches only 'label', which is the target or the split
    >>> choose_columns(["a1", "a2", "b", "label"], {"a": "a*", "rest": "*b*"}, reserved=["label"])
    {'a': ['a1', 'a2'], 'rest': ['b']}
    """
    if not isinstance(modalities, Mapping) or not modalities:
        raise InputError(
            "a table needs modalities=, a mapping of name → columns or globs such as {'audio': 'mfcc_*'} (--modality "
            f"audio=mfcc_*); the columns are {listed(header)}"
        )
    known = dict.fromkeys(header)
    chosen: dict[str, list[str]] = {}
    taken: dict[str, str] = {}
    for name, given in modalities.items():
        whose = f"{owner} {name!r}"
        patterns = [given] if isinstance(given, str) else list(given)
        if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
            raise InputError(f"{whose} must name columns or globs, got {given!r}")
        found = dict.fromkeys(column for pattern in patterns for column in _match(whose, pattern, known, reserved))
        for column in found:
            if column in taken:
                raise InputError(f"column {column!r} belongs to {owner} {taken[column]!r} and to {name!r}")
            taken[column] = name
        chosen[name] = list(found)
    return chosen


def _match(whose: str, pattern: str, header: Mapping[str, Any], reserved: Sequence[str]) -> list[str]:
    if pattern in reserved:
        raise InputError(f"{whose} names column {pattern!r}, which is the target or the split")
    if pattern in header:  # a column may be called "x[0]", which as a glob means "x0"
        return [pattern]
    glob = re.compile(fnmatch.translate(pattern))
    matched = [column for column in header if glob.match(column)]
    found = [column for column in matched if column not in reserved]
    if matched and not found:
        raise InputError(f"{whose}: {pattern!r} matches only {listed(matched)}, which is the target or the split")
    if not found:
        near = nearest(pattern, list(header))
        hint = f"near it are {listed(near)}" if near else f"the columns are {listed(list(header))}"
        raise UnknownNameError(f"{whose}: {pattern!r} matches no column; {hint}")
    return found


def nearest(pattern: str, header: Sequence[str], limit: int = 5) -> list[str]:
    """Column names that resemble a name or glob."""
    plain = re.sub(r"[*?\[\]]", "", pattern)
    return difflib.get_close_matches(plain, header, n=limit, cutoff=0.5)


def listed(names: Sequence[str], limit: int = 10) -> str:
    """Names for a message, not thousands of them.

    >>> listed(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
