"""`qmf`, quality-aware multimodal fusion: each expert weighs as much, sample by sample, as it is sure of itself.

An expert's weight falls linearly with its uncertainty, w_m = α_m u_m + β_m (eq. 9), by default the energy of its
logits, and the weighted logits add up (eq. 11). A ranking loss (eq. 16) asks that of two samples the one that an expert
has found harder over the epochs so far weighs less. Theorem 2 promises a smaller bound on the error than that of static
weights if weights and the experts' own losses correlate by r ≤ 0. That is a thing to measure: features that grow with
the noise turn it around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import Range, number, one_of, whole_number, yes_or_no
from consilience.methods import ExpertMethod, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.opinions.confidence_ranking import RANKINGS, ranking_loss
from consilience.methods.opinions.late import equal_weights
from consilience.methods.opinions.uncertainty import UNCERTAINTIES
from consilience.training import Trainer

Numbers = float | Sequence[float] | Mapping[str, float]

# What the paper says, and what the published code does.
_VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"ranking": "paper", "history": "window", "rescale": False, "strength": 0.1},
    "reference": {"ranking": "reference", "history": "cumulative", "rescale": True, "strength": 1.0},
}
# α and β of eq. 9, for which the paper has no numbers. Those of the energy are the published code's. The others turn
# an uncertainty in [0, 1] into the weight 1 − u: below 0, an expert would vote against itself.
_LINES = {"energy": (-0.1, 0.0), "msp": (-1.0, 1.0), "entropy": (-1.0, 1.0), "evidence": (-1.0, 1.0)}
# The share of a new batch in the running mean of uncertainties, as in batch norm.
_MOMENTUM = 0.1


@register(
    "qmf",
    paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data",
    equation="z = Σ_m w_m z_m, w_m = α_m u_m + β_m",
)
class Qmf(ExpertMethod):
    """Experts weighted by how sure they are of a sample, and taught to be unsure of what they have found hard.

    variant: "reference" (the published code) or "paper". It decides ranking, strength, history and rescale; any of them
    can be given instead.

    uncertainty: "energy", "msp" (1 − the largest probability), "entropy" or "evidence" (of a Dirichlet) ·
    temperature, alpha, beta: of eq. 13 and 9, a number, or one for each modality · match: E[w] of each modality on the
    training set, "equal" or numbers, reached by moving β (lemma 1) · normalise: weights ≥ 0 that sum to one over what
    is present · dynamic: False weighs all alike in the fusion, as `late` does, and leaves the rest as it is (table 2) ·
    detach: the loss of the fused output does not train the weights, as in the published code for text and images.

    ranking: "reference", "paper", "margin" or "none" · strength: λ of eq. 18 · history: κ is the "cumulative" loss, or
    the mean over a "window" (eq. 14) · history_start, history_length: T_s and T, in epochs; all if None · rescale: κ
    to [0, 1] over the training set · expert_loss: weight of the experts' own losses.
    """

    tasks = ("classification",)
    mean_uncertainty: Tensor
    batches: Tensor

    def __init__(
        self,
        spec: Spec,
        *,
        variant: Literal["reference", "paper"] = "reference",
        uncertainty: Literal["energy", "msp", "entropy", "evidence"] = "energy",
        temperature: Numbers = 1.0,
        alpha: Numbers | None = None,
        beta: Numbers | None = None,
        match: Literal["equal"] | Numbers | None = None,
        normalise: bool = False,
        dynamic: bool = True,
        detach: bool = False,
        ranking: Literal["reference", "paper", "margin", "none"] | None = None,
        strength: float | None = None,
        history: Literal["cumulative", "window"] | None = None,
        history_start: int = 1,
        history_length: int | None = None,
        rescale: bool | None = None,
        expert_loss: float = 1.0,
    ):
        super().__init__(spec, expert_loss=expert_loss)
        preset = _VARIANTS[one_of("variant", variant, _VARIANTS)]
        self.uncertainty = one_of("uncertainty", uncertainty, UNCERTAINTIES)
        self.ranking = one_of("ranking", preset["ranking"] if ranking is None else ranking, (*RANKINGS, "none"))
        self.history = one_of("history", preset["history"] if history is None else history, ("cumulative", "window"))
        self.history_start = whole_number("history_start", history_start)
        self.history_length = None if history_length is None else whole_number("history_length", history_length)
        self.rescale = yes_or_no("rescale", preset["rescale"] if rescale is None else rescale)
        self.normalise = yes_or_no("normalise", normalise)
        self.dynamic = yes_or_no("dynamic", dynamic)
        self.detach = yes_or_no("detach", detach)
        self.strength = number("strength", preset["strength"] if strength is None else strength, "≥ 0")
        self.keeps_history = self.ranking != "none" and self.strength > 0
        self.matched = match is not None
        if self.matched and beta is not None:
            raise InputError(f"match={match!r} decides beta: leave out beta={beta!r}, or match")
        if self.matched and self.normalise:
            raise InputError(
                f"normalise=True would change E[w] from what match={match!r} makes it: leave out one of them"
            )
        slope, offset = _LINES[self.uncertainty]
        static: Numbers | None
        if isinstance(match, str):
            one_of("match", match, ("equal",))
            static = 1 / len(self.names)
        else:
            static = match
        self._numbers = {
            "temperature": each_modality("temperature", temperature, self.names, "> 0"),
            "alpha": each_modality("alpha", slope if alpha is None else alpha, self.names, "< 0"),
            "beta": each_modality("beta", offset if beta is None else beta, self.names),
            "static": each_modality("match", 0.0 if static is None else static, self.names),
        }
        self.register_buffer("mean_uncertainty", torch.zeros(len(self.names)), persistent=self.matched)
        self.register_buffer("batches", torch.zeros(()), persistent=self.matched)

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Σ_m w_m z_m over what is present (eq. 11); where nothing is, equal odds."""
        wide = _widened(opinions)
        if not self.dynamic:
            weights = equal_weights(batch.present, wide.dtype)
        else:
            uncertainty = self._uncertainty(wide)
            if self.matched and self.training:
                self._follow(uncertainty.detach(), batch)
            weights = self._line(uncertainty)
            weights = weights if batch.whole else weights.masked_fill(~batch.present, 0)
            if self.normalise:
                weights = share_out(weights, batch.present)
        used = weights.detach() if self.detach else weights
        return (used[:, :, None] * wide).sum(dim=1), weights

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Eq. 18: the loss of the fused output, of every expert, and of weights in the wrong order.

        The order is asked of the weights of eq. 9, before they are normalised or replaced by equal ones.
        """
        losses = super().objective(prediction, batch, step)
        if self.keeps_history and step.history is not None:
            assert prediction.opinions is not None
            assert prediction.weights is not None
            as_used = self.dynamic and not self.normalise
            weights = prediction.weights if as_used else self._line(self._uncertainty(_widened(prediction.opinions)))
            hardness = step.history.past(
                batch.index, cumulative=self.history == "cumulative", normalised=self.rescale
            ).to(weights.dtype)
            known = batch.present & step.history.seen(batch.index)
            losses["ranking"] = self.strength * ranking_loss(self.ranking, weights, hardness, known, batch.weight)
        return losses

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """One run of the loop; then, if E[w] is to match, the mean uncertainty of the trained experts is taken."""
        trainer.run(self, train, validation)
        if self.matched and not trainer.interrupted:
            opinions = trainer.predict(self, train).opinions
            assert opinions is not None
            present = np.stack([train.present_in(name) for name in self.names], axis=1)
            counted = torch.from_numpy(present * (np.ones(1) if train.weight is None else train.weight)[:, None])
            self.mean_uncertainty.copy_(weighted_mean(self._uncertainty(opinions), counted, dim=0))

    def extra_repr(self) -> str:
        """The numbers of eq. 9 and 13, by which a checkpoint knows what it was made with."""
        return ", ".join(f"{name}={values}" for name, values in self._numbers.items())

    def _uncertainty(self, opinions: Tensor) -> Tensor:
        return UNCERTAINTIES[self.uncertainty](opinions, self._number("temperature", opinions))

    def _line(self, uncertainty: Tensor) -> Tensor:
        """Eq. 9: `[batch, modality]`, whoever is present."""
        slope, offset = self._number("alpha", uncertainty), self._number("beta", uncertainty)
        if self.matched:
            offset = matching_offset(self._number("static", uncertainty), slope, self.mean_uncertainty)
        return slope * uncertainty + offset

    def _number(self, name: str, like: Tensor) -> float | Tensor:
        """A setting as one number, or as `[modality]`. No buffer: a lower precision would round it for good."""
        values = self._numbers[name]
        return values[0] if len(set(values)) == 1 else like.new_tensor(values)

    def _follow(self, uncertainty: Tensor, batch: Batch) -> None:
        """Keep a running mean of the uncertainty of those present, one number a modality."""
        counted = batch.present * batch.weight[:, None]
        share = torch.clamp(1 / (self.batches + 1), min=_MOMENTUM) * (counted.sum(dim=0) > 0)
        self.mean_uncertainty.lerp_(weighted_mean(uncertainty, counted, dim=0).to(self.mean_uncertainty.dtype), share)
        self.batches += 1


def matching_offset(static: float | Tensor, alpha: float | Tensor, mean_uncertainty: Tensor) -> Tensor:
    """Lemma 1: the β with which E[α u + β] is the static weight, whatever the sign it comes out with.

    >>> matching_offset(0.5, -0.125, torch.tensor([-7.0, 2.0])).tolist()
    [-0.375, 0.75]
    """
    return static - alpha * mean_uncertainty


def share_out(weights: Tensor, present: Tensor) -> Tensor:
    """Weights ≥ 0 that sum to one over what is present, as Jensen's inequality in eq. 20 takes for granted.

    weights, present: `[batch, modality]`. Negative weights become 0; where none is positive, all present weigh alike.

    >>> share_out(torch.tensor([[3.0, 1.0], [-1.0, -2.0]]), torch.tensor([[True, True], [True, False]])).tolist()
    [[0.75, 0.25], [1.0, 0.0]]
    """
    positive = weights.clamp(min=0) * present
    total = positive.sum(dim=1, keepdim=True)
    some = total > 0
    return torch.where(some, positive / torch.where(some, total, 1), equal_weights(present, weights.dtype))


def each_modality(setting: str, value: Numbers, names: tuple[str, ...], allowed: Range = "") -> list[float]:
    """A setting as one number for each modality: from one for all, a sequence in their order, or a mapping by name.

    >>> each_modality("beta", {"audio": 1, "image": 2}, ("image", "audio"))
    [2.0, 1.0]
    """
    if isinstance(value, Mapping):
        for name in value:
            if name not in names:
                raise unknown_name("modality", name, names, f"It was given in {setting}")
        if absent := [name for name in names if name not in value]:
            raise InputError(f"{setting} must name every modality, and leaves out {', '.join(absent)}")
        given: list[Any] = [value[name] for name in names]
    elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and np.ndim(value):
        given = list(value)
        if len(given) != len(names):
            raise InputError(f"{setting} must be one number, or one for each of {', '.join(names)}, got {value!r}")
    else:
        given = [value] * len(names)
    return [number(setting, one, allowed) for one in given]


def _widened(opinions: Tensor) -> Tensor:
    """In at least 32 bits."""
    return opinions.to(torch.promote_types(opinions.dtype, torch.float32))
