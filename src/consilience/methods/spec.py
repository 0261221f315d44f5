"""What a method is built from: the modalities, the task, and an encoder for each modality."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from consilience.core.errors import unknown_name
from consilience.core.samples import Modality
from consilience.core.targets import Task
from consilience.encoders import Encoder, EncoderChoice, build_encoder


@dataclass
class Spec:
    """What a method is built from.

    Args:
        modalities: Name → `Modality`.
        task: The task.
        encoders: Name → encoder; the default of its kind for the others.
    """

    modalities: Mapping[str, Modality]
    task: Task
    encoders: Mapping[str, EncoderChoice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.encoders:
            if name not in self.modalities:
                raise unknown_name("modality", name, self.modalities, "It was given in encoders")

    def build_encoders(self) -> PerModality:
        """Build one encoder per modality."""
        return PerModality({name: self.build_encoder(name) for name in self.modalities})

    def build_encoder(self, name: str) -> Encoder:
        """Build the encoder of one modality: the chosen one, or the default of its kind."""
        return build_encoder(self.modalities[name], self.encoders.get(name))

    def preferring(self, encoders: Mapping[str, EncoderChoice]) -> Spec:
        """Return the spec with these encoders for modalities without a chosen encoder."""
        chosen = {name: choice for name, choice in self.encoders.items() if choice is not None}
        return Spec(self.modalities, self.task, {**encoders, **chosen})

    def only(self, *names: str) -> Spec:
        """Return the spec with fewer modalities."""
        for name in names:
            if name not in self.modalities:
                raise unknown_name("modality", name, self.modalities)
        return Spec(
            {name: self.modalities[name] for name in names},
            self.task,
            {name: choice for name, choice in self.encoders.items() if name in names},
        )


class PerModality(nn.Module):
    """One module per modality, by name. Unlike `nn.ModuleDict` it accepts any name, such as "temp.1" and "keys"."""

    def __init__(self, modules: Mapping[str, nn.Module]):
        super().__init__()
        self.names = tuple(modules)
        self.each = nn.ModuleList(modules.values())

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise unknown_name("modality", name, self.names)
        return self.each[self.names.index(name)]

    def __len__(self) -> int:
        return len(self.names)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and modules in order."""
        return zip(self.names, self.each)

    def values(self) -> Iterator[Any]:
        """Modules in order."""
        return iter(self.each)
