"""Encoders q(z | S) for every subset S of the modalities.

own     an encoder for every subset, nothing shared (Korthals 2019): 2^N − 1 networks
trunk   every modality is encoded once, and every subset has a small head of its own
poe     an expert for every modality, and the product of those in the subset
set     every modality is encoded once, and one head reads the sum over the subset: for many modalities
concat  all modalities side by side, zeros for what is not in the subset: one head, which learns nothing about subsets
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError
from consilience.core.modality_sets import number_of_members, set_numbers
from consilience.core.registry import Registry
from consilience.core.settings import DeclaredSettings
from consilience.core.tracing import is_traced
from consilience.encoders.encoder import Encoder
from consilience.encoders.mlp import dense_block
from consilience.methods import PerModality, Spec, encode
from consilience.methods.latent.diagonal_gaussian import Gaussian, at_least_float32, product, product_of_all
from consilience.methods.latent.subsets import all_subsets

if TYPE_CHECKING:
    from consilience.methods.latent.objectives.objective import Objective

# Width of a head's hidden layer. Of each modality it reads half as many numbers, or enough for mean and variance.
WIDTH = 64
# Range of the logarithm of a variance: outside it the divergence of two Gaussians overflows.
LOG_VARIANCE = (-12.0, 6.0)
# With up to this many modalities, computing all heads is cheaper than selecting those that the samples need.
FEW_MODALITIES = 6
# The most modalities with a head for every subset by default.
MOST_HEADS = 7

SUBSET_ENCODERS: Registry[type[SubsetEncoder]] = Registry("subset encoder")


class SubsetEncoder(DeclaredSettings, nn.Module):
    """q(z | S).

    Attributes:
        chains: Whether the nested sets of a chain are best drawn for every "sample" or once for a "batch".
    """

    name: ClassVar[str]
    chains: str = "sample"

    def __init__(self, spec: Spec, latent: int):
        super().__init__()
        self.latent = latent
        self.modalities = len(spec.modalities)

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Encode subsets `[S, modality]`, the same for all samples, or `[S, batch, modality]`.

        Returns:
            `[S, batch, latent]`; the prior for the empty set.
        """
        raise NotImplementedError

    def encode_set(self, batch: Batch, members: Sequence[int]) -> Gaussian:
        """Encode one set for all samples of a batch, which have all of its members: `[batch, latent]`.

        The same as `forward` for this set, without masks and without what is not in the set.
        """
        return self(batch, _mask(members, self.modalities, batch.device)[None])[0]

    def trained_on(self, subsets: Tensor) -> Tensor:
        """Return whether each subset can be encoded after this training: booleans `[…]` as `set_numbers(subsets)`."""
        return torch.ones(subsets.shape[:-1], dtype=torch.bool, device=subsets.device)

    def trained_on_set(self, members: Sequence[int]) -> bool:
        """Return the same as `trained_on` for one set."""
        return True


def register_subset_encoder(name: str) -> Callable[[type[SubsetEncoder]], type[SubsetEncoder]]:
    """Register a subset encoder under a name."""
    return SUBSET_ENCODERS.register(name, name=name)


def build_subset_encoder(spec: Spec, latent: int, objective: Objective, choice: str | None = None) -> SubsetEncoder:
    """Build the subset encoder of a name, or by default the objective's."""
    chosen = choice or objective.default_encoder(len(spec.modalities))
    cls = SUBSET_ENCODERS.find(chosen)
    if chosen not in objective.subset_encoders:
        allowed = " or ".join(objective.subset_encoders)
        raise UnsupportedError(
            f"objective {objective.name!r} is defined for the subset encoder {allowed}, not {choice!r}"
        )
    return ProductEncoder(spec, latent, prior=objective.prior_expert) if chosen == "poe" else cls(spec, latent)


class _TracksTraining(SubsetEncoder):
    """An encoder with weights of its own for every subset, which records which of them were trained."""

    met: Tensor  # `[2^N]` by code

    def __init__(self, spec: Spec, latent: int):
        super().__init__(spec, latent)
        met = torch.zeros(2**self.modalities, dtype=torch.bool)
        met[0] = True  # the prior needs no training
        self.register_buffer("met", met)

    def record(self, numbers: Tensor) -> None:
        """Record in training that the subsets of these numbers occurred."""
        if self.training:
            self.met.index_fill_(0, numbers.flatten(), True)

    def trained_on(self, subsets: Tensor) -> Tensor:
        """Return whether each subset occurred in training."""
        return self.met[set_numbers(subsets)]

    def trained_on_set(self, members: Sequence[int]) -> bool:
        """Return the same for one set."""
        return bool(self.met[number_of_members(members)])


