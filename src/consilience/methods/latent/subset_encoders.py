"""q(z | S) for every subset S of the modalities: four ways to have 2^N − 1 encoders, and one that has a single one.

own     an encoder for every subset, none shared (Korthals 2019): 2^N − 1 networks
trunk   every modality encoded once, a small head of its own for every subset
poe     an expert for every modality, the product of those in the subset
set     every modality encoded once, the sum over the subset read by one head: for many modalities
concat  all modalities side by side, what is not in the subset as zeros: one head, nothing learned about subsets
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError
from consilience.core.registry import Registry
from consilience.core.settings import DeclaredSettings
from consilience.encoders.encoder import Encoder
from consilience.encoders.mlp import dense_block
from consilience.methods import PerModality, Spec, encode
from consilience.methods.latent.diagonal_gaussian import Gaussian, product, widened
from consilience.methods.latent.subsets import all_subsets, codes

if TYPE_CHECKING:
    from consilience.methods.latent.objectives import Objective

# Width of a head's hidden layer. Of each modality it reads half as many numbers, or enough for mean and variance.
WIDTH = 64
# The logarithm of a variance is kept in this range: beyond it a divergence of two of them overflows.
LOG_VARIANCE = (-12.0, 6.0)
# Up to this many modalities, all heads are computed where samples differ in the subsets they need.
FEW = 6
# From this many modalities on, a head for every subset is too many.
MOST_HEADS = 7

SUBSET_ENCODERS: Registry[type[SubsetEncoder]] = Registry("subset encoder")


class SubsetEncoder(DeclaredSettings, nn.Module):
    """q(z | S). chains: whether the nested sets of a chain are best drawn for every "sample", or once a "batch"."""

    name: ClassVar[str]
    chains: str = "sample"

    def __init__(self, spec: Spec, latent: int):
        super().__init__()
        self.latent = latent
        self.modalities = len(spec.modalities)

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """subsets: `[S, modality]`, the same for all samples, or `[S, batch, modality]` → `[S, batch, latent]`.

        The empty set gives the prior.
        """
        raise NotImplementedError

    def trained_on(self, subsets: Tensor) -> Tensor:
        """Whether training has met each subset, or need not have: booleans of the shape of `codes(subsets)`."""
        return torch.ones(subsets.shape[:-1], dtype=torch.bool, device=subsets.device)


def register_subset_encoder(name: str) -> Callable[[type[SubsetEncoder]], type[SubsetEncoder]]:
    """Enter a subset encoder under a name."""
    return SUBSET_ENCODERS.register(name, name=name)


def build_subset_encoder(spec: Spec, latent: int, objective: Objective, choice: str | None = None) -> SubsetEncoder:
    """The subset encoder of this name, or the one that suits the objective."""
    if choice is not None:
        SUBSET_ENCODERS.find(choice)
    allowed = objective.subset_encoders
    if choice is not None and choice not in allowed:
        raise UnsupportedError(
            f"objective {objective.name!r} is defined for the subset encoder {' or '.join(allowed)}, not {choice!r}"
        )
    chosen = choice or objective.default_encoder(len(spec.modalities))
    if chosen == "poe":
        return ProductEncoder(spec, latent, prior=objective.prior_expert)
    return SUBSET_ENCODERS[chosen](spec, latent)


class _Remembering(SubsetEncoder):
    """Has weights of its own for every subset, and so remembers which of them were ever trained."""

    met: Tensor  # `[2^N]` by code

    def __init__(self, spec: Spec, latent: int):
        super().__init__(spec, latent)
        met = torch.zeros(2**self.modalities, dtype=torch.bool)
        met[0] = True  # the prior needs no training
        self.register_buffer("met", met)

    def remember(self, numbers: Tensor) -> None:
        """Note the subsets of these codes, in training."""
        if self.training:
            self.met.index_fill_(0, numbers.flatten(), True)

    def trained_on(self, subsets: Tensor) -> Tensor:
        """Whether training has met each subset."""
        return self.met[codes(subsets)]


@register_subset_encoder("trunk")
class TrunkEncoder(_Remembering):
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
        self.narrow = PerModality({name: nn.Linear(one.width, read) for name, one in self.encoders.items()})
        self.register_buffer("members", members, persistent=False)
        # As nn.Linear begins, by the number of inputs that a head really has.
        reach = (read * members.sum(1)).rsqrt()
        self.first = nn.Parameter(_uniform(self.modalities, read, count, hidden) * reach[:, None])
        self.first_bias = nn.Parameter(_uniform(count, hidden) * reach[:, None])
        self.second = nn.Parameter(_uniform(count, hidden, 2 * latent) * hidden**-0.5)
        self.second_bias = nn.Parameter(_uniform(count, 1, 2 * latent) * hidden**-0.5)

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """All heads that occur, each on the whole batch, and of those what each sample needs."""
        narrow = [self.narrow[name](encode(one, batch, name).pooled) for name, one in self.encoders.items()]
        features = torch.cat(narrow, dim=1)
        numbers = codes(subsets)
        self.remember(numbers)
        if subsets.ndim == 2:
            return _gaussian(self._heads(features, numbers), numbers[:, None] == 0)
        if self.modalities <= FEW:  # all heads cost less than picking some
            needed, place = None, numbers - 1
        else:
            needed, place = numbers.unique(return_inverse=True)
        place = place.clamp(min=0)[..., None].expand(-1, -1, 2 * self.latent)
        return _gaussian(self._heads(features, needed).gather(0, place), numbers == 0)

    def _heads(self, features: Tensor, numbers: Tensor | None) -> Tensor:
        """The heads of these codes (all if None): `[batch, modality × width]` → `[head, batch, 2 × latent]`."""
        weights: list[Tensor] = [self.members.T, self.first, self.first_bias, self.second, self.second_bias]
        if numbers is not None:
            rows = (numbers - 1).clamp(min=0)
            weights = [one.index_select(axis, rows) for one, axis in zip(weights, (1, 2, 0, 0, 0))]
        members, first, first_bias, second, second_bias = weights
        first = first * members[:, None, :, None]
        hidden = torch.addmm(first_bias.flatten(), features, first.flatten(0, 1).flatten(1)).relu_()
        hidden = hidden.view(len(features), *first_bias.shape).transpose(0, 1)
        return torch.baddbmm(second_bias, hidden, second)


@register_subset_encoder("own")
class OwnEncoder(_Remembering):
    """An encoder of every modality and a head for every subset, shared by none: N·2^(N−1) encoders.

    hidden: the width of every head.
    """

    chains = "batch"

    def __init__(self, spec: Spec, latent: int, hidden: int = WIDTH):
        super().__init__(spec, latent)
        names = tuple(spec.modalities)
        self.each = nn.ModuleList(
            _Own({name: spec.build_encoder(name) for name, there in zip(names, row) if there}, latent, hidden)
            for row in all_subsets(self.modalities).tolist()
        )

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Each network on the samples that need it."""
        numbers = codes(subsets)
        self.remember(numbers)
        if subsets.ndim == 2:
            made = [self._one(batch, number) for number in numbers.tolist()]
            return Gaussian(torch.stack([one.mean for one in made]), torch.stack([one.log_variance for one in made]))
        parts: list[Gaussian] = []
        places: list[Tensor] = []
        for number in numbers.unique().tolist():
            place = (numbers == number).nonzero()
            rows = place[:, 1]
            who, back = rows.unique(return_inverse=True)  # a sample may need one network twice
            parts.append(self._one(batch.select(who), number)[back])
            places.append(place[:, 0] * len(batch) + rows)
        order = torch.cat(places).argsort()
        flat = (torch.cat([one.mean for one in parts])[order], torch.cat([one.log_variance for one in parts])[order])
        return Gaussian(*(one.view(len(subsets), len(batch), self.latent) for one in flat))

    def _one(self, batch: Batch, number: int) -> Gaussian:
        if number == 0:
            return Gaussian.standard(len(batch), self.latent, like=widened(next(self.parameters())))
        return self.each[number - 1](batch)


