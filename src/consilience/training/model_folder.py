"""The folder format of everything that is saved: tensors in safetensors, the rest in JSON, nothing executable.

`model.json` has the library, its version, the format's version and checksums beside what the caller describes. What is
in the folder is said by the field `method` (a trained method) or `estimator` (an estimator with a format of its own).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from consilience.core.errors import ConsilienceError, InputError, SavedModelError
from consilience.core.files import atomic_folder
from consilience.encoders import is_custom
from consilience.version import __version__

# The only files of a saved model: a folder with any other file is never replaced.
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
EXPERTS = "experts.skops"  # scikit-learn's, where there are any
FORMAT = 1
EXTRA = "extra."
_FIELDS = {"format": int, "version": str, "sha256": str, "checksum": str}
_DOES_NOT_FIT = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Folder:
    """The content of a folder.

    Attributes:
        described: What the caller describes, as JSON; a folder that was read also has the library's own fields.
        tensors: Tensors by name.
        experts: Scikit-learn experts as skops writes them.
    """

    described: dict[str, Any]
    tensors: dict[str, Tensor]
    experts: bytes | None = None

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with a prefix, without it."""
        return {key[len(prefix) :]: value for key, value in self.tensors.items() if key.startswith(prefix)}


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with a prefix before their names, for `Folder.part`."""
    return {prefix + key: value for key, value in tensors.items()}


def write_folder(path: Path, content: Folder) -> Path:
    """Write a folder; an existing model is replaced as a whole or not at all.

    Returns:
        The absolute path.

    Raises:
        InputError: If the path holds something that is not a saved model, or the description is not JSON.
    """
    from safetensors.torch import save_file

    path = path.absolute()
    check_replaceable(path)
    with atomic_folder(path) as folder:
        # A contiguous copy of each: safetensors refuses tensors that share memory.
        tensors = {key: value.detach().cpu().clone().contiguous() for key, value in content.tensors.items()}
        save_file(tensors, folder / WEIGHTS)
        described = {"format": FORMAT, "library": "consilience", "version": __version__, **content.described}
        described["sha256"] = _digest(folder / WEIGHTS)
        if content.experts is not None:
            (folder / EXPERTS).write_bytes(content.experts)
            described["experts_sha256"] = _digest(folder / EXPERTS)
        try:
            text = json.dumps(described, allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"saving: a setting of the model cannot be written as JSON: {error}. Nothing was written to {path}"
            ) from error
        sealed = json.loads(text)
        sealed["checksum"] = _seal(sealed)
        (folder / DESCRIPTION).write_text(json.dumps(sealed, indent=1, ensure_ascii=False), encoding="utf-8")
        # safetensors renames a temporary file, which only its owner may read; this one has what the umask gives.
        shutil.copymode(folder / DESCRIPTION, folder / WEIGHTS)
    return path


def read_folder(path: Path) -> Folder:
    """Read a folder and check it.

    Raises:
        SavedModelError: If a file is missing, damaged or was changed; the message says which.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    described = read_description(path)
    if described["format"] > FORMAT:
        warnings.warn(
            f"{path} was saved by consilience {described['version']} in a newer format than this version "
            f"({__version__}) knows; trying to read it all the same",
            stacklevel=4,
        )
    experts = described.get("experts_sha256")
    for name, digest in ((WEIGHTS, described["sha256"]), (EXPERTS, experts)):
        if digest is not None and not (path / name).is_file():
            raise SavedModelError(f"{path} is not a model saved by consilience: {name} is missing")
        if digest is not None and _digest(path / name) != digest:
            raise SavedModelError(f"{path / name} is truncated or was changed after saving: its checksum differs")
    try:
        tensors = load_file(path / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise SavedModelError(f"{path / WEIGHTS} is damaged: {error}") from error
    return Folder(described, tensors, None if experts is None else (path / EXPERTS).read_bytes())


def read_extra_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors that the caller of `Model.save` added."""
    return read_folder(path).part(EXTRA)


def read_description(path: Path) -> dict[str, Any]:
    """Return the description of a folder, after checking that consilience wrote it and nobody changed it."""
    if not path.is_dir():
        raise SavedModelError(f"there is no saved model at {path}: it is not a folder")
    if not (path / DESCRIPTION).is_file():
        raise SavedModelError(f"{path} is not a model saved by consilience: {DESCRIPTION} is missing")
    try:
        described = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SavedModelError(f"{path / DESCRIPTION} is damaged: {error}") from error
    if not isinstance(described, dict) or described.get("library") != "consilience":
        raise SavedModelError(f"{path} is not a model saved by consilience")
    check_described(path, described, _FIELDS)
    if described["checksum"] != _seal(described):
        raise SavedModelError(f"{path / DESCRIPTION} was changed after saving: its checksum differs")
    return described


def check_described(path: Path, described: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    """Raise an error if a description lacks a field, or one has another type."""
    for name, kind in fields.items():
        if not isinstance(described.get(name), kind):
            wrong = f"{name!r} is missing or is not of type {kind.__name__}"
            raise SavedModelError(f"{path / DESCRIPTION} is damaged: {wrong}")


@contextmanager
def rebuilding(path: Path, what: str = "the model") -> Iterator[None]:
    """Turn errors of a description that does not fit this version into one that names the path."""
    try:
        yield
    except _DOES_NOT_FIT as error:
        if f"loading {path}" in str(error):
            raise
        reason = str(error) if isinstance(error, ConsilienceError) else f"{type(error).__name__}: {error}"
        raise SavedModelError(f"loading {path}: {what} cannot be rebuilt as it was saved: {reason}") from error


def add_custom_modules(
    path: Path, saved: Mapping[str, Any], given: Mapping[str, Any], what: str = "encoders"
) -> dict[str, Any]:
    """Return saved choices with the user's own modules, whose code is not stored, in their places.

    Args:
        path: The folder, for messages.
        saved: Modality → choice, as it was saved.
        given: Modality → module, as the user passed it when loading.
        what: "encoders" or "decoders".
    """
    for name in given:
        if not is_custom(saved.get(name)):
            raise InputError(
                f"loading {path}: the model had no {what[:-1]} of your own for modality {name!r}; what it had is saved "
                "with it, so leave it out"
            )
    absent = [name for name, choice in saved.items() if is_custom(choice) and name not in given]
    if absent:
        listed = ", ".join(repr(name) for name in absent)
        raise SavedModelError(
            f"loading {path}: the model has {what} of your own for {listed}; no code is stored, so pass them "
            f"again: load(path, {what}={{name: module}})"
        )
    return {**saved, **given}


def check_replaceable(path: Path) -> None:
    """Raise an error if a path holds anything that is not part of a saved model."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"saving: {path} is a file; choose a folder")
    names = sorted(entry.name for entry in path.iterdir())
    if foreign := [name for name in names if name not in (DESCRIPTION, WEIGHTS, EXPERTS)]:
        raise InputError(
            f"saving: {path} exists and holds {foreign[0]!r}, which is no part of a model; choose another folder"
        )
    try:
        ours = not names or json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))["library"] == "consilience"
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise InputError(f"saving: {path} exists and is not a model saved by consilience; choose another folder")


def _seal(described: Mapping[str, Any]) -> str:
    """A checksum of the description, which holds that of the weights: a changed label is noticed too."""
    content = {name: value for name, value in described.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as JSON values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} of type {type(value).__name__}")