@register_subset_encoder("trunk")
class TrunkEncoder(_TracksTraining):
    """h_m = encoder_m(x_m) once; for every subset S a head: W_S relu(Σ_{m∈S} V_{S,m} h_m + b_S) + c_S.

    All heads are computed at once: one product with the first layers side by side, one batched product with the second.
    """

    members: Tensor  # of every head, `[2^N − 1, modality]`

    def __init__(self, spec: Spec, latent: int):
        super().__init__(spec, latent)
        count, members = 2**self.modalities - 1, all_subsets(self.modalities)
        self.chains = "sample" if self.modalities < MOST_HEADS else "batch"
        self.encoders = spec.build_encoders()
        read, hidden = max(WIDTH // 2, 2 * latent), max(WIDTH, 2 * latent)
        self.narrow = PerModality({name: nn.Linear(encoder.width, read) for name, encoder in self.encoders.items()})
        self.register_buffer("members", members, persistent=False)
        # As nn.Linear is initialised, with the number of inputs that a head really has.
        bound = (read * members.sum(1)).rsqrt()
        self.first = nn.Parameter(_uniform(self.modalities, read, count, hidden) * bound[:, None])
        self.first_bias = nn.Parameter(_uniform(count, hidden) * bound[:, None])
        self.second = nn.Parameter(_uniform(count, hidden, 2 * latent) * hidden**-0.5)
        self.second_bias = nn.Parameter(_uniform(count, 1, 2 * latent) * hidden**-0.5)

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Compute all heads that occur on the whole batch, and select what each sample needs."""
        features = torch.cat(_encode_each(self.encoders, batch, self.narrow), dim=1)
        numbers = set_numbers(subsets)
        self.record(numbers)
        if subsets.ndim == 2:
            return _gaussian(self._heads(features, numbers), numbers[:, None] == 0)
        if self.modalities <= FEW_MODALITIES or is_traced():
            needed, place = None, numbers - 1
        else:
            needed, place = numbers.unique(return_inverse=True)
        place = place.clamp(min=0)[..., None].expand(-1, -1, 2 * self.latent)
        return _gaussian(self._heads(features, needed).gather(0, place), numbers == 0)

    def _heads(self, features: Tensor, numbers: Tensor | None) -> Tensor:
        """Apply the heads of these numbers (all if None): `[batch, modality × width]` → `[head, batch, 2 × latent]`."""
        weights: list[Tensor] = [self.members.T, self.first, self.first_bias, self.second, self.second_bias]
        if numbers is not None:
            rows = (numbers - 1).clamp(min=0)
            weights = [weight.index_select(axis, rows) for weight, axis in zip(weights, (1, 2, 0, 0, 0))]
        members, first, first_bias, second, second_bias = weights
        first = first * members[:, None, :, None]
        hidden = torch.addmm(first_bias.flatten(), features, first.flatten(0, 1).flatten(1)).relu_()
        hidden = hidden.view(features.shape[0], *first_bias.shape).transpose(0, 1)
        return torch.baddbmm(second_bias, hidden, second)


@register_subset_encoder("own")
class OwnEncoder(_TracksTraining):
    """An encoder of every modality and a head for every subset, shared by none: N·2^(N−1) encoders.

    Args:
        spec: What the model is built from.
        latent: The width of z.
        hidden: The width of every head.
    """

    chains = "batch"

    def __init__(self, spec: Spec, latent: int, hidden: int = WIDTH):
        super().__init__(spec, latent)
        names = tuple(spec.modalities)
        self.each = nn.ModuleList(
            _SubsetNetwork({name: spec.build_encoder(name) for name, there in zip(names, row) if there}, latent, hidden)
            for row in all_subsets(self.modalities).tolist()
        )

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Apply each network to the samples that need it."""
        numbers = set_numbers(subsets)
        self.record(numbers)
        # While a graph is recorded, codes cannot be read.
        unread = is_traced() or (numbers.is_cuda and torch.cuda.is_current_stream_capturing())
        if subsets.ndim == 2 and not unread:
            encoded = [self._encode(batch, number) for number in numbers.tolist()]
            return Gaussian(torch.stack([q.mean for q in encoded]), torch.stack([q.log_variance for q in encoded]))
        if unread:  # every network on every sample
            every = [self._encode(batch, number) for number in range(len(self.each) + 1)]
            place = (numbers if subsets.ndim == 3 else numbers[:, None])[..., None].expand(-1, batch.n, self.latent)
            mean, log_variance = (
                torch.stack(of_each).gather(0, place)
                for of_each in ([q.mean for q in every], [q.log_variance for q in every])
            )
            return Gaussian(mean, log_variance)
        parts: list[Gaussian] = []
        places: list[Tensor] = []
        for number in numbers.unique().tolist():
            place = (numbers == number).nonzero()
            rows, back = place[:, 1].unique(return_inverse=True)  # a sample may need a network twice
            parts.append(self._encode(batch.select(rows), number)[back])
            places.append(place[:, 0] * len(batch) + place[:, 1])
        order = torch.cat(places).argsort()
        flat = torch.cat([q.mean for q in parts])[order], torch.cat([q.log_variance for q in parts])[order]
        return Gaussian(*(values.view(len(subsets), len(batch), self.latent) for values in flat))

    def encode_set(self, batch: Batch, members: Sequence[int]) -> Gaussian:
        """Apply the network of the set."""
        return self._encode(batch, number_of_members(members))

    def _encode(self, batch: Batch, number: int) -> Gaussian:
        if number == 0:
            return Gaussian.standard(batch.n, self.latent, like=at_least_float32(next(self.parameters())))
        return self.each[number - 1](batch)


class _SubsetNetwork(nn.Module):
    """The network of one subset: encoders, their features side by side, a layer, mean and log-variance."""

    def __init__(self, encoders: dict[str, Encoder], latent: int, hidden: int):
        super().__init__()
        self.encoders = PerModality(encoders)
        width = sum(encoder.width for encoder in encoders.values())
        self.head = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))

    def forward(self, batch: Batch) -> Gaussian:
        """`[batch, latent]`."""
        return _gaussian(self.head(torch.cat(_encode_each(self.encoders, batch), dim=1)))


