"""`qmf`: quality-aware multimodal fusion. Each expert counts, sample by sample, as much as it is certain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeFloat, PositiveFloat, PositiveInt, check_value
from consilience.data.folds import most_folds
from consilience.methods import ExpertMethod, Prediction, Spec, Step, equal_weights, register, weighted_mean
from consilience.methods.opinions.bayes import Folds
from consilience.methods.opinions.confidence_ranking import active_pairs, mean_over_pairs, pair_losses
from consilience.methods.opinions.uncertainty import UNCERTAINTIES
from consilience.training import Log, Trainer

NegativeFloat = Annotated[float, Interval(high=0, below=True)]
# One number for all modalities, one for each in their order, or a mapping by name.
Numbers = float | Sequence[float] | Mapping[str, float]

# The settings of the paper and of the published code.
_VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"ranking": "paper", "history": "window", "rescale": False, "strength": 0.1},
    "reference": {"ranking": "reference", "history": "cumulative", "rescale": True, "strength": 1.0},
}
# Default α and β of eq. 9; the paper gives none. Those of the energy are the published code's. The others turn an
# uncertainty in [0, 1] into the weight 1 − u: a weight below 0 would turn an expert's opinion around.
_SLOPES_OFFSETS = {"energy": (-0.1, 0.0), "msp": (-1.0, 1.0), "entropy": (-1.0, 1.0), "evidence": (-1.0, 1.0)}
# The largest value of each bounded uncertainty, as a function of the number of classes; the energy has none.
_LARGEST: dict[str, Callable[[int], float]] = {
    "msp": lambda classes: 1 - 1 / classes,
    "entropy": lambda classes: 1.0,
    "evidence": lambda classes: 1.0,
}
# The share of a new batch in the running mean of uncertainties, as in batch norm.
_MOMENTUM = 0.1


@register(
    "qmf",
    paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data",
    equation="z = Σ_m w_m z_m, w_m = α_m u_m + β_m",
)
class Qmf(ExpertMethod):
    r"""Experts weighted by how certain they are of a sample, and trained to be less certain of samples they find hard.

    An expert's weight falls linearly with the uncertainty u of its logits (eq. 9), by default their energy, and the
    weighted logits add up (eq. 11). A ranking loss on neighbours (i, j) in the shuffled batch asks that the sample with
    the higher loss κ over past epochs gets the lower weight.

        u_m = −T_m ln Σ_k exp(z_mk / T_m)         w_m = α_m u_m + β_m         z = Σ_{m∈S} w_m z_m
        L   = ℓ(z, y) + expert_loss · Σ_m ℓ(z_m, y) + strength · Σ_m mean over pairs of R(w_mi − w_mj, κ_mi − κ_mj)

    | `ranking` | R(Δw, Δκ), s = sign Δκ |
    |---|---|
    | "reference" | max(0, s·Δw − \|Δκ\|): a wrong order costs nothing up to \|Δκ\| |
    | "paper" | max(0, sign(Δw)·Δκ + \|Δw\|), eq. 16 |
    | "margin" | max(0, s·Δw + \|Δκ\|): the only form that drives weights apart |
    | "none" | 0 |

    `variant="reference"` follows the published code: its ranking with strength 1, κ the cumulative loss, rescaled to
    [0, 1] over the training set. `variant="paper"` follows eq. 14–18: eq. 16 with strength 0.1 and κ the mean loss. In
    both, κ is of past epochs, so that the order of batches and the number of processes do not matter, and a pair counts
    once both samples have been seen: the first epoch has no ranking loss. The published code adds every batch to κ at
    once, and counts unseen samples as 0.

    Only pairs whose R is above 0 train the weights. The training log has their share as `active_pairs`, epoch by epoch:
    with R of the published code it is small, so that the ranking loss changes little.

    κ is a training loss, which falls for every sample that the experts have learned by heart, while theorem 2 speaks of
    the loss on samples they have not seen. `supervision="held-out"` ranks by that: experts are cross-fitted first, and
    κ is the loss of each training sample in the fold that did not learn from it. Use it with `ranking="margin"`: in the
    form of the published code too few pairs train the weights for κ to matter. It costs up to folds + 2 trainings. On
    sets with noise in training it makes r a little more negative; with a large strength it may not.

    Theorem 2 promises a smaller bound on the error than that of static weights if weights fall where an expert's own
    loss rises (correlation r ≤ 0). With encoders whose features grow with the noise, energy does the opposite and the
    noisiest modality decides; fitting then raises a `TrustWarning` with the correlation. Encoders with a norm layer,
    such as `mlp`, keep the promise. The rows of the paper's ablation are `dynamic=False` and `ranking="none"`.

    Args:
        variant: "reference" or "paper": the defaults of ranking, strength, history and rescale.
        uncertainty: "energy", "msp" (1 − the largest probability), "entropy" (over its maximum) or "evidence"
            (K / Σ_k (1 + softplus(z_k))).
        temperature: T of eq. 13, one number or one for each modality.
        alpha: α of eq. 9, < 0, one number or one for each modality. None: −0.1 for the energy, −1 for the others.
        beta: β of eq. 9, one number or one for each modality. None: 0 for the energy, 1 for the others.
        match: The mean weight E[w] of each modality on the training set, reached by moving β (lemma 1): "equal"
            (1/M), one number or one for each modality. With a bounded uncertainty, any but the energy, α is moved
            towards 0 where a weight could fall below 0 otherwise. None: β is as given.
        normalise: Whether weights are made ≥ 0 and sum to one over the present modalities.
        dynamic: False uses equal weights in the fusion, as `late` does, and changes nothing else (table 2).
        detach: Whether the loss of the fused output does not train the weights, as in the published code for text
            and images.
        ranking: R above. None: as the variant.
        strength: Weight λ of the ranking loss (eq. 18). None: as the variant.
        supervision: Where κ comes from: "history", the losses of past epochs, or "held-out", losses of cross-fitted
            experts on samples they did not learn from.
        folds: Folds of the cross-fitting, with supervision="held-out".
        history: Whether κ is the "cumulative" loss or the mean over a "window" (eq. 14). None: as the variant.
        history_start: The first epoch T_s that κ counts, from 1.
        history_length: How many epochs T κ counts. None: all.
        rescale: Whether κ is rescaled to [0, 1] over the training set. None: as the variant.
        expert_loss: Weight of the experts' own losses.
    """

    tasks = ("classification",)
    mean_uncertainty: Tensor
    batches: Tensor
    held_out: Tensor

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
        strength: NonNegativeFloat | None = None,
        supervision: Literal["history", "held-out"] = "history",
        folds: Folds = 4,
        history: Literal["cumulative", "window"] | None = None,
        history_start: PositiveInt = 1,
        history_length: PositiveInt | None = None,
        rescale: bool | None = None,
        expert_loss: NonNegativeFloat = 1.0,
    ):
        super().__init__(spec, expert_loss=expert_loss)
        preset = _VARIANTS[variant]
        self.uncertainty = uncertainty
        self.ranking = preset["ranking"] if ranking is None else ranking
        self.history = preset["history"] if history is None else history
        self.history_start, self.history_length = history_start, history_length
        self.rescale = preset["rescale"] if rescale is None else rescale
        self.normalise, self.dynamic, self.detach = normalise, dynamic, detach
        self.strength = preset["strength"] if strength is None else strength
        self.supervision, self.folds = supervision, folds
        self.logs_shares = self.ranking != "none" and self.strength > 0
        if supervision == "held-out" and not self.logs_shares:
            raise InputError(
                f"supervision='held-out' is of the ranking loss, and there is none with ranking={self.ranking!r} and "
                f"strength={self.strength:g}: leave out supervision, or choose ranking='margin'"
            )
        self.keeps_history = self.logs_shares and supervision == "history"
        self.matched = match is not None
        self.largest = _LARGEST[uncertainty](spec.task.outputs) if uncertainty in _LARGEST else None
        if self.matched and beta is not None:
            raise InputError(f"match={match!r} decides beta: leave out beta={beta!r}, or match")
        if self.matched and self.normalise:
            raise InputError(
                f"normalise=True would change E[w] from what match={match!r} makes it: leave out one of them"
            )
        slope, offset = _SLOPES_OFFSETS[self.uncertainty]
        static = 1 / len(self.names) if isinstance(match, str) else match
        self._numbers = {
            "temperature": each_modality("temperature", temperature, self.names, PositiveFloat),
            "alpha": each_modality("alpha", slope if alpha is None else alpha, self.names, NegativeFloat),
            "beta": each_modality("beta", offset if beta is None else beta, self.names),
            "static": each_modality("match", 0.0 if static is None else static, self.names),
        }
        self.register_buffer("mean_uncertainty", torch.zeros(len(self.names)), persistent=self.matched)
        self.register_buffer("batches", torch.zeros(()), persistent=self.matched)
        # κ of every training sample by held-out experts `[sample, modality]`, during `fit` only.
        self.register_buffer("held_out", torch.zeros(0, len(self.names)), persistent=False)

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Σ_m w_m z_m over the present modalities (eq. 11); where none is present, equal odds."""
        logits = _as_float32(opinions)
        if not self.dynamic:
            weights = equal_weights(batch.present, logits.dtype)
        else:
            uncertainty = self._uncertainty(logits)
            if self.matched and self.training:
                self._update_mean(uncertainty.detach(), batch)
            weights = self._raw_weights(uncertainty)
            weights = weights if batch.whole else weights.masked_fill(~batch.present, 0)
            if self.normalise:
                weights = normalise_weights(weights, batch.present)
        used = weights.detach() if self.detach else weights
        return (used[:, :, None] * logits).sum(dim=1), weights

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Eq. 18: the loss of the fused output, of every expert, and of weights in the wrong order.

        The ranking loss uses the weights of eq. 9, before they are normalised or replaced by equal ones.
        """
        losses = super().objective(prediction, batch, step)
        if self.logs_shares and (len(self.held_out) or step.history is not None):
            assert prediction.opinions is not None
            assert prediction.weights is not None
            weights = prediction.weights
            if self.normalise or not self.dynamic:
                weights = self._raw_weights(self._uncertainty(_as_float32(prediction.opinions)))
            hardness, known = self._hardness(batch, step)
            pairs = pair_losses(self.ranking, weights, hardness.to(weights.dtype), known, batch.weight)
            losses["ranking"] = self.strength * mean_over_pairs(*pairs)
            prediction.extra = {**prediction.extra, "shares": {"active_pairs": active_pairs(*pairs)}}
        return losses

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train, after cross-fitting if κ is held out; then, with `match`, compute the mean uncertainty of the experts.

        An interruption of the cross-fitting leaves the method untrained.
        """
        if self.supervision == "held-out":
            found = self._held_out_losses(train, validation, trainer)
            if found is None:
                return
            self.held_out = found
        try:
            trainer.run(self, train, validation)
        finally:
            self.held_out = torch.zeros(0, len(self.names))
        if self.matched and not trainer.interrupted:
            opinions = trainer.predict(self, train).opinions
            assert opinions is not None
            present = np.stack([train.present_in(name) for name in self.names], axis=1)
            counted = torch.from_numpy(present * (np.ones(1) if train.weight is None else train.weight)[:, None])
            self.mean_uncertainty.copy_(weighted_mean(self._uncertainty(opinions), counted, dim=0))

    def refit(self, samples: Samples, trainer: Trainer) -> None:
        """Train on all samples. The run that finds the epochs of the folds by validation samples is left out."""
        assert trainer.refit_steps is not None
        first = 1 if self.supervision == "held-out" else 0
        self.fit(samples, None, replace(trainer, refit_steps=trainer.refit_steps[first:]))

    def extra_repr(self) -> str:
        """The numbers of eq. 9 and 13, part of a checkpoint's description of the model."""
        return ", ".join(f"{name}={values}" for name, values in self._numbers.items())

    def _hardness(self, batch: Batch, step: Step) -> tuple[Tensor, Tensor]:
        """κ `[batch, modality]` and where it is known."""
        if len(self.held_out):
            return self.held_out[batch.index], batch.present
        assert step.history is not None
        past = step.history.past(batch.index, cumulative=self.history == "cumulative", normalised=self.rescale)
        return past, batch.present & step.history.seen(batch.index)

    def _held_out_losses(self, train: Samples, validation: Samples | None, trainer: Trainer) -> Tensor | None:
        """κ `[sample, modality]` of experts that did not learn from a sample; None if training was interrupted.

        The folds are trained without a ranking loss, for as many epochs as all training samples take.
        """
        plain = deepcopy(self)
        plain.supervision, plain.logs_shares, plain.keeps_history = "history", False, False
        log = Log()
        if validation is not None:  # early stopping must not use the held-out fold
            log = trainer.run(deepcopy(plain), train, validation)
            if trainer.interrupted:
                return None
        try:
            said = trainer.as_in(log, len(train)).cross_fit(
                lambda: deepcopy(plain), train, most_folds(train, self.folds)
            )[0]
        except KeyboardInterrupt:
            if trainer.on_interrupt == "raise":
                raise
            return None
        assert said.opinions is not None
        assert train.y is not None
        present = torch.from_numpy(np.stack([train.present_in(name) for name in self.names], axis=1))
        y = torch.from_numpy(self.task.encode(train.y))[:, None].expand(said.opinions.shape[:2])
        losses = functional.cross_entropy(said.opinions.float().transpose(1, 2), y, reduction="none")
        return rescale_present(losses, present) if self.rescale else losses

    def _uncertainty(self, opinions: Tensor) -> Tensor:
        return UNCERTAINTIES[self.uncertainty](opinions, self._number("temperature", opinions))

    def _raw_weights(self, uncertainty: Tensor) -> Tensor:
        """Eq. 9: `[batch, modality]`, also for missing modalities."""
        slope = self._number("alpha", uncertainty)
        if not self.matched:
            return slope * uncertainty + self._number("beta", uncertainty)
        static, mean = self._number("static", uncertainty), self.mean_uncertainty
        if self.largest is None:
            return slope * uncertainty + matching_offset(static, slope, mean)
        slope = matching_slope(static, slope, mean, self.largest)
        weights = slope * uncertainty + matching_offset(static, slope, mean)
        # A weight of 0 may come out below it by rounding.
        return torch.where(torch.as_tensor(static, device=weights.device) >= 0, weights.clamp(min=0), weights)

    def _number(self, name: str, like: Tensor) -> float | Tensor:
        """A setting as one number, or as `[modality]`. Not a buffer, which a lower precision would round."""
        values = self._numbers[name]
        return values[0] if len(set(values)) == 1 else like.new_tensor(values)

    def _update_mean(self, uncertainty: Tensor, batch: Batch) -> None:
        """Update the running mean of each present modality's uncertainty."""
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


