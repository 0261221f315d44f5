"""Packages that only some endings need: the extras `media` and `dicom`."""

from __future__ import annotations

import importlib
from typing import Any

from consilience.core.errors import InputError


class MissingPackageError(InputError):
    """A package is not installed. This is no fault of a file, so no file is treated as broken for it."""


def import_extra(module: str, extra: str, files: str) -> Any:
    """Import a package, or say which extra of this library brings it.

    Example:
        >>> import_extra("no_such_package", "media", "FLAC files")
        Traceback (most recent call last):
        consilience.data.media.extras.MissingPackageError: FLAC files need the package no_such_package: pip install
        'consilience[media]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(f"{files} need the package {module}: pip install 'consilience[{extra}]'") from error
