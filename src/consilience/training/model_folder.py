"""A model as a folder: weights in safetensors, everything else in JSON, nothing that could be executed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError, SavedModelError
from consilience.encoders import EncoderChoice, describe_encoders, is_custom
from consilience.version import __version__

if TYPE_CHECKING:
    from consilience.training.model import Model

# The only files of a saved model: a folder with any other in it is never replaced.
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
EXPERTS = "experts.skops"  # scikit-learn's, where there are any
FORMAT = 1
_METHOD, _PREPARATION, _EXTRA = "method.", "preparation.", "extra."
_FIELDS = {"format": int, "version": str, "sha256": str, "checksum": str}
_MODEL_FIELDS = {"method": str, "settings": dict, "encoders": dict, "preparation": dict, "extra": dict}


@dataclass(frozen=True)
class Folder:
    """A folder's content, as it was when saved: the description, tensors, and scikit-learn experts as skops has them.

    The description holds what the caller gave, and the library's own fields (`version`, checksums).
    """

    described: dict[str, Any]
    tensors: dict[str, Tensor]
    experts: bytes | None = None


@dataclass
class Saved:
    """What a folder holds, checked."""

    path: Path
    described: dict[str, Any]
    encoders: dict[str, EncoderChoice]
    tensors: dict[str, Tensor]

    @property
    def preparation_tensors(self) -> dict[str, Tensor]:
        """The tensors of the preparation."""
        return {key[len(_PREPARATION) :]: value for key, value in self.tensors.items() if key.startswith(_PREPARATION)}

    def load_weights(self, module: nn.Module) -> None:
        """Put the method's tensors into a freshly built one."""
        state = {key[len(_METHOD) :]: value for key, value in self.tensors.items() if key.startswith(_METHOD)}
        if any(value.dtype == torch.float64 for value in state.values()):  # it was trained in 64 bits
            module.double()
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            reason = str(error).replace("\n\t", " ")
            raise SavedModelError(
                f"the weights in {self.path} do not fit the method they were saved for: {reason}. If the model had "
                "encoders of your own, pass the same ones"
            ) from error


def write_folder(path: Path, model: Model, extra: dict[str, Any], extra_tensors: Mapping[str, Tensor]) -> Path:
    """Write a trained method with everything needed to use it, and what the caller has beside it."""
    learned, prepared = model.preparation.state()
    tensors = {_METHOD + key: value for key, value in model.method.state_dict().items()}
    tensors |= {_PREPARATION + key: value for key, value in learned.items()}
    tensors |= {_EXTRA + key: value for key, value in extra_tensors.items()}
    described = {
        "method": model.name,
        "settings": model.settings,
        "encoders": describe_encoders(model.encoders, model.method),
        "preparation": prepared,
        "recipe": model.recipe,
        "extra": extra,
    }
    return write_sealed(path, Folder(described, tensors))


def read_folder(path: Path, encoders: Mapping[str, EncoderChoice]) -> Saved:
    """Read what `write_folder` wrote, with the encoders it asks for."""
    described = read_description(path)
    if "method" not in described and "estimator" in described:
        raise SavedModelError(f"{path} holds a {described['estimator']}, no trained method; read it with load")
    _check_fields(path, described, _MODEL_FIELDS)
    content = read_sealed(path)
    return Saved(path, content.described, reunite(path, described["encoders"], encoders), content.tensors)


def read_extra_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors that the caller of `write_folder` had beside the model."""
    tensors = read_sealed(path).tensors
    return {key[len(_EXTRA) :]: value for key, value in tensors.items() if key.startswith(_EXTRA)}


def write_sealed(path: Path, content: Folder) -> Path:
    """Write into a folder beside the target, then swap: an existing model is replaced whole or not at all."""
    from safetensors.torch import save_file

    path = path.absolute()
    check_replaceable(path)
    beside, aside = (path.with_name(f".{path.name}.{os.getpid()}.{state}") for state in ("part", "old"))
    for left_over in (beside, aside):
        shutil.rmtree(left_over, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        # A contiguous copy of each: safetensors refuses tensors that share memory.
        tensors = {key: value.detach().cpu().clone().contiguous() for key, value in content.tensors.items()}
        save_file(tensors, beside / WEIGHTS)
        described = {"format": FORMAT, "library": "consilience", "version": __version__, **content.described}
        described["sha256"] = _digest(beside / WEIGHTS)
        if content.experts is not None:
            (beside / EXPERTS).write_bytes(content.experts)
            described["experts_sha256"] = _digest(beside / EXPERTS)
        try:
            text = json.dumps(described, allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"saving: a setting of the model cannot be written as JSON: {error}. Nothing was written to {path}"
            ) from error
        sealed = json.loads(text)
        sealed["checksum"] = _seal(sealed)
        (beside / DESCRIPTION).write_text(json.dumps(sealed, indent=1, ensure_ascii=False), encoding="utf-8")
        # safetensors renames a temporary file, which only its owner may read; this one has what the umask gives.
        shutil.copymode(beside / DESCRIPTION, beside / WEIGHTS)
        if path.exists():
            os.replace(path, aside)
        try:
            os.replace(beside, path)
        except OSError:
            if aside.exists():
                os.replace(aside, path)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return path


def read_sealed(path: Path) -> Folder:
    """Read and check a folder; every way it can be broken has its own sentence."""
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


def read_description(path: Path) -> dict[str, Any]:
    """What a folder says it holds, checked to be ours and as it was saved."""
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
    _check_fields(path, described, _FIELDS)
    if described["checksum"] != _seal(described):
        raise SavedModelError(f"{path / DESCRIPTION} was changed after saving: its checksum differs")
    return described


def _check_fields(path: Path, described: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    for name, kind in fields.items():
        if not isinstance(described.get(name), kind):
            raise SavedModelError(f"{path / DESCRIPTION} is damaged: {name!r} is missing, or is no {kind.__name__}")


def reunite(path: Path, saved: Mapping[str, Any], given: Mapping[str, Any], what: str = "encoders") -> dict[str, Any]:
    """Described choices with modules of the user's own, of which no code is stored, put back in their places."""
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
    """A folder that is not ours, or that has become more than ours, is not to be lost."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"saving: {path} is a file; choose a folder")
    found = sorted(entry.name for entry in path.iterdir())
    if foreign := [name for name in found if name not in (DESCRIPTION, WEIGHTS, EXPERTS)]:
        raise InputError(f"saving: {path} exists and holds {foreign[0]!r}, no part of a model; choose another folder")
    try:
        ours = not found or json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))["library"] == "consilience"
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise InputError(f"saving: {path} exists and is no model saved by consilience; choose another folder")


def _seal(described: Mapping[str, Any]) -> str:
    """A checksum of the description itself, which holds that of the weights: a changed label is noticed too."""
    content = {name: value for name, value in described.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    """Numpy scalars and arrays as JSON values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} of type {type(value).__name__}")