def matching_slope(static: float | Tensor, alpha: float | Tensor, mean_uncertainty: Tensor, largest: float) -> Tensor:
    """The α nearest to the given one at which a matched weight is 0 or above for every uncertainty up to the largest.

    The weight is static + α (u − E[u]), so −α must not exceed static / (largest − E[u]). A static weight below 0 has no
    such α, and keeps the given one.

    >>> matching_slope(0.5, -1.0, torch.tensor([0.25, 0.75]), largest=1.0).tolist()
    [-0.666..., -1.0]
    """
    room = (largest - mean_uncertainty).clamp(min=torch.finfo(mean_uncertainty.dtype).eps)
    given, wanted = (torch.as_tensor(value, device=room.device, dtype=room.dtype) for value in (alpha, static))
    return torch.where(wanted >= 0, torch.maximum(given, -wanted / room), given)


def rescale_present(values: Tensor, present: Tensor) -> Tensor:
    """Rescale each modality's values to [0, 1] over the samples that have it, both `[sample, modality]`; others are 0.

    >>> rescale_present(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([[True], [True], [False]])).tolist()
    [[0.0], [1.0], [0.0]]
    """
    low = values.masked_fill(~present, torch.inf).amin(dim=0)
    high = values.masked_fill(~present, -torch.inf).amax(dim=0)
    return ((values - low) / (high - low).clamp(min=1e-12)).masked_fill(~present, 0)


