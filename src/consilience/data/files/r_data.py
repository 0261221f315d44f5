"""Files of R's `save()`, read by the package rdata."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError


def read_r_data(path: Path) -> dict[str, Any]:
    """Every object in an `.rda` file by name.

    Args:
        path: Of the file.

    Returns:
        A vector is an array `[n]`, a matrix `[row, column]`, a factor the array of its labels `[n]`, a named list or a
        data frame a dict. Missing numbers are NaN. The names of rows and columns are dropped.

    Raises:
        UnsupportedError: The package rdata is not installed.
        InputError: The file is damaged, or not a file of `save()`.
    """
    try:
        import rdata
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"reading {path.name} needs the package rdata: pip install 'consilience[rdata]'"
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes of R that rdata does not convert
            content = rdata.read_rda(path)
    except Exception as error:  # damaged bytes fail wherever they lead the parser
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{path.name} is damaged, or not a file of R's save(): {reason}. Get it again, or write it in R with "
            "save(object, file=...)"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path.name} is a file of R's saveRDS(); write it in R with save(object, file=...)")
    return _as_arrays(content)


def _as_arrays(value: Any) -> Any:
    """Arrays in place of the types of pandas and xarray that rdata returns."""
    if isinstance(value, dict):
        return {str(name): _as_arrays(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_arrays(item) for item in value]
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a data frame
        return {str(name): _as_arrays(value[name].array) for name in value.columns}
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.filled(value.astype(np.float64), np.nan)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        labels = array.dtype.kind == "O" and all(isinstance(cell, str) for cell in array.flat)
        return array.astype(np.str_) if labels else array
    return value
