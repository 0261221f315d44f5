"""Small latent models and batches in 64 bits, and the terms of any objective written out one subset at a time."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.core.targets import Task
from consilience.methods import Spec
from consilience.methods.latent.latent_model import LatentModel


def modalities_of(count: int) -> dict[str, Modality]:
    return {name: Modality(name, "vector", (2 + place % 2,)) for place, name in enumerate("abcdefgh"[:count])}


def model_of(
    count: int = 3, objective: str = "m2vae", seed: int = 0, encoder: str | None = None, **given
) -> LatentModel:
    """In evaluation mode, whose divergences are not all tiny."""
    torch.manual_seed(seed)
    modalities = modalities_of(count)
    small = {"name": "mlp", "hidden": [6], "dropout": 0.0, "normalise": False}
    spec = Spec(modalities, Task.none(), dict.fromkeys(modalities, small))
    decoders = {name: {"name": "mlp", "hidden": [5]} for name in modalities}
    model = LatentModel(spec, objective=objective, latent=2, subset_encoder=encoder, decoders=decoders, **given)
    for one in model.parameters():
        one.data *= 1.5
    return model.double().eval()


def batch_of(count: int = 3, n: int = 4, present=None, seed: int = 1) -> Batch:
    torch.manual_seed(seed)
    there = torch.ones(n, count, dtype=torch.bool) if present is None else torch.as_tensor(present, dtype=torch.bool)
    values = {name: torch.randn(len(there), *one.shape).double() for name, one in modalities_of(count).items()}
    for column, name in enumerate(values):
        values[name][~there[:, column]] = 0
    complete = frozenset(name for column, name in enumerate(values) if there[:, column].all())
    weight = torch.ones(len(there), dtype=torch.float64)
    return Batch(values, there, index=torch.arange(len(there)), weight=weight, complete=complete)


class Literal:
    """One sample's terms by torch.distributions, subset by subset; a subset is a tuple of positions."""

    def __init__(self, model: LatentModel, batch: Batch, row: int, noise: Tensor):
        self.model, self.batch, self.row, self.noise = model, batch.select(torch.tensor([row])), row, noise
        self.made: dict[tuple[int, ...], Normal] = {}
        self.observed = tuple(batch.present[row].nonzero()[:, 0].tolist())

    def q(self, subset: tuple[int, ...]) -> Normal:
        if subset not in self.made:
            self.made[subset] = self._encoded(subset)
        return self.made[subset]

    def _encoded(self, subset: tuple[int, ...]) -> Normal:
        wanted = torch.zeros(1, len(self.model.names), dtype=torch.bool)
        wanted[0, list(subset)] = True
        made = self.model.encode(self.batch, wanted)
        return Normal(made.mean[0, 0], made.variance[0, 0].sqrt())

    def log_density(self, member: int, subset: tuple[int, ...]) -> Tensor:
        """log p(x_m | z), z from q_S by the given noise."""
        q, name = self.q(subset), self.model.names[member]
        mean = self.model.decoders[name](q.loc + q.scale * self.noise)
        scale = self.model.likelihoods[name].log_scale.exp()
        return Normal(mean, scale).log_prob(self.batch[name][0]).sum()

    def kl(self, subset: tuple[int, ...], other: tuple[int, ...] | None = None) -> Tensor:
        p = Normal(torch.zeros(2).double(), 1.0) if other is None else self.q(other)
        return kl_divergence(self.q(subset), p).sum()

    def joint_bound(self, subset: tuple[int, ...]) -> Tensor:
        return sum(self.log_density(m, subset) for m in subset) - self.kl(subset)

    def mutual(self, subset: tuple[int, ...]) -> Tensor:
        """Σ_m KL(q_S ‖ q_{S∖m})."""
        return sum(self.kl(subset, tuple(one for one in subset if one != m)) for m in subset)

    def split(self, subset: tuple[int, ...], tight: bool) -> Tensor:
        """L_M of eq. 59 and 113."""
        if len(subset) == 1:
            return self.joint_bound(subset)
        return self.joint_bound(subset) - self.mutual(subset) + (self.kl(subset) if tight else 0.0)

    def recursion(self, subset: tuple[int, ...], tight: bool) -> Tensor:
        """Eq. 83 as it stands."""
        if len(subset) == 1:
            return self.joint_bound(subset)
        smaller = itertools.combinations(subset, len(subset) - 1)
        return (self.split(subset, tight) + sum(self.recursion(one, tight) for one in smaller)) / len(subset)


def gradients(model: LatentModel, value: Tensor) -> Tensor:
    """The gradient by all parameters, flat."""
    found = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    parts = [torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), found)]
    return torch.cat([one.flatten() for one in parts])
