"""The base class of objectives: a plan of reconstructions and divergences over subsets, and how it is evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError
from consilience.core.registry import Registry
from consilience.core.settings import DeclaredSettings, check_settings, settings_of
from consilience.core.tracing import is_traced
from consilience.methods.latent.diagonal_gaussian import Gaussian, bayes_product, kl
from consilience.methods.latent.subset_encoders import MOST_HEADS

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

# A generator, the global one if None, or the noise itself: standard normal numbers that broadcast.
Noise = torch.Generator | Tensor | None

_PARTS = ("mean", "log_variance")

OBJECTIVES: Registry[type[Objective]] = Registry(
    "objective", packages=["consilience.methods.latent.objectives"], group="consilience.objectives"
)


@dataclass(frozen=True)
class Plan:
    """The terms of an objective: which subsets are encoded, and the factor of each of their terms.

    A dimension `batch` may be 1 where samples do not differ.

    Attributes:
        subsets: Booleans `[S, modality]`, or `[S, batch, modality]` where samples differ.
        reconstruction: Factors of E_{q_S} log p(x_m | z), `[S, batch, modality]`; what has factor 0 is not decoded.
        prior: Factors of KL(q_S ‖ p(z)), `[S, batch]`.
        pairs: Positions `[pair, 2]` of sets S and T with a term KL(q_S ‖ q_T).
        mutual: The factors of these terms, `[pair, batch]`.
    """

    subsets: Tensor
    reconstruction: Tensor
    prior: Tensor
    pairs: Tensor | None = None
    mutual: Tensor | None = None


def evaluate(model: LatentModel, batch: Batch, plan: Plan, noise: Noise = None) -> dict[str, Tensor]:
    """Return the terms of a plan for every sample: "reconstruction", "prior" and "mutual", each `[batch]`.

    Every posterior is encoded once and drawn from once, every decoder is called once. Gradients flow through both
    sides of every divergence.
    """
    q = model.encode(batch, plan.subsets)
    terms = {
        "reconstruction": -reconstruct(model, batch, q.draw(noise), plan.reconstruction),
        "prior": (plan.prior.to(q.mean.dtype) * kl(q)).sum(0),
    }
    if plan.pairs is not None and plan.mutual is not None:
        first, second = plan.pairs.T
        terms["mutual"] = (plan.mutual.to(q.mean.dtype) * kl(q.select(first), q.select(second))).sum(0)
    return terms


def reconstruct(model: LatentModel, batch: Batch, z: Tensor, factors: Tensor) -> Tensor:
    """Σ over sets and modalities of factor × log p(x_m | z_S): z `[S, batch, latent]`, a plan's factors → `[batch]`.

    Only what has a factor is decoded, in one call per decoder. While a CUDA graph is recorded the factors cannot be
    read, and everything is decoded.
    """
    factors = factors.to(z.dtype)
    if any(weight != 1 for weight in model.weights):  # scalars one by one need no copy to the device
        factors = torch.stack([weight * each for weight, each in zip(model.weights, factors.unbind(-1))], dim=-1)
    if z.is_cuda and torch.cuda.is_current_stream_capturing():
        each = zip(model.names, factors.unbind(-1))
        terms = [torch.where(factor != 0, factor * model.log_density(name, z, batch), 0) for name, factor in each]
        return torch.cat(terms).sum(0)
    if factors.shape[1] == 1:
        return _reconstruct_alike(model, batch, z, factors[:, 0])
    return _reconstruct_selected(model, batch, z, factors)


def _reconstruct_alike(model: LatentModel, batch: Batch, z: Tensor, factors: Tensor) -> Tensor:
    """Reconstruct with factors `[S, modality]`, the same for all samples."""
    total = z.new_zeros(len(batch))
    for name, factor in zip(model.names, factors.unbind(-1)):
        sets = factor.nonzero()[:, 0]
        if len(sets):
            # Not a matrix product, which mixed precision would compute in 16 bits.
            total = total + (factor[sets, None] * model.log_density(name, z.index_select(0, sets), batch)).sum(0)
    return total


def _reconstruct_selected(model: LatentModel, batch: Batch, z: Tensor, factors: Tensor) -> Tensor:
    """Reconstruct with factors `[S, batch, modality]`: select all that is to be decoded, sorted by modality."""
    modalities, rows, sets = factors.permute(2, 1, 0).nonzero(as_tuple=True)
    selected = z.flatten(0, 1).index_select(0, sets * len(batch) + rows)
    shape = (len(model.names), len(batch))
    # A tight chain decodes every modality once for every sample, and then all is in the batch's own order.
    once = len(rows) == math.prod(shape) and bool((rows.view(shape) == torch.arange(shape[1], device=z.device)).all())
    counts = [shape[1]] * shape[0] if once else torch.bincount(modalities, minlength=shape[0]).tolist()
    parts = zip(model.names, selected.split(counts), rows.split(counts))
    densities = [model.log_density(name, part, batch, None if once else of) for name, part, of in parts if len(part)]
    if not densities:
        return z.new_zeros(shape[1])
    terms = factors[sets, rows, modalities] * torch.cat(densities)
    return terms.view(shape).sum(0) if once else z.new_zeros(shape[1]).index_add(0, rows, terms)


class Objective(DeclaredSettings):
    """A named objective. Its settings are its keyword-only arguments; a subclass defines `plan` or `terms`.

    Attributes:
        subset_encoders: The subset encoders that it is defined for.
        prior_expert: Whether the prior takes part in products of experts.
        unscaled_terms: The terms that β does not multiply.
    """

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    subset_encoders: ClassVar[tuple[str, ...]] = ("trunk", "own", "poe", "set", "concat")
    prior_expert: ClassVar[bool] = True
    unscaled_terms: ClassVar[tuple[str, ...]] = ("reconstruction",)

    def default_encoder(self, modalities: int) -> str:
        """Return the subset encoder that is used unless another is chosen."""
        if len(self.subset_encoders) == 1:
            return self.subset_encoders[0]
        return "trunk" if modalities <= MOST_HEADS else "set"

    def reason_against(self, modalities: int, annealed: bool) -> str | None:
        """Return why it does not support so many modalities or a β other than 1; None if it does."""
        return None

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """Return the terms for this batch."""
        raise NotImplementedError

    def terms(self, model: LatentModel, batch: Batch, noise: Noise = None) -> dict[str, Tensor]:
        """Return named terms `[batch]` for every sample, whose sum is minimised."""
        generator = noise if isinstance(noise, torch.Generator) else None
        return evaluate(model, batch, self.plan(model, batch, generator), noise)

    def posterior(self, model: LatentModel, batch: Batch, subset: Tensor) -> Gaussian:
        """Return q(z | S) for sets S `[batch, modality]`: `[batch, latent]`.

        A subset that did not occur in training has no encoder of its own. Its posterior is inferred from the unimodal
        ones, if these were trained.
        """
        places = None if batch.stacked else members_of_all(subset)
        if places is not None:
            trained_on = model.subset_encoder.trained_on_set
            if trained_on(places):
                return model.encode_set(batch, places)
            if all(trained_on([place]) for place in places):
                alone = [model.encode_set(batch, [place]) for place in places]
                mean, log_variance = (torch.stack([getattr(q, part) for q in alone]) for part in _PARTS)
                return bayes_product(mean, log_variance, torch.ones(mean.shape[:2], dtype=torch.bool))
        trained = model.subset_encoder.trained_on(subset)
        q = model.encode(batch, subset[None])[0]
        if not is_traced() and trained.all():
            return q
        single = torch.eye(len(model.names), dtype=torch.bool, device=batch.device)
        untrained = subset & ~model.subset_encoder.trained_on(single) & ~trained[:, None]
        if not is_traced() and untrained.any():
            row = int(untrained.any(1).nonzero()[0])
            members = [name for name, there in zip(model.names, subset[row].tolist()) if there]
            raise UnsupportedError(
                f"objective {self.name!r} has trained no encoder for {' + '.join(members)}, nor for each of them "
                "alone: choose subset_encoder='poe' or 'set', or an objective that trains all subsets (m2vae)"
            )
        each = model.encode(batch, single)
        inferred = bayes_product(each.mean, each.log_variance, subset.T)
        return Gaussian(
            torch.where(trained[:, None], q.mean, inferred.mean),
            torch.where(trained[:, None], q.log_variance, inferred.log_variance),
        )


def members_of_all(subset: Tensor) -> list[int] | None:
    """Return the places of the members of sets `[batch, modality]` that are the same for all samples, else None.

    On other devices than the CPU, which would make it wait, and while a model is traced, always None.

    >>> members_of_all(torch.tensor([[True, False, True]] * 2)), members_of_all(torch.eye(2, dtype=torch.bool))
    ([0, 2], None)
    """
    if subset.device.type != "cpu" or is_traced() or not len(subset):
        return None
    first = subset[:1]
    if len(subset) > 1 and not torch.equal(subset, first.expand_as(subset)):
        return None
    return [place for place, there in enumerate(first[0].tolist()) if there]


def register_objective(name: str, *, paper: str) -> Callable[[type[Objective]], type[Objective]]:
    """Register an objective under a name, from the file that defines it."""
    return OBJECTIVES.register(name, name=name, paper=paper)


def objective_settings(name: str) -> dict[str, Any]:
    """Return the settings of an objective and their defaults.

    >>> objective_settings("m2vae")
    {'bound': 'paper', 'subsets': 'all', 'chains': None}
    """
    return {setting.name: setting.default for setting in settings_of(OBJECTIVES.find(name)).values()}


def build_objective(
    name: str, settings: Mapping[str, Any] | None = None, modalities: int = 2, annealed: bool = False
) -> Objective:
    """Build an objective by name. annealed: whether β is, or begins, other than 1."""
    cls = OBJECTIVES.find(name)
    objective = cls(**check_settings(f"objective {name!r}", cls, settings or {}))
    if (reason := objective.reason_against(modalities, annealed)) is not None:
        raise UnsupportedError(f"objective {name!r} cannot be used here: {reason}")
    return objective


def factor_type(device: torch.device) -> torch.dtype:
    """Return the type in which factors are computed, so that ⅓ is exact in any precision of the model."""
    return torch.float32 if device.type == "mps" else torch.float64


def first_of(subsets: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return factors `[S, 1]` that select the first of some subsets, and its pairs with all others, `[S − 1, 2]`."""
    first = torch.zeros(subsets, 1, dtype=factor_type(device), device=device)
    first[:1].fill_(1)
    others = torch.arange(1, subsets, device=device)
    return first, torch.stack([torch.zeros_like(others), others], dim=1)
