"""Tensor fusion (TFN): the outer product of all modalities' features, every interaction up to order M explicit.

Zadeh et al. 2017. The tensor has Π_m (size + 1) entries, which is why each modality is first projected to few
features, and why low-rank fusion was invented.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.settings import dropout_rate, whole_number
from consilience.encoders import Encoded
from consilience.methods import JointMethod, PerModality, Spec, register

# Entries of the tensor unless the user asks for more; and the most there may be.
USUAL, MOST = 4096, 2**20


class OuterProduct(nn.Module):
    """[a_1, 1] ⊗ … ⊗ [a_M, 1] with a_m = tanh(W_m h_m), then a layer that mixes: `[batch, width]`.

    Bounded a_m keep products of many of them bounded. A missing modality's a_m is zeros: only its 1 takes part.
    """

    def __init__(self, inputs: Mapping[str, int], size: int, width: int):
        super().__init__()
        self.project = PerModality({name: nn.Linear(one, size) for name, one in inputs.items()})
        self.mix = nn.Linear((size + 1) ** len(inputs), width)

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join pooled features `[batch, width_m]` of all modalities."""
        parts = [
            self.project[name](encoded.pooled).tanh() * batch.present_in(name)[:, None]
            for name, encoded in features.items()
        ]
        return functional.relu(self.mix(outer_product(parts)))


def outer_product(parts: list[Tensor]) -> Tensor:
    """All products of one entry of each [a_m, 1]: `[batch, size_m]` of each m → `[batch, Π (size_m + 1)]`.

    >>> outer_product([Tensor([[2.0]]), Tensor([[3.0]])]).tolist()
    [[6.0, 2.0, 3.0, 1.0]]
    """
    product = parts[0].new_ones(len(parts[0]), 1)
    for part in parts:
        product = (product[:, :, None] * functional.pad(part, (0, 1), value=1.0)[:, None, :]).flatten(1)
    return product


def usual_size(modalities: int) -> int:
    """Features of each modality whose tensor has at most `USUAL` entries, at least one.

    >>> [usual_size(count) for count in (1, 2, 3, 4, 6, 20)]
    [63, 63, 15, 7, 3, 1]
    """
    return max(1, min(63, int(USUAL ** (1 / modalities) + 1e-9) - 1))


@register("tensor", paper="Zadeh et al. 2017, Tensor Fusion Network for Multimodal Sentiment Analysis", equation="2–3")
class TensorFusion(JointMethod):
    """The outer product of all modalities. size: features of each modality in the tensor; width: of the joint layer."""

    def __init__(self, spec: Spec, *, size: int | None = None, width: int = 128, dropout: float = 0.1):
        super().__init__(spec)
        count = len(self.encoders)
        size = usual_size(count) if size is None else whole_number("size", size)
        if (size + 1) ** count > MOST:
            raise InputError(
                f"a tensor of {count} modalities with size {size} has {size + 1}^{count} = {(size + 1) ** count} "
                f"entries, more than {MOST}: choose a smaller size, or method 'lowrank', which never builds it"
            )
        width = whole_number("width", width)
        inputs = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = OuterProduct(inputs, size, width)
        self.head = nn.Sequential(nn.Dropout(dropout_rate(dropout)), nn.Linear(width, spec.task.outputs))