@register_subset_encoder("poe")
class ProductEncoder(SubsetEncoder):
    """q(z | S) ∝ Π_{m∈S} N(z; μ_m, σ_m²), with the prior as one more expert or without it (see `product`)."""

    def __init__(self, spec: Spec, latent: int, prior: bool = True):
        super().__init__(spec, latent)
        self.prior = prior
        self.encoders = spec.build_encoders()
        self.heads = PerModality(
            {name: nn.Linear(encoder.width, 2 * latent) for name, encoder in self.encoders.items()}
        )

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Compute every expert once, and a product for every subset."""
        experts = _gaussian(torch.stack(_encode_each(self.encoders, batch, self.heads))[:, None])
        members = subsets.movedim(-1, 0)  # of the experts [modality, 1, batch, latent]
        if subsets.ndim == 2:
            members = members[..., None]
        q = product(experts.mean, experts.log_variance, members, self.prior)
        return Gaussian(*(values.expand(len(subsets), batch.n, -1) for values in (q.mean, q.log_variance)))

    def encode_set(self, batch: Batch, members: Sequence[int]) -> Gaussian:
        """Compute the experts of the set, and their product."""
        if not members:
            return super().encode_set(batch, members)
        experts = _gaussian(torch.stack(_encode_some(self.encoders, batch, self.heads, members)))
        return product_of_all(experts, self.prior)


class _SharedHead(SubsetEncoder):
    """An encoder whose only head reads a sum over the members of the subset."""

    def __init__(self, spec: Spec, latent: int, hidden: int = 2 * WIDTH):
        super().__init__(spec, latent)
        self.encoders = spec.build_encoders()
        self.bring = PerModality({name: nn.Linear(encoder.width, hidden) for name, encoder in self.encoders.items()})

    def sum_members(self, batch: Batch, subsets: Tensor) -> Tensor:
        """Σ_{m∈S} V_m h_m: `[S, batch, hidden]`."""
        each = torch.stack(_encode_each(self.encoders, batch, self.bring), dim=1)
        members = subsets.to(each.dtype)
        return torch.einsum("sm,bmh->sbh" if subsets.ndim == 2 else "sbm,bmh->sbh", members, each)

    def sum_set(self, batch: Batch, members: Sequence[int]) -> Tensor:
        """Return the same for one set, with one member or more: `[batch, hidden]`."""
        each = _encode_some(self.encoders, batch, self.bring, members)
        return each[0] if len(each) == 1 else torch.stack(each).sum(0)


@register_subset_encoder("set")
class SetEncoder(_SharedHead):
    """relu(norm(Σ_{m∈S} V_m h_m + b_m)) → a layer → mean and log-variance. The biases b_m identify the members.

    After Zaheer et al. 2017, Deep Sets. Its size does not depend on the number of subsets.
    """

    def __init__(self, spec: Spec, latent: int, hidden: int = 2 * WIDTH):
        super().__init__(spec, latent, hidden)
        self.head = nn.Sequential(
            nn.LayerNorm(hidden), nn.ReLU(), dense_block(hidden, hidden), nn.Linear(hidden, 2 * latent)
        )

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Apply the head to the sum."""
        return _gaussian(self.head(self.sum_members(batch, subsets)), _empty(subsets))

    def encode_set(self, batch: Batch, members: Sequence[int]) -> Gaussian:
        """Apply the head to the sum over the set."""
        return _gaussian(self.head(self.sum_set(batch, members))) if members else super().encode_set(batch, members)


