"""`pdf`: predictive dynamic fusion. Each weight is predicted from how likely the expert is to be right."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt
from consilience.methods import ExpertMethod, PerModality, Prediction, Spec, Step, encode, register, weighted_mean
from consilience.methods.heads import expert_logits


@register("pdf", paper="Cao et al. 2024, Predictive Dynamic Fusion", equation="z = Σ_m w_m z_m, w = softmax(co-belief)")
class Pdf(ExpertMethod):
    """Logits weighted by predicted confidence: an expert's own, and what the others' confidence leaves to it.

    A small head beside each expert predicts p̂_m, the probability that the expert will give to the true class. The
    relative calibration k lowers the weight of a modality that is less decided than the mean of the others; it is
    applied at test time only. Neither the confidence heads nor the weights pass a gradient to the experts. The weights
    lie close together, since beliefs lie between 0 and 2: no modality can be switched off, only turned down.

        z = Σ_{m∈S} w_m z_m,   w = softmax over S of B_m · k_m,   B_m = p̂_m + Σ_{n≠m} ℓ_n / Σ_n ℓ_n,   ℓ = −ln p̂
        k_m = min(1, D_m / mean_{n≠m} D_n),   D_m = mean_k |softmax(z_m)_k − 1/K|
        L = ℓ(z, y) + expert_loss · Σ_m ℓ(z_m, y) + Σ_m |p̂_m − softmax(z_m)_y|

    Args:
        calibrate: Whether the relative calibration is applied.
        confidence_width: Width of the confidence heads' hidden layer.
        expert_loss: Weight of the experts' own losses.
    """

    tasks = ("classification",)

    def __init__(
        self,
        spec: Spec,
        *,
        calibrate: bool = True,
        confidence_width: PositiveInt = 64,
        expert_loss: NonNegativeFloat = 1.0,
    ):
        super().__init__(spec, expert_loss=expert_loss)
        self.calibrate = calibrate
        self.confidence_heads = PerModality(
            {
                name: nn.Sequential(
                    nn.Linear(encoder.width, confidence_width), nn.ReLU(), nn.Linear(confidence_width, 1)
                )
                for name, encoder in self.encoders.items()
            }
        )

    def forward(self, batch: Batch) -> Prediction:
        """Compute every expert's logits and predicted confidence (`extra["confidence"]`), then the weighted sum."""
        features = {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}
        opinions = expert_logits(self.heads, features)
        scores = [head(features[name].pooled.detach()) for name, head in self.confidence_heads.items()]
        confidence = torch.cat(scores, dim=1)
        confidence = confidence.to(torch.promote_types(confidence.dtype, torch.float32))
        with torch.no_grad():
            belief = co_belief(confidence, batch.present)
            if self.calibrate and not self.training:
                belief = belief * relative_calibration(opinions.to(confidence.dtype).softmax(dim=2), batch.present)
            weights = belief_weights(belief, batch.present)
        output = torch.einsum("bm,bmc->bc", weights, opinions.to(weights.dtype))
        extra = {"confidence": confidence}
        return Prediction(output, opinions=opinions, weights=weights, features=features, extra=extra)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The losses of late fusion, and how far each confidence is from the probability of the true class."""
        assert prediction.opinions is not None
        assert batch.y is not None
        predicted = prediction.extra["confidence"].sigmoid()
        probability = prediction.opinions.detach().to(predicted.dtype).softmax(dim=2)
        true_class = batch.y[:, None, None].expand(-1, probability.shape[1], 1)
        miss = (predicted - probability.gather(2, true_class)[:, :, 0]).abs() * batch.present
        losses = super().objective(prediction, batch, step)
        return {**losses, "confidence": weighted_mean(miss.sum(dim=1), batch.weight)}


def co_belief(confidence: Tensor, present: Tensor) -> Tensor:
    """Mono- plus holo-confidence, `[..., modality]`, from the logit of each p̂_m; missing modalities take no part.

    p̂_m + Σ_{n≠m} ℓ_n / Σ_n ℓ_n with ℓ = −ln p̂: an expert counts by its own confidence and by the others' lack of it. A
    modality alone has only its own.

    >>> p = torch.tensor([0.5, 0.25])  # ℓ = ln 2 and 2 ln 2
    >>> co_belief(p.logit(), torch.tensor([True, True]))
    tensor([1.1667, 0.5833])
    """
    # Not quite 0, so that experts that are all certain to be right share equally instead of 0 / 0.
    doubt = functional.softplus(-confidence).clamp(min=torch.finfo(confidence.dtype).tiny) * present
    share = doubt / doubt.sum(dim=-1, keepdim=True).where(present.any(dim=-1, keepdim=True), 1)
    return (confidence.sigmoid() + 1 - share) * present


def relative_calibration(probability: Tensor, present: Tensor) -> Tensor:
    """min(1, DU_m / mean of the others' DU), `[..., modality]`, with DU_m = mean_k |p_mk − 1/K|: `[..., modality]`.

    How decided an expert is beside the others: 1 for the most decided, and where there are no others.

    >>> p = torch.tensor([[0.9, 0.1], [0.6, 0.4]])  # DU = .4 and .1
    >>> relative_calibration(p, torch.tensor([True, True]))
    tensor([1.0000, 0.2500])
    """
    decided = (probability - 1 / probability.shape[-1]).abs().mean(dim=-1) * present
    others = (decided.sum(dim=-1, keepdim=True) - decided) / (present.sum(dim=-1, keepdim=True) - 1).clamp(min=1)
    return torch.where(decided < others, decided / others.where(others > 0, 1), torch.ones_like(decided))


def belief_weights(belief: Tensor, present: Tensor) -> Tensor:
    """softmax of the beliefs over what is present, 0 where missing: `[..., modality]`.

    >>> belief_weights(torch.tensor([0.0, 5.0]), torch.tensor([True, False]))
    tensor([1., 0.])
    """
    any_present = present.any(dim=-1, keepdim=True)
    return belief.masked_fill(~(present | ~any_present), -torch.inf).softmax(dim=-1) * present
