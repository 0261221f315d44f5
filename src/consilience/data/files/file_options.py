"""The options of `load_data` for files of the user's own, as the readers take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consilience.core.targets import TaskKind

if TYPE_CHECKING:
    from consilience.data.files.cell_fills import Fill
    from consilience.data.media.reading import Broken


@dataclass(frozen=True)
class FileOptions:
    """The options of `load_data` for files of the user's own; it says what they mean."""

    target: str | None = None
    kinds: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None
    fill: Fill | None = None
    task: TaskKind | None = None
    seed: int = 0
    group: str | None = None
    time: str | None = None
    folds: int | None = None
    media: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    broken: Broken = "error"