class _Own(nn.Module):
    """The network of one subset: encoders, their features side by side, a layer, mean and log-variance."""

    def __init__(self, encoders: dict[str, Encoder], latent: int, hidden: int):
        super().__init__()
        self.encoders = PerModality(encoders)
        width = sum(one.width for one in encoders.values())
        self.head = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))

    def forward(self, batch: Batch) -> Gaussian:
        """`[batch, latent]`."""
        features = [encode(one, batch, name).pooled for name, one in self.encoders.items()]
        return _gaussian(self.head(torch.cat(features, dim=1)))


@register_subset_encoder("poe")
class ProductEncoder(SubsetEncoder):
    """q(z | S) ∝ Π_{m∈S} N(z; μ_m, σ_m²), with the prior as one more expert or without it (`latent.product`)."""

    def __init__(self, spec: Spec, latent: int, prior: bool = True):
        super().__init__(spec, latent)
        self.prior = prior
        self.encoders = spec.build_encoders()
        self.heads = PerModality({name: nn.Linear(one.width, 2 * latent) for name, one in self.encoders.items()})

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """Experts once, a product for every subset."""
        each = [self.heads[name](encode(one, batch, name).pooled) for name, one in self.encoders.items()]
        experts = _gaussian(torch.stack(each)[:, None])  # [modality, 1, batch, latent]
        taking_part = subsets.movedim(-1, 0)
        if subsets.ndim == 2:
            taking_part = taking_part[..., None]
        made = product(experts.mean, experts.log_variance, taking_part, self.prior)
        return Gaussian(*(one.expand(len(subsets), len(batch), -1) for one in (made.mean, made.log_variance)))


