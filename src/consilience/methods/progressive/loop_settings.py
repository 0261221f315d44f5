"""The settings of a loop, declared once for `pro:NAME`, `unimodal-feedback:NAME`, `wide:NAME` and `progressive`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from consilience.core.settings import NonNegativeFloat, PositiveInt, check_fields

Mode = Literal["add", "concat"]
NormChoice = Literal["first", "last", "per-step"]


@dataclass(frozen=True)
class LoopSettings:
    """The settings of a loop around any module."""

    steps: Annotated[PositiveInt, "number of passes; 1 is the base model and adds no weights"] = 2
    mode: Annotated[Mode, "add the context to what a layer receives, or concatenate it"] = "add"
    link_rank: Annotated[PositiveInt | None, "rank of the links' weights W; None: full"] = None
    project: Annotated[PositiveInt | None, "width of a learned projection of the context; None: no projection"] = None
    detach: Annotated[bool, "stop gradients between passes"] = False
    statistics: Annotated[NormChoice, "which pass updates the running statistics of batch norms"] = "per-step"

    def __post_init__(self) -> None:
        check_fields(self, "")


@dataclass(frozen=True)
class MethodLoopSettings(LoopSettings):
    """The settings of a loop around a method."""

    into: Annotated[
        str | Mapping[str, str] | None,
        "the encoder stage that receives the context, for all modalities or by modality; None: the input",
    ] = None
    step_loss: Annotated[NonNegativeFloat, "weight of the mean task loss of the earlier passes"] = 0.0
    link_penalty: Annotated[NonNegativeFloat, "weight of the mean square of the links' weights"] = 0.0
