"""`fuml`: fuzzy multi-view learning. Experts give degrees of membership; those in doubt or in conflict count less."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import Interval, NonNegativeFloat
from consilience.methods import ExpertMethod, Prediction, Spec, Step, encode, register, weighted_mean
from consilience.methods.heads import expert_logits
from consilience.methods.opinions.pdf import belief_weights

Norm = Annotated[float, Interval(1)]

# Below it a credibility or a length counts as this, so that logarithms and ratios stay finite.
_LEAST = 1e-7


@register(
    "fuml",
    paper="Duan et al. 2025, Deep Fuzzy Multi-View Learning for Reliable Classification",
    equation="μ = Σ_m w_m μ_m, w = softmax((1 − u_m)(1 − o_m))",
)
class Fuml(ExpertMethod):
    """Fuzzy memberships joined with weights that fall with an expert's uncertainty and its conflict with the others.

    An expert says to which degree a sample belongs to each class, each class for itself: the degrees need not sum to 1,
    and all are 0 where it knows nothing. A class is credible if its degree is high and that of every other class low.
    The uncertainty u is the mean binary entropy of the credibilities, the conflict o the mean cosine distance between
    an expert's memberships and those of the other present ones.

        μ_m = ReLU(z_m / ‖z_m‖₃)         c_k = (μ_k + 1 − max_{j≠k} μ_j) / 2         p = c / Σ_k c_k
        u_m = 1 / (K ln 2) · Σ_k H(c_mk)         o_m = mean over n ≠ m in S of 1 − cos(μ_m, μ_n)
        μ = Σ_{m∈S} w_m μ_m,   w = softmax over S of (1 − u_m)(1 − o_m)
        L = B(c̃) + expert_loss · Σ_m B(c̃_m),   B(c) = −ln c_y − Σ_{k≠y} ln(1 − c_k)

    c̃ is the credibility in training, in which the other classes are compared with the true one: for k ≠ y it is
    c̃_k = (μ_k + 1 − μ_y) / 2. The published code also computes the weights of training from c̃, so that they depend on
    the label; here they are those of the prediction. (1 − u)(1 − o) lies between 0 and 1, so that no weight is more
    than e times another: no modality can be switched off.

    The published code scales features by the minimum and maximum of all samples, those of the test set among them, and
    reports the best epoch on the test set, measured every ten epochs; figures of the paper are that much too high.

    Args:
        norm: Order of the norm that memberships are divided by: 3 in the published code.
        expert_loss: Weight of the experts' own losses.
    """

    tasks = ("classification",)

    def __init__(self, spec: Spec, *, norm: Norm = 3.0, expert_loss: NonNegativeFloat = 1.0):
        super().__init__(spec, expert_loss=expert_loss)
        self.norm = norm

    def forward(self, batch: Batch) -> Prediction:
        """Join the experts' memberships; `extra["membership"]` has them, the joint one last."""
        features = {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}
        own = membership(expert_logits(self.heads, features), self.norm) * batch.present[:, :, None]
        weights = reliability_weights(own, batch.present)
        joint = torch.einsum("bm,bmc->bc", weights, own)
        every = torch.cat([own, joint[:, None]], dim=1)
        logits = credibility(every).clamp(min=_LEAST).log()
        extra = {"membership": every}
        return Prediction(logits[:, -1], opinions=logits[:, :-1], weights=weights, features=features, extra=extra)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The binary cross-entropy of the joint credibility, and that of every present expert's."""
        assert batch.y is not None
        losses = credibility_losses(prediction.extra["membership"], batch.y)
        found = {"task": weighted_mean(losses[:, -1], batch.weight)}
        if self.expert_loss:
            own = (losses[:, :-1] * batch.present).sum(dim=1)
            found["experts"] = self.expert_loss * weighted_mean(own, batch.weight)
        return found


