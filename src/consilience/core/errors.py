"""Errors and warnings, all with one base class. Messages name the operation, the value, and what is allowed."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np


class ConsilienceError(Exception):
    """Base class of all errors of this library."""


class InputError(ConsilienceError, ValueError):
    """An argument is wrong: a shape, a value, a label, a combination of arguments."""


class UnknownNameError(InputError):
    """A method, data set, modality, setting or column that does not exist; the message suggests the nearest."""


class UnsupportedError(InputError):
    """A method does not support a task, a kind of modality or a number of modalities."""


class MissingDataError(ConsilienceError, FileNotFoundError):
    """The files of a data set are missing; the message says where to get them and where to put them."""


class SavedModelError(ConsilienceError, ValueError):
    """A saved model is damaged, is not a saved model, or needs a module that was not given."""


class WriteError(ConsilienceError, OSError):
    """A file or folder cannot be written: the disk is full, or writing is not permitted. What was there is kept."""


class TrainingError(ConsilienceError, RuntimeError):
    """Training failed: a loss is not finite, or memory is exhausted."""


class TrustWarning(UserWarning):
    """A trained method trusts a modality more when it is wrong; the message names it and says what to do."""


class CollapseWarning(UserWarning):
    """The latent variables of a trained model carry no information about the data; the message says what to do."""


def unknown_name(what: str, name: object, known: Iterable[str], advice: str = "") -> UnknownNameError:
    """Return the error for an unknown name; the message suggests the nearest known one.

    >>> str(unknown_name("method", "conct", ["concat", "late"]))
    "unknown method 'conct': did you mean 'concat'? Known: concat, late"
    >>> str(unknown_name("modality", "vib", ["temperature", "vibration"]))
    "unknown modality 'vib': did you mean 'vibration'? Known: temperature, vibration"
    >>> str(unknown_name("method", "x", ["late", *(f"pro:{base}" for base in ("align", "concat", "mag", "mim"))]))
    "unknown method 'x'. Known: late, pro:… (4)"
    """
    names = sorted({str(known_name) for known_name in known})
    by_lower = {known_name.lower(): known_name for known_name in names}
    wanted = str(name).lower()
    close = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.6)
    close = close or [lower for lower in by_lower if wanted and lower.startswith(wanted)]
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    listing = f"Known: {', '.join(_without_families(names))}" if names else "There are none"
    return UnknownNameError(
        f"unknown {what} {name!r}{': ' if hint else '. '}{hint}{listing}" + (f". {advice}" if advice else "")
    )


def _without_families(names: Sequence[str], most: int = 3) -> list[str]:
    """Replace more than `most` names of one `family:` by one entry, so that the message stays short."""
    sizes = Counter(name.partition(":")[0] for name in names if ":" in name)
    short = {family: f"{family}:… ({size})" for family, size in sizes.items() if size > most}
    return list(dict.fromkeys(short.get(name.partition(":")[0], name) if ":" in name else name for name in names))


def name_rows(rows: Sequence[int] | np.ndarray, limit: int = 5) -> str:
    """Name some rows in words; at most `limit` are listed.

    >>> name_rows([3, 17])
    'rows 3, 17'
    >>> name_rows(range(100))
    'rows 0, 1, 2, 3, 4 and 95 more'
    """
    shown = ", ".join(str(int(row)) for row in rows[:limit])
    rest = f" and {len(rows) - limit} more" if len(rows) > limit else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{rest}"
