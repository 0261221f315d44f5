"""One base error. A message says which operation, which modality, which value, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np


class ConsilienceError(Exception):
    """Everything this library raises on purpose."""


class InputError(ConsilienceError, ValueError):
    """What came in at the door does not fit: a shape, a value, a label, a combination of arguments."""


class UnknownNameError(InputError):
    """A method, data set, modality, setting or column that does not exist; the message suggests the nearest."""


class UnsupportedError(InputError):
    """A method met a task, a kind of modality or a number of modalities that it does not serve."""


class MissingDataError(ConsilienceError, FileNotFoundError):
    """The files of a data set are not there; the message says what to get, from whom, and where to put it."""


class SavedModelError(ConsilienceError, ValueError):
    """A saved model is truncated, tampered with, foreign, or needs something it was not given."""


class TrainingError(ConsilienceError, RuntimeError):
    """Training cannot go on: a loss that is not finite, or no memory left."""


class TrustWarning(UserWarning):
    """A trained method trusts a modality more when it is wrong; the message names it and says what to do."""


class CollapseWarning(UserWarning):
    """A trained latent model's z says nothing of the data; the message says what to do."""


def unknown_name(what: str, name: object, known: Iterable[str], advice: str = "") -> UnknownNameError:
    """Build the error for a name that does not exist, with the near miss first.

    >>> str(unknown_name("method", "conct", ["concat", "late"]))
    "unknown method 'conct': did you mean 'concat'? Known: concat, late"
    >>> str(unknown_name("modality", "vib", ["temperature", "vibration"]))
    "unknown modality 'vib': did you mean 'vibration'? Known: temperature, vibration"
    >>> str(unknown_name("method", "x", ["late", *(f"pro:{one}" for one in ("align", "concat", "mag", "mim"))]))
    "unknown method 'x': Known: late, pro:… (4)"
    """
    names = sorted({str(one) for one in known})
    by_lower = {one.lower(): one for one in names}
    wanted = str(name).lower()
    close = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.6)
    close = close or [one for one in by_lower if wanted and one.startswith(wanted)]
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    listing = f"Known: {', '.join(_without_families(names))}" if names else "There are none"
    return UnknownNameError(f"unknown {what} {name!r}: {hint}{listing}" + (f". {advice}" if advice else ""))


def _without_families(names: Sequence[str], most: int = 3) -> list[str]:
    """Names of which more than `most` begin with the same `family:` are one entry, so that a line stays a line."""
    sizes = Counter(name.partition(":")[0] for name in names if ":" in name)
    short = {family: f"{family}:… ({size})" for family, size in sizes.items() if size > most}
    return list(dict.fromkeys(short.get(name.partition(":")[0], name) if ":" in name else name for name in names))


def name_rows(rows: Sequence[int] | np.ndarray, limit: int = 5) -> str:
    """Say which rows, without printing thousands of them.

    >>> name_rows([3, 17])
    'rows 3, 17'
    >>> name_rows(range(100))
    'rows 0, 1, 2, 3, 4 and 95 more'
    """
    shown = ", ".join(str(int(row)) for row in rows[:limit])
    rest = f" and {len(rows) - limit} more" if len(rows) > limit else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{rest}"
