"""The folder format of everything that is saved: tensors in safetensors, the rest in JSON, nothing executable.

`model.json` has the library, its version, the format's version and checksums beside what the caller describes. What is
in the folder is said by the field `method` (a trained method) or `estimator` (an estimator with a format of its own).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from consilience.core.errors import ConsilienceError, InputError, SavedModelError
from consilience.core.files import atomic_folder, remove_leftovers
from consilience.encoders import is_custom, only_passed_files, passed_again, settings_of_choices
from consilience.version import __version__

# The only files of a saved model: a folder with any other file is never replaced.
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
EXPERTS = "experts.skops"  # scikit-learn's, where there are any
CARD = "README.md"  # for people; nothing reads it, so that no checksum covers it
FORMAT = 1
EXTRA = "extra."
_FIELDS = {"format": int, "version": str, "sha256": str, "checksum": str}


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
    from safetensors.torch import save

    from consilience.training.model_card import model_card

    path = path.absolute()
    check_replaceable(path)
    with atomic_folder(path) as folder:
        # A contiguous copy of each: safetensors refuses tensors that share memory.
        tensors = {key: value.detach().cpu().clone().contiguous() for key, value in content.tensors.items()}
        (folder / WEIGHTS).write_bytes(save(tensors))
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
        readable = json.dumps(sealed, indent=1, ensure_ascii=False)
        # UTF-8 has no lone surrogates; with a backslash they are JSON.
        (folder / DESCRIPTION).write_text(readable, encoding="utf-8", errors="backslashreplace")
        (folder / CARD).write_text(model_card(sealed), encoding="utf-8")
    return path


def read_folder(path: Path) -> Folder:
    """Read a folder and check it.

    Raises:
        SavedModelError: If a file is missing, damaged or was changed; the message says which.
    """
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
        if digest is not None and _digest(_own_file(path, name)) != digest:
            raise SavedModelError(f"{path / name} is truncated or was changed after saving: its checksum differs")
    try:
        tensors = load_file(path / WEIGHTS)
    except Exception as error:  # of safetensors, of torch for an unknown type, or of the system
        raise SavedModelError(f"{path / WEIGHTS} is damaged: {error}") from error
    return Folder(described, tensors, None if experts is None else (path / EXPERTS).read_bytes())


def read_extra_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors that the caller of `Model.save` added."""
    return read_folder(path).part(EXTRA)


