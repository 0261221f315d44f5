"""`tensor`: tensor fusion (TFN), the outer product of all modalities' features."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.methods import JointMethod, PerModality, Spec, register

# Entries of the tensor with the default size, and the largest number allowed.
DEFAULT_ENTRIES, MAX_ENTRIES = 4096, 2**20


class OuterProduct(nn.Module):
    """[a_1, 1] ⊗ … ⊗ [a_M, 1] with a_m = tanh(W_m h_m), then a layer that mixes: `[batch, width]`.

    Bounded a_m keep products of many of them bounded. A missing modality's a_m is zeros: only its 1 takes part.
    """

    def __init__(self, inputs: Mapping[str, int], size: int, width: int):
        super().__init__()
        self.project = PerModality({name: nn.Linear(features, size) for name, features in inputs.items()})
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
    product = parts[0].new_ones(parts[0].shape[0], 1)
    for part in parts:
        product = (product[:, :, None] * functional.pad(part, (0, 1), value=1.0)[:, None, :]).flatten(1)
    return product


def default_size(modalities: int) -> int:
    """Features of each modality whose tensor has at most `DEFAULT_ENTRIES` entries, at least one.

    >>> [default_size(count) for count in (1, 2, 3, 4, 6, 20)]
    [63, 63, 15, 7, 3, 1]
    """
    return max(1, min(63, int(DEFAULT_ENTRIES ** (1 / modalities) + 1e-9) - 1))


@register(
    "tensor",
    paper="Zadeh et al. 2017, Tensor Fusion Network for Multimodal Sentiment Analysis",
    equation="2–3: c = ReLU(V ([a_1, 1] ⊗ … ⊗ [a_M, 1]) + b), a_m = tanh(W_m h_m)",
)
class TensorFusion(JointMethod):
    """The outer product of all modalities' features: every interaction up to order M is explicit.

    Each modality is first projected to a few features, because the tensor has (size + 1)^M entries. For many modalities
    use `lowrank`, which never builds the tensor.

        a_m = tanh(W_m h_m) (zeros where m is missing)         c = ReLU(V ([a_1, 1] ⊗ … ⊗ [a_M, 1]) + b)         z = P c

    Args:
        size: Features of each modality in the tensor. None: as many as keep the tensor at 4096 entries or fewer.
        width: Width of the joint representation.
        dropout: Dropout rate before the head.
    """

    def __init__(self, spec: Spec, *, size: PositiveInt | None = None, width: PositiveInt = 128, dropout: Rate = 0.1):
        super().__init__(spec)
        count = len(self.encoders)
        size = size or default_size(count)
        if (size + 1) ** count > MAX_ENTRIES:
            raise InputError(
                f"a tensor of {count} modalities with size {size} has {size + 1}^{count} = {(size + 1) ** count} "
                f"entries, more than {MAX_ENTRIES}: choose a smaller size, or method 'lowrank', which never builds it"
            )
        inputs = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = OuterProduct(inputs, size, width)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, spec.task.outputs))
