"""Errors and warnings, all with one base class. Messages name the operation, the value, and what is allowed."""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set

import numpy as np


class ConsilienceError(Exception):
    """Base class of all errors of this library. A message can always be printed, whatever names it quotes."""

    def __str__(self) -> str:
        return super().__str__().encode("utf-8", "backslashreplace").decode()


class InputError(ConsilienceError, ValueError):
    """An argument is wrong: a shape, a value, a label, a combination of arguments."""


class WrongTypeError(InputError, TypeError):
    """An argument is of a type that cannot be used."""


class RowError(InputError, IndexError):
    """A row that the samples do not have."""


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


class FileError(ConsilienceError, OSError):
    """The system refuses to open, read or find a file or folder."""


class OperationError(ConsilienceError, RuntimeError):
    """Another library failed while an operation ran; `__cause__` is its error."""


class TrainingError(ConsilienceError, RuntimeError):
    """Training failed: a loss is not finite, or memory is exhausted."""


class TableWarning(UserWarning):
    """Cells of a table are filled, columns are left out, or a task is guessed; the message says what to do."""


class TrustWarning(UserWarning):
    """A trained method trusts a modality more when it is wrong; the message names it and says what to do."""


class SplitWarning(UserWarning):
    """The parts of a data set may mislead: a part lacks a class, or rows of a group may be in two parts."""


class ModalityWarning(UserWarning):
    """One modality alone predicts better than the model that has all of them; the message says what to do."""


class CollapseWarning(UserWarning):
    """The latent variables of a trained model carry no information about the data; the message says what to do."""


# Whose errors are wrapped. Those of a user's own classes, such as the one by which a callback stops a search, pass.
_LIBRARIES = {
    "joblib",
    "lightning_fabric",
    "matplotlib",
    "narwhals",
    "numpy",
    "pandas",
    "polars",
    "pyo3_runtime",
    "safetensors_rust",
    "scipy",
    "sklearn",
    "skops",
    "torch",
    "transformers",
    *sys.stdlib_module_names,
}


def is_library_error(error: BaseException) -> bool:
    """Whether an error is one of Python or of a library that we call. Exhausted memory and warnings are not wrapped."""
    if isinstance(error, MemoryError | Warning):
        return False
    of = type(error).__module__.partition(".")[0]
    # A panic of polars is not an Exception, like KeyboardInterrupt and SystemExit.
    return of in _LIBRARIES if isinstance(error, Exception) else of == "pyo3_runtime"


def wrapped(error: BaseException, operation: str) -> ConsilienceError:
    """Return an error of ours for that of a library: the operation, its message on one line, and its type.

    It is also of the built-in type that the error has: ValueError, TypeError, OSError or RuntimeError.

    >>> wrapped(KeyError("a"), "fuse")
    OperationError("fuse: 'a' (KeyError)")
    """
    kinds: tuple[tuple[type[BaseException], type[ConsilienceError]], ...] = (
        (TypeError, WrongTypeError),
        (ValueError, InputError),
        (OSError, FileError),
    )
    ours = next((kind for type_, kind in kinds if isinstance(error, type_)), OperationError)
    try:
        text = " ".join(str(error).split())
    except Exception:  # an object that raises where it is printed
        text = ""
    if len(text) > 600:  # the end often says what to do
        text = f"{text[:300]} … {text[-300:]}"
    return ours(f"{operation}: {text}{' ' if text else ''}({type(error).__name__})")


def show(value: object, limit: int = 80) -> str:
    """Return a value for a message: its representation on one line, shortened, or its type where it has none.

    >>> show([1] * 100, limit=20)
    '[1, 1, 1, 1, 1, 1,…'
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:
        return f"a {type(value).__name__}"
    # Lone surrogates and control characters would break the terminal or the file that the message is written to.
    text = "".join(letter if letter.isprintable() else "�" for letter in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def unknown_name(what: str, name: object, known: Iterable[str], advice: str = "") -> UnknownNameError:
    """Return the error for an unknown name; the message suggests one that begins with it, else the nearest one.

    Of several that begin with it the first is suggested, in the order in which they are given if they have one.

    >>> str(unknown_name("method", "conct", ["concat", "late"]))
    "unknown method 'conct': did you mean 'concat'? Known: concat, late"
    >>> str(unknown_name("modality", "vib", ["temperature", "vibration"]))
    "unknown modality 'vib': did you mean 'vibration'? Known: temperature, vibration"
    >>> str(unknown_name("metric", "acc", ["accuracy", "acc7"]))
    "unknown metric 'acc': did you mean 'accuracy'? Known: acc7, accuracy"
    >>> str(unknown_name("method", "x", ["late", *(f"pro:{base}" for base in ("align", "concat", "mag", "mim"))]))
    "unknown method 'x'. Known: late, pro:… (4)"
    """
    known = known if isinstance(known, Collection) else list(known)
    names = sorted({str(known_name) for known_name in known})
    by_lower = {known_name.lower(): known_name for known_name in names}
    wanted = str(name).lower() if isinstance(name, str | int | float) else ""
    ordered = names if isinstance(known, Set) else [str(known_name) for known_name in known]
    begun = [lower for lower in map(str.lower, ordered) if wanted and lower.startswith(wanted)]
    close = [wanted] if wanted in by_lower else begun or difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.6)
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    listing = f"Known: {', '.join(_without_families(names))}" if names else "There are none"
    return UnknownNameError(
        f"unknown {what} {show(name)}{': ' if hint else '. '}{hint}{listing}" + (f". {advice}" if advice else "")
    )


def _without_families(names: Sequence[str], most: int = 3) -> list[str]:
    """Replace more than `most` names of one `family:` by one entry, so that the message stays short."""
    sizes = Counter(name.partition(":")[0] for name in names if ":" in name)
    short = {family: f"{family}:… ({size})" for family, size in sizes.items() if size > most}
    return list(dict.fromkeys(short.get(name.partition(":")[0], name) if ":" in name else name for name in names))


def listed(names: Sequence[object], limit: int = 10) -> str:
    """Names for a message, at most `limit` of them.

    >>> listed(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, names[:limit]))
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


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
