"""`mim`: concatenation that maximises mutual information among the modalities and with the fusion (MIM)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeFloat, NonNegativeInt, PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation
from consilience.training import Trainer
from consilience.training.optimizers import Phase

# The phase in which the networks behind the bound are trained alone.
BOUND = "bound"
_MAX_LOG_VARIANCE = 5.0  # either way: without a bound the likelihood has none
_FLOOR = 1e-4  # added to variances, so that codes that do not vary have a finite entropy


@register(
    "mim",
    paper="Han, Chen and Poria 2021, Improving Multimodal Fusion with Hierarchical Mutual Information Maximization "
    "for Multimodal Sentiment Analysis",
    equation="L = task + α contrast − β Σ (E ln q(u_n | h_m) + H(u_n))",
)
class Mim(JointMethod):
    """Concatenation that maximises mutual information among the modalities, and with the joint representation.

    Between modalities the bound of Barber and Agakov is raised, I(h_m; h_n) ≥ I(h_m; u_n) ≥ E ln q(u_n | h_m) + H(u_n),
    where u_n is a small code of h_n and q a Gaussian whose mean and variance a network learns. Between the modalities
    and the joint representation c it is contrast: from c, a sample's own features must be told from those of the other
    samples in the batch.

        u_n = tanh(A_n h_n)         q(u_n | h_m) = N(u_n; μ(h_m), diag σ²(h_m))         H(u_n) ≈ Σ_k w_k ½ ln |2πe Σ_nk|
        N_m = −mean over samples i of ln softmax_j cos(B_m c_i, h_mj) at j = i
        L   = ℓ(z, y) + contrast · Σ_m N_m − information · Σ_{m<n} (E ln q(u_n | h_m) + H(u_n))

    The entropy is that of a Gaussian for each class k, or, for a regression, for targets above and below the mean.
    Training has two phases: for `bound_epochs` the networks of q alone, by likelihood, then everything. The method asks
    modalities to carry the same information. Where they complement each other it learns more slowly than `concat` and
    may gain nothing. In the paper the two phases alternate, the covariances are collected over several batches rather
    than drawn towards their common mean, the likelihood lacks its ln σ² term, and the task's loss is the absolute
    error.

    Args:
        width: Width of the joint representation.
        contrast: Weight α of the contrastive loss.
        information: Weight β of the bound.
        anchor: The modality from which the others are predicted, text in the paper. None: every pair.
        code: Width of the codes u.
        bound_epochs: How long the networks behind the bound are trained alone.
        dropout: Dropout rate after the joint layer.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 256,
        contrast: NonNegativeFloat = 0.1,
        information: NonNegativeFloat = 0.1,
        anchor: str | None = None,
        code: PositiveInt = 8,
        bound_epochs: NonNegativeInt = 2,
        dropout: Rate = 0.1,
    ):
        super().__init__(spec)
        if anchor is not None and anchor not in spec.modalities:
            raise unknown_name("modality", anchor, spec.modalities, "It was given as anchor")
        self.contrast, self.information, self.bound_epochs = contrast, information, bound_epochs
        widths = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = Concatenation.over(self.encoders, width, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
        # A part whose loss has weight 0 is not built: its parameters would never move.
        self.predictors = PerModality(
            {name: nn.Linear(width, size) for name, size in widths.items()} if self.contrast else {}
        )
        self.pairs = tuple(pairs_of(self.names, anchor)) if self.information else ()
        targets = {target for _, target in self.pairs}
        self.codes = PerModality(
            {name: nn.Sequential(nn.Linear(size, code), nn.Tanh()) for name, size in widths.items() if name in targets}
        )
        self.guesses = nn.ModuleList(
            CodeGaussian(widths[source], code, hidden=widths[source]) for source, _ in self.pairs
        )

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """Apply the head; predict each modality's features from the joint ones, and codes from other modalities."""
        prediction = super().read(joint, features, batch)
        prediction.extra = {
            **prediction.extra,
            "predicted": {name: predict(joint) for name, predict in self.predictors.items()},
            "codes": {name: code(features[name].pooled) for name, code in self.codes.items()},
            "guesses": [guess(features[source].pooled) for guess, (source, _) in zip(self.guesses, self.pairs)],
        }
        return prediction

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss, the contrast's and the bound's two terms; in the first phase the likelihood alone."""
        if step.phase == BOUND:
            return {"likelihood": -self._bound(prediction, batch)[0]}
        losses = super().objective(prediction, batch, step)
        if len(self.predictors):
            assert prediction.features is not None
            contrasts = [
                contrastive_losses(prediction.features[name].pooled, predicted, batch.present_in(name))
                for name, predicted in prediction.extra["predicted"].items()
            ]
            losses["contrast"] = self.contrast * weighted_mean(torch.stack(contrasts).sum(dim=0), batch.weight)
        if self.pairs:
            likelihood, entropy = self._bound(prediction, batch)
            losses["likelihood"], losses["entropy"] = -self.information * likelihood, -self.information * entropy
        return losses

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """First the networks behind the bound, by likelihood, so that it is one; then everything."""
        if self.pairs and self.bound_epochs:
            phase = Phase(BOUND, epochs=self.bound_epochs, parameters=lambda _: self.guesses.parameters())
            trainer.run(self, train, None, [phase])  # it does not change the validation loss
        trainer.run(self, train, validation)

    def _bound(self, prediction: Prediction, batch: Batch) -> tuple[Tensor, Tensor]:
        """E ln q(u_n | h_m) and H(u_n), summed over pairs."""
        assert batch.y is not None
        # As in the paper: a group for each class, or for targets below and above the mean.
        group = batch.y if self.task.classification else (batch.y[:, 0] > 0).long()
        groups = self.task.outputs if self.task.classification else 2
        likelihoods, entropies = [], []
        for (source, target), (mean, log_variance) in zip(self.pairs, prediction.extra["guesses"]):
            weight = batch.weight * batch.present_in(source) * batch.present_in(target)
            code = prediction.extra["codes"][target]
            likelihoods.append(weighted_mean(log_likelihood(code, mean, log_variance), weight))
            entropies.append(grouped_entropy(code, group, groups, weight))
        return torch.stack(likelihoods).sum(), torch.stack(entropies).sum()


class CodeGaussian(nn.Module):
    """q(u | h): features `[batch, width]` → mean and log variance of a Gaussian over codes, `[batch, code]` each."""

    def __init__(self, width: int, code: int, hidden: int):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, code))
        self.log_variance = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, code))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The log variance stays within ±5."""
        return self.mean(features), _MAX_LOG_VARIANCE * torch.tanh(self.log_variance(features) / _MAX_LOG_VARIANCE)


def pairs_of(names: tuple[str, ...], anchor: str | None) -> list[tuple[str, str]]:
    """Pairs (source, target) of modalities: the anchor with every other one, or each one with those after it.

    >>> pairs_of(("text", "sound", "sight"), "sound")
    [('sound', 'text'), ('sound', 'sight')]
    """
    return list(combinations(names, 2)) if anchor is None else [(anchor, name) for name in names if name != anchor]


def contrastive_losses(features: Tensor, predicted: Tensor, present: Tensor) -> Tensor:
    """−ln softmax_j(cos(ĥ_i, h_j)) at j = i, over the samples that are present: `[batch]`, 0 where missing.

    Args:
        features: h, `[batch, width]`.
        predicted: ĥ, `[batch, width]`, predicted from the joint representation.
        present: `[batch]`.

    >>> same, everyone = torch.eye(2), torch.ones(2, dtype=torch.bool)
    >>> round(contrastive_losses(same, same, everyone)[0].item(), 4), round(math.log(1 + math.exp(-1)), 4)
    (0.3133, 0.3133)
    """
    cosines = functional.normalize(predicted, dim=1, eps=1e-6) @ functional.normalize(features, dim=1, eps=1e-6).T
    # Missing samples are not among the alternatives. A sample without alternatives has loss 0.
    own = torch.eye(len(present), dtype=torch.bool, device=present.device)
    alternatives = cosines.masked_fill(~present & ~own, -torch.inf)
    return (alternatives.logsumexp(dim=1) - cosines.diagonal()) * present


def log_likelihood(values: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """ln N(values; mean, diag exp(log_variance)), each `[batch, width]` → `[batch]`, in nats.

    >>> round(log_likelihood(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2)).item(), 4)
    -1.8379
    """
    terms = (values - mean).square() * torch.exp(-log_variance) + log_variance + math.log(2 * math.pi)
    return -0.5 * terms.sum(dim=1)


def grouped_entropy(values: Tensor, group: Tensor, groups: int, weight: Tensor) -> Tensor:
    """The entropy of values `[batch, width]` as a mixture of Gaussians, one for each group: Σ_g w_g H(N(·, Σ_g)), nats.

    Never above the mixture's own entropy, which the groups' separation would add to. A batch has few samples of a group
    (the paper remembers earlier batches), so each covariance is drawn towards that within all groups, which counts as
    much as `width` samples. weight: `[batch]`, only ratios matter; 0 leaves a sample out.
    """
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    width = values.shape[1]
    member = functional.one_hot(group, groups).to(values.dtype) * weight[:, None].to(values.dtype)
    member = member * (weight > 0).sum() / member.sum().clamp(min=torch.finfo(values.dtype).tiny)
    count = member.sum(dim=0)  # [group]
    means = member.T @ values / count.clamp(min=1e-12)[:, None]
    apart = values - means[group]
    scatter = torch.einsum("bg,bi,bj->gij", member, apart, apart)
    within = scatter.sum(dim=0) / count.sum().clamp(min=1e-12)
    covariance = (scatter + width * within) / (count + width)[:, None, None]
    covariance = covariance + _FLOOR * torch.eye(width, dtype=values.dtype, device=values.device)
    log_determinant = 2 * torch.linalg.cholesky(covariance).diagonal(dim1=1, dim2=2).log().sum(dim=1)
    return weighted_mean(0.5 * (log_determinant + width * math.log(2 * math.pi * math.e)), count)
