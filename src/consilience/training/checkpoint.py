"""A training run on disk, written whole or not at all, so that it can go on where it stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from consilience.core.errors import InputError, SavedModelError


def write_checkpoint(path: Path, fingerprint: dict[str, Any], state: dict[str, Any]) -> None:
    """Write beside the old file, then take its place: a crash leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        torch.save({"fingerprint": fingerprint, "state": state}, beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_checkpoint(path: Path, fingerprint: dict[str, Any]) -> dict[str, Any] | None:
    """The saved state, or None where nothing was saved; one made with other settings is an error that names them."""
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        made_with, state = content["fingerprint"], content["state"]
    except Exception as error:
        raise SavedModelError(
            f"the checkpoint {path} cannot be read ({type(error).__name__}: {error}); delete it to start again"
        ) from error
    differences = [
        f"{name} was {made_with.get(name)!r}, now {value!r}"
        for name, value in fingerprint.items()
        if made_with.get(name) != value
    ]
    if differences:
        raise InputError(
            f"the checkpoint {path} was made with other settings: {'; '.join(differences)}. "
            "Use the same settings to go on, or delete it to start again"
        )
    return state
