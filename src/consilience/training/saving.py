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

from consilience.encoders import EncoderChoice, describe_choice, is_custom
from consilience.errors import InputError, SavedModelError
from consilience.version import __version__

if TYPE_CHECKING:
    from consilience.training.model import Model

# The only files of a saved model: a folder with any other in it is never replaced.
DESCRIPTION = "model.json"
WEIGHTS = "weights.safetensors"
FORMAT = 1
_METHOD, _PREPARATION = "method.", "preparation."
_FIELDS = {
    "format": int,
    "version": str,
    "method": str,
    "settings": dict,
    "encoders": dict,
    "preparation": dict,
    "extra": dict,
    "sha256": str,
    "checksum": str,
}


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


def write_folder(path: Path, model: Model, extra: dict[str, Any]) -> Path:
    """Write into a folder beside the target, then swap: an existing model is replaced whole or not at all."""
    from safetensors.torch import save_file

    path = path.absolute()
    _check_replaceable(path)
    learned, prepared = model.preparation.state()
    tensors = {_METHOD + key: value.detach().cpu() for key, value in model.method.state_dict().items()}
    tensors |= {_PREPARATION + key: value for key, value in learned.items()}
    beside, aside = (path.with_name(f".{path.name}.{os.getpid()}.{state}") for state in ("part", "old"))
    for left_over in (beside, aside):
        shutil.rmtree(left_over, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        # A contiguous copy of each: safetensors refuses tensors that share memory.
        save_file({key: value.clone().contiguous() for key, value in tensors.items()}, beside / WEIGHTS)
        described = {
            "format": FORMAT,
            "library": "consilience",
            "version": __version__,
            "method": model.name,
            "settings": model.settings,
            "encoders": {name: describe_choice(choice) for name, choice in model.encoders.items()},
            "preparation": prepared,
            "recipe": model.recipe,
            "extra": extra,
            "sha256": _digest(beside / WEIGHTS),
        }
        try:
            text = json.dumps(described, allow_nan=False, default=_plain)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"saving: a setting of the model cannot be written as JSON: {error}. Nothing was written to {path}"
            ) from error
        sealed = json.loads(text)
        sealed["checksum"] = _seal(sealed)
        (beside / DESCRIPTION).write_text(json.dumps(sealed, indent=1, ensure_ascii=False), encoding="utf-8")
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


def read_folder(path: Path, encoders: Mapping[str, EncoderChoice]) -> Saved:
    """Read and check a folder; every way it can be broken has its own sentence."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_dir():
        raise SavedModelError(f"there is no saved model at {path}: it is not a folder")
    for name in (DESCRIPTION, WEIGHTS):
        if not (path / name).is_file():
            raise SavedModelError(f"{path} is not a model saved by consilience: {name} is missing")
    try:
        described = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SavedModelError(f"{path / DESCRIPTION} is damaged: {error}") from error
    if not isinstance(described, dict) or described.get("library") != "consilience":
        raise SavedModelError(f"{path} is not a model saved by consilience")
    for name, kind in _FIELDS.items():
        if not isinstance(described.get(name), kind):
            raise SavedModelError(f"{path / DESCRIPTION} is damaged: {name!r} is missing, or is no {kind.__name__}")
    if described["checksum"] != _seal(described):
        raise SavedModelError(f"{path / DESCRIPTION} was changed after saving: its checksum differs")
    if described["format"] > FORMAT:
        warnings.warn(
            f"{path} was saved by consilience {described['version']} in a newer format than this version "
            f"({__version__}) knows; trying to read it all the same",
            stacklevel=3,
        )
    if _digest(path / WEIGHTS) != described["sha256"]:
        raise SavedModelError(f"{path / WEIGHTS} is truncated or was changed after saving: its checksum differs")
    try:
        tensors = load_file(path / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise SavedModelError(f"{path / WEIGHTS} is damaged: {error}") from error
    return Saved(path, described, _reunite(path, described["encoders"], encoders), tensors)


def _reunite(path: Path, saved: dict[str, Any], given: Mapping[str, EncoderChoice]) -> dict[str, EncoderChoice]:
    for name in given:
        if not is_custom(saved.get(name)):
            raise InputError(
                f"loading {path}: the model had no encoder of your own for modality {name!r}; what it had is saved "
                "with it, so leave it out"
            )
    absent = [name for name, choice in saved.items() if is_custom(choice) and name not in given]
    if absent:
        listed = ", ".join(repr(name) for name in absent)
        raise SavedModelError(
            f"loading {path}: the model has encoders of your own for {listed}; no code is stored, so pass them "
            "again: load(path, encoders={name: module})"
        )
    return {**saved, **given}


def _check_replaceable(path: Path) -> None:
    """A folder that is not ours, or that has become more than ours, is not to be lost."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"saving: {path} is a file; choose a folder")
    found = sorted(entry.name for entry in path.iterdir())
    if foreign := [name for name in found if name not in (DESCRIPTION, WEIGHTS)]:
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