def normalise_weights(weights: Tensor, present: Tensor) -> Tensor:
    """Weights ≥ 0 that sum to one over the present modalities, as eq. 20 assumes.

    weights, present: `[batch, modality]`. Negative weights become 0; where none is positive, all present weigh alike.

    >>> normalise_weights(torch.tensor([[3.0, 1], [-1, -2]]), torch.tensor([[True, True], [True, False]])).tolist()
    [[0.75, 0.25], [1.0, 0.0]]
    """
    positive = weights.clamp(min=0) * present
    total = positive.sum(dim=1, keepdim=True)
    some = total > 0
    return torch.where(some, positive / torch.where(some, total, 1), equal_weights(present, weights.dtype))


def each_modality(setting: str, value: Numbers, names: tuple[str, ...], allowed: Any = float) -> list[float]:
    """A setting as one number for each modality: from one for all, a sequence in their order, or a mapping by name.

    >>> each_modality("beta", {"audio": 1, "image": 2}, ("image", "audio"))
    [2.0, 1.0]
    """
    if isinstance(value, Mapping):
        for name in value:
            if name not in names:
                raise unknown_name("modality", name, names, f"It was given in {setting}")
        if absent := [name for name in names if name not in value]:
            raise InputError(f"{setting} must name every modality, but lacks {', '.join(absent)}")
        given: list[Any] = [value[name] for name in names]
    elif isinstance(value, Sequence):
        given = list(value)
        if len(given) != len(names):
            raise InputError(f"{setting} must be one number, or one for each of {', '.join(names)}, got {value!r}")
    else:
        given = [value] * len(names)
    return [check_value(setting, item, allowed) for item in given]


def _as_float32(opinions: Tensor) -> Tensor:
    """Opinions in at least 32 bits."""
    return opinions.to(torch.promote_types(opinions.dtype, torch.float32))
