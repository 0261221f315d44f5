"""Files beside a saved model: while a model is loaded, only those are read that the caller of `load` passes again.

A description can be changed and sealed again by anybody, so that a name in it is no permission to read what it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from consilience.core.errors import SavedModelError

# Modality → settings of its encoder, as the caller of `load` gave them; None while no model is loaded.
_PASSED: ContextVar[Mapping[str, Mapping[str, Any]] | None] = ContextVar("passed", default=None)


@contextmanager
def only_passed_files(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Within a block, refuse to read files that are not among these settings: modality → settings of its encoder."""
    token = _PASSED.set(settings)
    try:
        yield
    finally:
        _PASSED.reset(token)


def loading_saved_model() -> bool:
    """Return whether a saved model is being loaded."""
    return _PASSED.get() is not None


def passed_settings(modality: str) -> Mapping[str, Any] | None:
    """Return the settings that the caller of `load` gave for the encoder of a modality, or None."""
    return (_PASSED.get() or {}).get(modality)


def check_passed(what: str, file: object) -> None:
    """Raise an error if a saved model is being loaded, and this file or folder was not passed by the caller.

    >>> with only_passed_files({"text": {"model": "models/bert"}}):
    ...     check_passed("model", "models/bert")
    ...     check_passed("model", "models/other")
    Traceback (most recent call last):
    consilience.core.errors.SavedModelError: the model asks for the model 'models/other', which is not part of its ...
    """
    passed = _PASSED.get()
    if passed is not None and not any(str(file) == str(value) for given in passed.values() for value in given.values()):
        raise SavedModelError(
            f"the model asks for the {what} {str(file)!r}, which is not part of its folder. A saved model reads "
            "nothing else, unless you pass it: load(path, encoders={modality: encoder})"
        )