def membership(logits: Tensor, norm: float = 3.0) -> Tensor:
    """ReLU(z / ‖z‖), in at least 32 bits: `[..., class]`, each from 0 to 1.

    >>> membership(torch.tensor([[3.0, -4.0]]), norm=2)
    tensor([[0.6000, 0.0000]])
    """
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # Scaled by the largest first, so that no power overflows.
    z = z / z.detach().abs().amax(dim=-1, keepdim=True).clamp(min=_LEAST)
    return functional.relu(z / torch.linalg.vector_norm(z, ord=norm, dim=-1, keepdim=True).clamp(min=_LEAST))


def credibility(degrees: Tensor) -> Tensor:
    """(μ_k + 1 − max_{j≠k} μ_j) / 2, the mean of the possibility and the necessity of each class: `[..., class]`.

    >>> credibility(torch.tensor([0.8, 0.2, 0.0]))
    tensor([0.8000, 0.2000, 0.1000])
    """
    highest, place = degrees.topk(2, dim=-1)
    classes = torch.arange(degrees.shape[-1], device=degrees.device)
    others = torch.where(classes == place[..., :1], highest[..., 1:], highest[..., :1])
    return (degrees + 1 - others) / 2


def labelled_credibility(degrees: Tensor, y: Tensor) -> Tensor:
    """The credibility in training, where wrong classes are compared with the true one: `[..., class]`, `[...]`.

    >>> labelled_credibility(torch.tensor([0.8, 0.2, 0.0]), torch.tensor(1))
    tensor([0.8000, 0.2000, 0.4000])
    """
    true = functional.one_hot(y, degrees.shape[-1]).bool()
    own = degrees.gather(-1, y[..., None])
    best_other = degrees.masked_fill(true, 0).amax(dim=-1, keepdim=True)
    return (degrees + 1 - torch.where(true, best_other, own)) / 2


def fuzzy_uncertainty(credible: Tensor) -> Tensor:
    """The mean binary entropy of credibilities in bits: `[..., class]` → `[...]`, from 0 to 1.

    >>> fuzzy_uncertainty(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([1., 0.])
    """
    entropy = torch.special.entr(credible) + torch.special.entr(1 - credible)
    return entropy.mean(dim=-1) / math.log(2)


def reliability_weights(degrees: Tensor, present: Tensor) -> Tensor:
    """softmax over what is present of (1 − uncertainty)(1 − conflict): `[..., modality, class]` → `[..., modality]`.

    >>> agreeing, odd = [1.0, 0.0], [0.0, 1.0]  # all certain; o = ½, ½ and 1
    >>> reliability_weights(torch.tensor([[agreeing, agreeing, odd]]), torch.ones(1, 3).bool()).tolist()
    [[0.38..., 0.38..., 0.23...]]
    """
    unit = degrees / degrees.square().sum(dim=-1, keepdim=True).clamp(min=_LEAST).sqrt()
    apart = (1 - unit @ unit.transpose(-1, -2)) * (present[..., :, None] & present[..., None, :])
    apart = apart - torch.diag_embed(apart.diagonal(dim1=-2, dim2=-1))  # a modality does not conflict with itself
    conflict = apart.sum(dim=-1) / (present.sum(dim=-1, keepdim=True) - 1).clamp(min=1)
    # Away from 0 and 1, where the slope of the entropy has no bound.
    certain = 1 - fuzzy_uncertainty(credibility(degrees).clamp(_LEAST, 1 - _LEAST))
    return belief_weights(certain * (1 - conflict), present)


def credibility_losses(degrees: Tensor, y: Tensor) -> Tensor:
    """−ln c_y − Σ_{k≠y} ln(1 − c_k) of the credibility in training: `[batch, …, class]`, `[batch]` → `[batch, …]`.

    >>> credibility_losses(torch.tensor([[0.0, 0.0]]), torch.tensor([0])).exp()  # both credibilities are a half
    tensor([4.])
    """
    y = y.view(-1, *[1] * (degrees.ndim - 2)).expand(degrees.shape[:-1])
    credible = labelled_credibility(degrees, y)
    right = functional.one_hot(y, degrees.shape[-1]).bool()
    return -torch.where(right, credible, 1 - credible).clamp(min=_LEAST).log().sum(dim=-1)