class _Shared(SubsetEncoder):
    """One head reads the sum over the subset of what each modality brings in, `[…, hidden]`."""

    def __init__(self, spec: Spec, latent: int, hidden: int = 2 * WIDTH):
        super().__init__(spec, latent)
        self.encoders = spec.build_encoders()
        self.bring = PerModality({name: nn.Linear(one.width, hidden) for name, one in self.encoders.items()})

    def joined(self, batch: Batch, subsets: Tensor) -> Tensor:
        """Σ_{m∈S} of what modality m brings in: `[S, batch, hidden]`."""
        each = torch.stack(
            [self.bring[name](encode(one, batch, name).pooled) for name, one in self.encoders.items()], dim=1
        )
        there = subsets.to(each.dtype)
        return torch.einsum("sm,bmh->sbh" if subsets.ndim == 2 else "sbm,bmh->sbh", there, each)


@register_subset_encoder("set")
class SetEncoder(_Shared):
    """relu(norm(Σ_{m∈S} V_m h_m + b_m)) → a layer → mean and log-variance: b_m tells the head who is there.

    After Zaheer et al. 2017, Deep Sets. Its size does not depend on the number of subsets.
    """

    def __init__(self, spec: Spec, latent: int, hidden: int = 2 * WIDTH):
        super().__init__(spec, latent, hidden)
        self.head = nn.Sequential(
            nn.LayerNorm(hidden), nn.ReLU(), dense_block(hidden, hidden), nn.Linear(hidden, 2 * latent)
        )

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """One head for all."""
        return _gaussian(self.head(self.joined(batch, subsets)), _empty(subsets))


@register_subset_encoder("concat")
class ConcatEncoder(_Shared):
    """Features side by side with zeros for what is not in the subset, a layer, mean and log-variance.

    A layer on features side by side is a sum of one layer for each, with one bias: b_m is taken whoever is there.
    """

    def __init__(self, spec: Spec, latent: int, hidden: int = 2 * WIDTH):
        super().__init__(spec, latent, hidden)
        for one in self.bring.values():
            one.bias = None
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(hidden, 2 * latent))

    def forward(self, batch: Batch, subsets: Tensor) -> Gaussian:
        """One head for all."""
        return _gaussian(self.head(self.joined(batch, subsets) + self.bias), _empty(subsets))


def _gaussian(numbers: Tensor, empty: Tensor | None = None) -> Gaussian:
    """`[…, 2 × latent]` as mean and log-variance; the prior where a subset is empty, `[…]`."""
    if empty is not None:
        numbers = numbers.masked_fill(empty[..., None], 0)
    mean, log_variance = widened(numbers).chunk(2, dim=-1)
    return Gaussian(mean, log_variance.clamp(*LOG_VARIANCE))


def _empty(subsets: Tensor) -> Tensor:
    """Which subsets `[S, modality]` or `[S, batch, modality]` have no member: `[S, 1]` or `[S, batch]`."""
    empty = subsets.any(-1).logical_not()
    return empty[:, None] if subsets.ndim == 2 else empty


def _uniform(*shape: int) -> Tensor:
    return torch.empty(shape).uniform_(-1, 1)