@register_subset_encoder("concat")
class ConcatEncoder(_SharedHead):
    """Features side by side with zeros for what is not in the subset, a layer, mean and log-variance.

    A layer on features side by side is a sum of one layer for each, with a single bias whatever the subset.
    """

    def __init__(self, spec: Spec, latent: int, hidden: int = 2 * WIDTH):
        super().__init__(spec, latent, hidden)
        for layer in self.bring.values():
            layer.bias = None
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(hidden, 2 * latent))

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Apply the head to the sum and the bias."""
        return _gaussian(self.head(self.sum_members(batch, subsets) + self.bias), _empty(subsets))


def _encode_each(encoders: PerModality, batch: Batch, layers: PerModality | None = None) -> list[Tensor]:
    """Return the pooled features of each modality, after a layer of its own if there are some.

    Of a modality that no sample has they are zeros, which no subset reads. To look for one would make a GPU wait.
    """
    if layers is None:
        return [encode(encoder, batch, name).pooled for name, encoder in encoders.items()]
    looks = not is_traced() and not torch.is_grad_enabled() and batch.device.type == "cpu"
    features: list[Tensor] = []
    for name, encoder in encoders.items():
        layer = layers[name]
        if looks and name not in batch.complete and not batch.present_in(name).any():
            features.append(layer.weight.new_zeros(len(batch), layer.out_features))
        else:
            features.append(layer(encode(encoder, batch, name).pooled))
    return features


def _encode_some(encoders: PerModality, batch: Batch, layers: PerModality, members: Sequence[int]) -> list[Tensor]:
    """Return the pooled features of some modalities that all samples have, after a layer of its own each."""
    every = list(zip(encoders.items(), layers.values()))
    chosen = (every[place] for place in members)
    return [layer(encode(encoder, batch, name).pooled) for (name, encoder), layer in chosen]


def _gaussian(numbers: Tensor, empty: Tensor | None = None) -> Gaussian:
    """Return `[…, 2 × latent]` as mean and log-variance; the prior where a subset is empty, `[…]`."""
    if empty is not None:
        numbers = numbers.masked_fill(empty[..., None], 0)
    mean, log_variance = at_least_float32(numbers).chunk(2, dim=-1)
    return Gaussian(mean, log_variance.clamp(*LOG_VARIANCE))


def _empty(subsets: Tensor) -> Tensor:
    """Return which subsets `[S, modality]` or `[S, batch, modality]` have no member: `[S, 1]` or `[S, batch]`."""
    empty = subsets.any(-1).logical_not()
    return empty[:, None] if subsets.ndim == 2 else empty


def _mask(members: Sequence[int], modalities: int, device: torch.device) -> Tensor:
    """The set as booleans `[modality]`."""
    return torch.tensor([place in members for place in range(modalities)], device=device)


def _uniform(*shape: int) -> Tensor:
    return torch.empty(shape).uniform_(-1, 1)
