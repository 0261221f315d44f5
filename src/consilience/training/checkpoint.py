"""Checkpoints: the state of a training run on disk, from which it continues after a crash or an interruption."""

from __future__ import annotations

import hashlib
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from consilience.core.errors import InputError, SavedModelError
from consilience.core.files import write_atomically
from consilience.training.callbacks import Callback

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun

# Settings that older checkpoints do not name, with the values they had.
_BEFORE = {"least_steps": 0}


class Checkpointing(Callback):
    """Resumes a run from its checkpoint, if there is one, and writes it at the end of epochs.

    Args:
        path: The checkpoint.
        seconds: At least so long between two checkpoints; the last epoch of a phase is always saved.
    """

    every_process = True

    def __init__(self, path: Path, seconds: float):
        self.path, self.seconds = path, seconds
        self._saved_at = time.monotonic()

    def on_train_start(self, run: TrainingRun) -> None:
        """Resume."""
        saved = read_checkpoint(self.path, fingerprint(run))
        if saved is not None:
            run.resume(saved)

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Write, if enough time has passed."""
        due = run.ends_phase or time.monotonic() - self._saved_at >= self.seconds
        if due and run.fabric.is_global_zero:
            write_checkpoint(self.path, fingerprint(run), run.state())
            self._saved_at = time.monotonic()


def fingerprint(run: TrainingRun) -> dict[str, Any]:
    """Return what must not change between a checkpoint and the run that continues it."""
    ignored = {"ignored worst": run.module.ignored_worst} if run.module.ignored_worst else {}
    return {
        **run.settings.settings(),
        "worthwhile": run.settings.worthwhile,
        **ignored,
        "method": type(run.module).__name__,
        "built as": describe_module(run.module),
        "training samples": run.train.fingerprint(),
        "validation samples": None if run.validation is None else run.validation.fingerprint(),
        "phases": [
            {"name": phase.name, "epochs": phase.epochs, "lr": phase.lr, "parameters": len(names)}
            for phase, names in zip(run.phases, run.phase_parameters)
        ],
    }


def describe_module(module: nn.Module) -> str:
    """Return a short hash of how a module is built: its layers and plain attributes such as the weight of a loss."""
    plain = {
        path: {name: value for name, value in vars(part).items() if isinstance(value, int | float | str | tuple)}
        for path, part in module.named_modules()
    }
    for attributes in plain.values():
        attributes.pop("training", None)
    return hashlib.sha256(f"{module}{plain}".encode()).hexdigest()[:16]


def write_checkpoint(path: Path, fingerprint: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a checkpoint; a crash leaves the old one."""
    write_atomically(path, lambda file: torch.save({"fingerprint": fingerprint, "state": state}, file))


def read_checkpoint(path: Path, fingerprint: dict[str, Any]) -> dict[str, Any] | None:
    """Return the saved state, or None if there is no checkpoint.

    Raises:
        SavedModelError: If the file cannot be read.
        InputError: If it was written with other settings; the message names them.
    """
    if not path.exists():
        return None
    try:
        _check_archive(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        saved, state = content["fingerprint"], content["state"]
    except Exception as error:
        raise SavedModelError(
            f"the checkpoint {path} cannot be read ({type(error).__name__}: {error}); delete it to start again"
        ) from error
    # Older checkpoints counted every lower loss; they go on by the rule of the run.
    saved = {**_BEFORE, "worthwhile": fingerprint.get("worthwhile"), **saved}
    differences = [
        f"{name} was {saved.get(name)!r}, now {value!r}"
        for name, value in fingerprint.items()
        if saved.get(name) != value
    ]
    if differences:
        raise InputError(
            f"the checkpoint {path} was made with other settings: {'; '.join(differences)}. "
            "Use the same settings to continue, or delete it to start again"
        )
    if "course" in state:
        raise SavedModelError(f"the checkpoint {path} was written by consilience 0.1; delete it to start again")
    return state


def _check_archive(path: Path) -> None:
    """Raise an error for a damaged file: torch allocates what it claims, and may end the process."""
    with zipfile.ZipFile(path) as archive:
        claimed = sum(max(member.file_size, member.compress_size) for member in archive.infolist())
        if claimed > path.stat().st_size:  # members are stored as they are
            raise ValueError(f"its members claim {claimed} bytes, the file has {path.stat().st_size}")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"{damaged} does not have its checksum")
