"""The settings of a comparison in words, as its page lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from consilience.report.wording import say_level, say_list

# What the page calls a setting of a comparison; another keeps its name, with spaces.
_NAMES = {
    "choose_by": "chosen by",
    "corruptions": "corruption",
    "probability": "probability of corruption",
    "refit": "chosen method trained once more",
    "repeats": "draws of the noise",
    "tune": "trials of tuning",
}
# The names of all registered methods are kept in a plan to find out what was added since.
_HIDDEN = ("registered",)


def say_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that were given, by name, as text; those left to their defaults are not listed.

    Example:
        >>> say_settings({"choose_by": None, "corruptions": [None, "missing"], "refit": True, "training": {"lr": 0.01}})
        {'corruption': 'the default of each kind and missing', 'chosen method trained once more': 'yes', 'lr': '0.01'}
    """
    said: dict[str, str] = {}
    for name, value in settings.items():
        if name in _HIDDEN or value in (None, "", {}, [], ()) or (name == "tune" and not value):
            continue
        if name == "training" and isinstance(value, Mapping):
            said |= {key.replace("_", " "): _say(each) for key, each in value.items()}
        elif name in ("settings", "encoders") and isinstance(value, Mapping):
            said |= {f"{name.removesuffix('s')} of {key}": _say(each) for key, each in value.items()}
        else:
            said[_NAMES.get(name, name.replace("_", " "))] = _say(value)
    return said


def _say(value: Any) -> str:
    """A value as a reader would write it.

    >>> _say({"name": "conv", "width": 32}), _say([0.0, 5.0]), _say(False)
    ('name conv, width 32', '0 and 5', 'no')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "the default of each kind"
    if isinstance(value, float):
        return say_level(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{str(key).replace('_', ' ')} {_say(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return say_list(_say(each) for each in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
