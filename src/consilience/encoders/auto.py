"""Two encoders of vectors: `linear`, and `auto`, the default of the estimators and of `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from consilience.core.samples import Kind, Modality
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders.choice import register_encoder
from consilience.encoders.mlp import Mlp


@register_encoder("linear")
class Linear(Mlp):
    """The standardised values as they are, so that an expert is a linear model.

    An expert that is trained alone for a classification is a logistic regression, with a penalty that is chosen by the
    log-loss of held-out samples (see `methods.opinions.linear_expert`); elsewhere the head is trained by gradients.

    Args:
        modality: A vector.
    """

    reads: ClassVar[tuple[Kind, ...]] = ("vector",)
    expert = "linear"
    size = None  # type: ignore[assignment]

    def __init__(self, modality: Modality):
        super().__init__(modality, hidden=())


@register_encoder("auto")
class Auto(Mlp):
    """The default for vectors of the estimators and of `compare`: what suits small tables without being tuned.

    For an expert that is trained alone for a classification, a pool of a network, a logistic regression and decision
    trees, weighted by the log-loss of held-out samples (see `methods.opinions.pooled_expert`). Elsewhere a wide network
    with much dropout, which does better on a few hundred rows than the deeper `mlp` (docs/defaults.md has the figures).

    Args:
        modality: A vector.
        hidden: Widths of the network's blocks.
        dropout: Dropout rate after every block.
    """

    reads: ClassVar[tuple[Kind, ...]] = ("vector",)
    expert = "pool"

    def __init__(
        self,
        modality: Modality,
        *,
        hidden: PositiveInt | Sequence[PositiveInt] = (256,),
        dropout: Rate = 0.3,
    ):
        super().__init__(modality, hidden=hidden, dropout=dropout)
        self.dropout = dropout
