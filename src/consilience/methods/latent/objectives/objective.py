"""What an objective is: a plan of reconstructions and divergences over subsets, and how a plan is evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError, unknown_name
from consilience.core.registry import Registry
from consilience.core.settings import DeclaredSettings, check_settings, settings_of
from consilience.methods.latent.diagonal_gaussian import Gaussian, bayes_product, kl
from consilience.methods.latent.subset_encoders import MOST_HEADS

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

# What draws: a generator, the global one if None, or the noise itself, standard normal numbers that broadcast.
Noise = torch.Generator | Tensor | None

OBJECTIVES: Registry[type[Objective]] = Registry("objective", group="consilience.objectives")


@dataclass(frozen=True)
class Plan:
    """The terms of an objective: which subsets are encoded, and how much each of their terms counts.

    subsets: booleans `[S, modality]`, or `[S, batch, modality]` where samples differ · reconstruction: factors of
    E_{q_S} log p(x_m | z), `[S, batch, modality]`, or `[S, 1, modality]` where samples do not differ; what has factor 0
    is not decoded · prior: factors of KL(q_S ‖ p(z)), `[S, batch]` or `[S, 1]` · pairs: positions `[pair, 2]` of sets
    S and T whose KL(q_S ‖ q_T) counts · mutual: its factors, `[pair, batch]` or `[pair, 1]`.
    """

    subsets: Tensor
    reconstruction: Tensor
    prior: Tensor
    pairs: Tensor | None = None
    mutual: Tensor | None = None


def evaluate(model: LatentModel, batch: Batch, plan: Plan, noise: Noise = None) -> dict[str, Tensor]:
    """The terms of a plan for every sample, to be minimised: "reconstruction", "prior" and "mutual", each `[batch]`.

    Every posterior is encoded once and drawn from once, every decoder called once; gradients flow through both sides
    of every divergence.
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

    Only what has a factor is decoded, all of it in one call per decoder. A step that is being recorded cannot ask what
    that is, and decodes everything.
    """
    factors = factors.to(z.dtype)
    if any(weight != 1 for weight in model.weights):  # one by one: no step waits for numbers to reach a device
        factors = torch.stack([weight * one for weight, one in zip(model.weights, factors.unbind(-1))], dim=-1)
    if z.is_cuda and torch.cuda.is_current_stream_capturing():
        each = zip(model.names, factors.unbind(-1))
        gained = [torch.where(one != 0, one * model.log_density(name, z, batch), 0) for name, one in each]
        return torch.cat(gained).sum(0)
    if factors.shape[1] == 1:
        return _reconstruct_alike(model, batch, z, factors[:, 0])
    return _reconstruct_apart(model, batch, z, factors)


def _reconstruct_alike(model: LatentModel, batch: Batch, z: Tensor, factors: Tensor) -> Tensor:
    """Factors `[S, modality]` that serve all samples."""
    total = z.new_zeros(len(batch))
    for name, factor in zip(model.names, factors.unbind(-1)):
        sets = factor.nonzero()[:, 0]
        if len(sets):
            # No matrix product, which mixed precision would make in 16 bits.
            total = total + (factor[sets, None] * model.log_density(name, z.index_select(0, sets), batch)).sum(0)
    return total


def _reconstruct_apart(model: LatentModel, batch: Batch, z: Tensor, factors: Tensor) -> Tensor:
    """Factors `[S, batch, modality]`: all that is to be decoded is looked up at once, sorted by modality."""
    modalities, rows, sets = factors.permute(2, 1, 0).nonzero(as_tuple=True)
    chosen = z.flatten(0, 1).index_select(0, sets * len(batch) + rows)
    shape = (len(model.names), len(batch))
    # A tight chain decodes every modality once for every sample, and then all is in the batch's own order.
    once = len(rows) == math.prod(shape) and bool((rows.view(shape) == torch.arange(shape[1], device=z.device)).all())
    counts = [shape[1]] * shape[0] if once else torch.bincount(modalities, minlength=shape[0]).tolist()
    parts = zip(model.names, chosen.split(counts), rows.split(counts))
    densities = [model.log_density(name, some, batch, None if once else who) for name, some, who in parts if len(some)]
    if not densities:
        return z.new_zeros(shape[1])
    gained = factors[sets, rows, modalities] * torch.cat(densities)
    return gained.view(shape).sum(0) if once else z.new_zeros(shape[1]).index_add(0, rows, gained)


class Objective(DeclaredSettings):
    """A named objective; its settings are its keyword-only arguments.

    subset_encoders: those it is defined for · prior_expert: whether the prior takes part in products of experts ·
    whole_terms: the terms that β does not multiply.
    """

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    subset_encoders: ClassVar[tuple[str, ...]] = ("trunk", "own", "poe", "set", "concat")
    prior_expert: ClassVar[bool] = True
    whole_terms: ClassVar[tuple[str, ...]] = ("reconstruction",)

    def default_encoder(self, modalities: int) -> str:
        """The subset encoder unless another is chosen."""
        return "trunk" if modalities <= MOST_HEADS else "set"

    def reason_against(self, modalities: int, annealed: bool) -> str | None:
        """Why it cannot serve so many modalities, or a β other than 1; None if it can."""
        return None

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """The terms for this batch."""
        raise NotImplementedError

    def terms(self, model: LatentModel, batch: Batch, noise: Noise = None) -> dict[str, Tensor]:
        """Named terms `[batch]` for every sample, whose sum is minimised."""
        generator = noise if isinstance(noise, torch.Generator) else None
        return evaluate(model, batch, self.plan(model, batch, generator), noise)

    def posterior(self, model: LatentModel, batch: Batch, subset: Tensor) -> Gaussian:
        """q(z | S), S being `[batch, modality]`: `[batch, latent]`.

        A subset that training never met has no encoder of its own; it is inferred from the unimodal posteriors where
        those were trained.
        """
        known = model.subset_encoder.trained_on(subset)
        q = model.encode(batch, subset[None])[0]
        if known.all():
            return q
        alone = torch.eye(len(model.names), dtype=torch.bool, device=batch.device)
        strangers = subset & ~model.subset_encoder.trained_on(alone)
        if (strangers & ~known[:, None]).any():
            row = int((strangers.any(1) & ~known).nonzero()[0])
            wanted = [name for name, there in zip(model.names, subset[row].tolist()) if there]
            raise UnsupportedError(
                f"objective {self.name!r} has trained no encoder for {' + '.join(wanted)}, nor for each of them alone: "
                "choose subset_encoder='poe' or 'set', or an objective that trains all subsets (m2vae)"
            )
        each = model.encode(batch, alone)
        inferred = bayes_product(each.mean, each.log_variance, subset.T)
        return Gaussian(
            torch.where(known[:, None], q.mean, inferred.mean),
            torch.where(known[:, None], q.log_variance, inferred.log_variance),
        )


def register_objective(name: str, *, paper: str) -> Callable[[type[Objective]], type[Objective]]:
    """Enter an objective under a name, from the file that defines it."""
    return OBJECTIVES.register(name, name=name, paper=paper)


def objective_names() -> list[str]:
    """The names that can be chosen.

    >>> objective_names()
    ['jmvae', 'joint', 'm2vae', 'mmvae', 'mopoe', 'mvae', 'mvtcae', 'vae']
    """
    return OBJECTIVES.names()


def objective_settings(name: str) -> dict[str, Any]:
    """The settings of an objective and their defaults.

    >>> objective_settings("m2vae")
    {'bound': 'paper', 'subsets': 'all', 'chains': None}
    """
    return {setting.name: setting.default for setting in settings_of(OBJECTIVES.find(name)).values()}


def build_objective(
    name: str, settings: Mapping[str, Any] | None = None, modalities: int = 2, annealed: bool = False
) -> Objective:
    """An objective by name. annealed: whether β is not simply 1."""
    cls = OBJECTIVES.find(name)
    built = cls(**check_settings(f"objective {name!r}", cls, settings or {}))
    if (reason := built.reason_against(modalities, annealed)) is not None:
        raise UnsupportedError(f"objective {name!r} cannot be used here: {reason}")
    return built


def factor_type(device: torch.device) -> torch.dtype:
    """The type in which factors are computed: ⅓ is to be ⅓ in any precision of the model."""
    return torch.float32 if device.type == "mps" else torch.float64


def choice(setting: str, value: str, allowed: tuple[str, ...]) -> str:
    """Check a setting that is one of several words."""
    if value not in allowed:
        raise unknown_name(setting, value, allowed)
    return value