def read_description(path: Path) -> dict[str, Any]:
    """Return the description of a folder, after checking that consilience wrote it and nobody changed it."""
    if not path.is_dir():
        remove_leftovers(path.parent, path.name)  # a process killed while it replaced a model may have moved it away
    if not path.is_dir():
        raise SavedModelError(f"there is no saved model at {path}: it is not a folder")
    try:
        described = json.loads(_own_file(path, DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ConsilienceError):
            raise
        raise SavedModelError(f"{path / DESCRIPTION} is damaged: {error}") from error
    if not isinstance(described, dict) or described.get("library") != "consilience":
        raise SavedModelError(f"{path} is not a model saved by consilience")
    check_described(path, described, _FIELDS)
    try:
        seal = _seal(described)
    except RecursionError as error:
        raise SavedModelError(f"{path / DESCRIPTION} is damaged: {error}") from error
    if described["checksum"] != seal:
        raise SavedModelError(f"{path / DESCRIPTION} was changed after saving: its checksum differs")
    return described


def _own_file(path: Path, name: str) -> Path:
    """The path of a file of the folder; a link may not lead out of it."""
    file = path / name
    if not file.is_file():
        raise SavedModelError(f"{path} is not a model saved by consilience: {name} is missing")
    if not file.resolve().is_relative_to(path.resolve()):
        raise SavedModelError(
            f"{file} is a link to {file.resolve()}, outside of the folder. A model is read from its own folder alone: "
            "copy the file there if you trust it"
        )
    return file


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
    except Exception as error:  # a description may hold anything
        if f"loading {path}" in str(error):
            raise
        reason = str(error) if isinstance(error, ConsilienceError) else f"{type(error).__name__}: {error}"
        raise SavedModelError(f"loading {path}: {what} cannot be rebuilt as it was saved: {reason}") from error


@contextmanager
def loading(path: Path, given: Mapping[str, Any] | None) -> Iterator[None]:
    """Within a block, read no file beside the folder but those that the user passes: modality → encoder."""
    try:
        settings = settings_of_choices(given or {})
    except InputError as error:
        raise type(error)(f"loading {path}: {error}") from error
    with only_passed_files(settings):
        yield


def add_given(path: Path, saved: Mapping[str, Any], given: Mapping[str, Any], what: str = "encoders") -> dict[str, Any]:
    """Return saved choices with what the user passes in their places: own modules, and files beside the folder.

    Args:
        path: The folder, for messages.
        saved: Modality → choice, as it was saved.
        given: Modality → module or choice, as the user passed it when loading.
        what: "encoders" or "decoders".
    """
    chosen = dict(saved)
    for name, choice in given.items():
        try:
            chosen[name] = passed_again(name, saved.get(name), choice, what[:-1])
        except InputError as error:
            raise type(error)(f"loading {path}: {error}") from error
    absent = [name for name, choice in saved.items() if is_custom(choice) and name not in given]
    if absent:
        listed = ", ".join(repr(name) for name in absent)
        raise SavedModelError(
            f"loading {path}: the model has {what} of your own for {listed}; no code is stored, so pass them "
            f"again: load(path, {what}={{name: module}})"
        )
    return chosen


def check_replaceable(path: Path) -> None:
    """Raise an error if a path holds anything that is not part of a saved model."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"saving: {path} is a file; choose a folder")
    if foreign := foreign_files(path):
        raise InputError(
            f"saving: {path} exists and holds {foreign[0]!r}, which is no part of a model; choose another folder"
        )
    if any(path.iterdir()) and not is_saved_model(path):
        raise InputError(f"saving: {path} exists and is not a model saved by consilience; choose another folder")


def foreign_files(path: Path, *also: str) -> list[str]:
    """Return what a folder holds beside the files of a saved model, sorted. also: other names that may be there.

    A folder or a link under the name of such a file is foreign too.
    """
    own = (DESCRIPTION, WEIGHTS, EXPERTS, CARD, *also)
    files = {entry.name: entry.is_file() and not entry.is_symlink() for entry in path.iterdir()}
    return sorted(name for name, is_file in files.items() if name not in own or not is_file)


def is_saved_model(path: Path) -> bool:
    """Return whether a folder has a description that consilience wrote; its content is not checked."""
    try:
        return json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))["library"] == "consilience"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def is_intact(path: Path) -> bool:
    """Return whether a folder holds a whole saved model that was not changed: its checksums are right."""
    try:
        described = read_description(path)
        digests = {WEIGHTS: described["sha256"], EXPERTS: described.get("experts_sha256")}
        return all(digest is None or _digest(path / name) == digest for name, digest in digests.items())
    except (SavedModelError, OSError):
        return False


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


def published_model(folder: Path) -> Path:
    """Return the folder of the model that a comparison published, if its run folder is given; else the folder itself.

    Raises:
        SavedModelError: If the comparison has several models, or none yet.
    """
    if (folder / "model.json").exists() or not (folder / "plan.json").is_file():
        return folder
    best = folder / "best"
    if (best / "model.json").is_file():
        return best
    models = sorted(each.name for each in best.iterdir() if (each / "model.json").is_file()) if best.is_dir() else []
    if models:
        raise SavedModelError(
            f"{folder} is the run folder of a comparison on several sets: choose the model of one, "
            f"{', '.join(str(best / name) for name in models)}"
        )
    raise SavedModelError(f"{folder} is the run folder of a comparison that has no model yet: there is no {best}")
