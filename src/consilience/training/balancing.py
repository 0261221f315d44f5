"""Balancing: modalities that learn slowly catch up, for any method whose encoders are trained together.

In joint training the modality that learns first explains the loss away, and the others learn little. Each of four
published ways measures in every batch how far the modalities are, and acts on the gradients of their encoders or adds a
loss. They differ from the papers where a method has no heads for single modalities: **what a modality says alone** is
its opinion where the method has opinions, and else what the method predicts with all other modalities hidden, in
evaluation mode (with gradients and in training mode for `mmpareto`). A modality is judged by the samples that have it.

    ogm-ge    ρ_m = s_m / mean over n ≠ m of s_n,   s_m = mean of p_m(y)
              k_m = 1 − tanh(α ρ_m) if ρ_m > 1, else 1;   ∇θ_m ← k_m ∇θ_m + N(0, var of ∇θ_m)
    agm       φ_m the Shapley value of m;   s_m = mean of ln softmax(φ_m)(y);   r_m = exp(mean over n ≠ m of s_m − s_n)
              κ_m = exp(−α (r_m − τ_m)), at most 2, τ_m the mean of r_m so far;   ∇θ_m ← κ_m ∇θ_m
    pmr       π_mc the mean feature of class c;   q_m = softmax(−‖h_m − π_mc‖);   s_m = mean of q_m(y)
              L ← L + α Σ_m β_m · mean of −ln q_m(y),   β_m = max_n s_n / s_m − 1, from 0 to 1
    mmpareto  g the gradient of the loss for θ_m, g_m that of the loss of m alone
              ∇θ_m ← 2 α (a g + (1 − a) g_m), made as long as α (g + g_m) if it is shorter;   a = ½ if g·g_m ≥ 0,
              else the a of the shortest a g + (1 − a) g_m

Papers: Peng et al. 2022, *Balanced Multimodal Learning via On-the-fly Gradient Modulation*; Li et al. 2023, *Boosting
Multi-modal Model Performance with Adaptive Gradient Modulation*; Fan et al. 2023, *PMR: Prototypical Modal Rebalance
for Multimodal Learning*; Wei and Hu 2024, *MMPareto: Boosting Multimodal Learning with Innocent Unimodal Assistance*.

Departures, from the papers and from public code (that of MMPareto, and of BalanceBenchmark for the others). `ogm-ge`:
the paper has two modalities, the code leaves biases alone; here the others' mean is compared with, and all weights of
an encoder change. `agm`: opinions are taken as Shapley values; else φ_m is the mean of what m adds to nothing and to
all others, exact for two modalities, while the paper sums over all subsets. In the code only the complete prediction
passes gradients on, through every φ_m, so that all encoders are scaled alike; the bound of 2 is ours. `pmr`: the code
computes prototypes from a tenth of the samples before each epoch, here they are running means over batches; the entropy
loss, for two modalities only, is left out, and with more than two the code changes gradients instead. `mmpareto`:
lengths are compared over a whole encoder, in the code for each weight by itself; a loss of experts that the method
already has is replaced by that of the modalities alone. The code of MMPareto reports the best epoch on the test set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError
from consilience.methods import Method, PerModality, Prediction, expert_losses
from consilience.methods.losses import weighted_mean
from consilience.training.training_settings import BALANCE_STRENGTHS, ResolvedSettings, TrainingSettings

# How much of the prototypes a batch keeps.
_MOMENTUM = 0.9
# κ of agm is at most this.
_MOST = 2.0
# Name of the loss of single modalities, in methods that have one.
_EXPERTS = "experts"


def reason_against_balance(method: Method, balance: str) -> str | None:
    """Return why the modalities of a method cannot be balanced, or None if they can."""
    if method.by_turns:
        return "its modalities learn by turns already"
    encoders = getattr(method, "encoders", None)
    if not method.trains_by_gradients or not isinstance(encoders, PerModality):
        return "it has no encoders that are trained together by gradients"
    if len(encoders) < 2:
        return "it has a single modality"
    if not method.task.classification and balance != "mmpareto":
        return (
            f"{balance!r} needs the probability of the true class, and this is a {method.task.kind}; mmpareto does not"
        )
    return None


class Balancer:
    """Balances the modalities of one training.

    Args:
        balance: "ogm-ge", "agm", "pmr" or "mmpareto".
        strength: α.
        method: What is trained.
    """

    def __init__(self, balance: str, strength: float, method: Method):
        self.balance, self.strength, self.method = balance, strength, method
        self.names = method.names
        # Of agm: the running mean of the ratios `[modality]`, and of how many batches.
        self.reference: Tensor | None = None
        self.batches = 0
        # Of pmr: modality → the mean features of each class `[class, width]`, NaN for a class not yet seen.
        self.prototypes: dict[str, Tensor] = {}
        # Of mmpareto: modality → gradients of its own loss, in the order of the encoder's parameters.
        self._own: dict[str, list[Tensor | None]] = {}

    @classmethod
    def of(cls, settings: ResolvedSettings, method: Method) -> Balancer | None:
        """Return what balances a method, or None where the settings do not ask for it.

        Raises:
            UnsupportedError: If the method cannot be balanced.
        """
        if settings.balance is None:
            return None
        check_balance(settings, method)
        strength = settings.balance_strength or BALANCE_STRENGTHS[settings.balance]
        return cls(settings.balance, strength, method)

    def losses(self, prediction: Prediction, batch: Batch, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the losses of a batch with those that balancing adds; call it before their gradients are computed."""
        if self.balance == "pmr":
            return losses | {"prototypes": self._prototype_loss(prediction, batch)}
        if self.balance == "mmpareto":
            own = self._losses_alone(prediction, batch)
            for name, loss in zip(self.names, own):
                weights = self._weights(name)
                found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True) if weights else ()
                self._own[name] = list(found)
            kept = {name: loss for name, loss in losses.items() if name != _EXPERTS}
            return kept | {"alone": own.sum()}
        return losses

    @torch.no_grad()
    def balance_gradients(self, prediction: Prediction, batch: Batch) -> None:
        """Change the gradients of the encoders; call it once all gradients are computed."""
        if self.balance == "mmpareto":
            for name in self.names:
                self._combine(name)
            self._own = {}
        if self.balance not in ("ogm-ge", "agm"):
            return
        assert batch.y is not None
        said = self._said_alone(prediction, batch).float()
        log_p = functional.log_softmax(said, dim=2)
        true = log_p.gather(2, batch.y[:, None, None].expand(-1, said.shape[1], 1))[:, :, 0]
        there = batch.present.to(true.dtype) * batch.weight[:, None]
        if self.balance == "ogm-ge":
            factors = ogm_factors(weighted_mean(true.exp(), there, dim=0), there.sum(0) > 0, self.strength)
        else:
            ratios = agm_ratios(weighted_mean(true, there, dim=0), there.sum(0) > 0)
            self.batches += 1
            reference = ratios if self.reference is None else self.reference
            self.reference = reference + (ratios - reference) / self.batches
            factors = (self.strength * (self.reference - ratios)).exp().clamp(max=_MOST)
        for name, factor in zip(self.names, factors):
            for weight in self._weights(name):
                if weight.grad is None:
                    continue
                spread = weight.grad.std() if self.balance == "ogm-ge" and weight.numel() > 1 else None
                weight.grad.mul_(factor.to(weight.grad.dtype))
                if spread is not None:
                    weight.grad.add_(torch.randn_like(weight.grad) * spread)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep."""
        return {"reference": self.reference, "batches": self.batches, "prototypes": dict(self.prototypes)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        device = next(self.method.parameters()).device
        self.reference = None if state["reference"] is None else state["reference"].to(device)
        self.batches = state["batches"]
        self.prototypes = {name: value.to(device) for name, value in state["prototypes"].items()}

    def _weights(self, name: str) -> list[nn.Parameter]:
        """The parameters of an encoder that are trained now."""
        encoders = self.method.encoders
        assert isinstance(encoders, PerModality)
        return [weight for weight in encoders[name].parameters() if weight.requires_grad]

    def _said_alone(self, prediction: Prediction, batch: Batch) -> Tensor:
        """What each modality says alone `[batch, modality, output]`."""
        if prediction.opinions is not None:
            return prediction.opinions.detach()
        with evaluating(self.method):
            alone = torch.stack([self._predict(batch, {name}) for name in self.names], dim=1)
            if self.balance != "agm":
                return alone
            everyone = set(self.names)
            without = torch.stack([self._predict(batch, everyone - {name}) for name in self.names], dim=1)
            first = alone - self._predict(batch, set())[:, None]
            return (first + self._predict(batch, everyone)[:, None] - without) / 2

    def _predict(self, batch: Batch, shown: set[str]) -> Tensor:
        """The method's output with only some modalities shown."""
        hidden = torch.tensor([name not in shown for name in self.names], device=batch.device)
        return self.method(batch.hiding(hidden.expand_as(batch.present))).output

    def _losses_alone(self, prediction: Prediction, batch: Batch) -> Tensor:
        """The loss of what each modality says alone, over the samples that have it: `[modality]`."""
        opinions = prediction.opinions
        if opinions is None:
            opinions = torch.stack([self._predict(batch, {name}) for name in self.names], dim=1)
        own = expert_losses(self.method.task, opinions, batch) * batch.present
        return torch.stack([weighted_mean(losses, batch.weight) for losses in own.T])

    def _combine(self, name: str) -> None:
        """Replace the gradient of an encoder by the combination of that of all losses and that of its own."""
        weights = self._weights(name)
        own = self._own.get(name) or [None] * len(weights)
        pairs = [
            (weight, weight.grad, torch.zeros_like(weight) if alone is None else alone)
            for weight, alone in zip(weights, own)
            if weight.grad is not None
        ]
        if not pairs:
            return
        total = torch.cat([grad.flatten() for _, grad, _ in pairs])
        alone = torch.cat([one.flatten() for _, _, one in pairs]).to(total.dtype)
        combined = self.strength * pareto_gradient(total - alone, alone)
        for (_, grad, _), part in zip(pairs, combined.split([grad.numel() for _, grad, _ in pairs])):
            grad.copy_(part.view_as(grad))

    def _prototype_loss(self, prediction: Prediction, batch: Batch) -> Tensor:
        """The loss of pmr, after the prototypes have taken in this batch."""
        assert batch.y is not None
        features = prediction.features
        if features is None or any(name not in features for name in self.names):
            raise UnsupportedError(
                f"balance='pmr' compares features with prototypes, and method {title_of(self.method)!r} returns no "
                "features of its modalities: choose ogm-ge, agm or mmpareto"
            )
        scores, losses = [], []
        there = batch.present.float() * batch.weight[:, None]
        for name, weight in zip(self.names, there.T):
            own = features[name].pooled.float()
            self._take_in(name, own.detach(), batch.y, weight)
            log_q = prototype_log_probabilities(own, self.prototypes[name])
            true = log_q.gather(1, batch.y[:, None])[:, 0]
            scores.append(weighted_mean(true.detach().exp(), weight))
            losses.append(weighted_mean(-true, weight))
        betas = pmr_weights(torch.stack(scores), there.sum(0) > 0)
        return self.strength * (betas * torch.stack(losses)).sum()

    def _take_in(self, name: str, features: Tensor, y: Tensor, weight: Tensor) -> None:
        """Move the prototypes of the classes in a batch towards their mean features."""
        member = functional.one_hot(y, self.method.task.outputs).to(features.dtype) * weight[:, None]
        total = member.sum(dim=0)[:, None]
        means = member.T @ features / total.where(total > 0, 1)
        known = self.prototypes.get(name)
        if known is None:
            known = torch.full_like(means, torch.nan)
        moved = torch.where(known.isnan(), means, _MOMENTUM * known + (1 - _MOMENTUM) * means)
        self.prototypes[name] = torch.where(total > 0, moved, known)


def check_balance(settings: TrainingSettings, method: Method) -> None:
    """Raise an error if the settings ask to balance a method that cannot be balanced."""
    if settings.balance is None:
        return
    if reason := reason_against_balance(method, settings.balance):
        raise UnsupportedError(
            f"training: balance={settings.balance!r} cannot be used with method {title_of(method)!r}: {reason}. Leave "
            "balance out for this method; methods such as concat and late can be balanced"
        )


def title_of(method: Method) -> str:
    """Return the registered name of a method, or the name of its class."""
    name = method.name or type(method).__name__
    return name + str(getattr(method, "modality", "")) if name.endswith(":") else name


@contextmanager
def evaluating(method: Method) -> Iterator[None]:
    """Within the block the method is in evaluation mode and computes no gradients; then it trains on."""
    training = [module for module in method.modules() if module.training]
    method.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _mean_of_others(scores: Tensor, there: Tensor) -> Tensor:
    """Mean score of the other modalities of a batch: `[modality]`; a modality without others has its own."""
    known = scores * there
    count = there.sum() - there.to(scores.dtype)
    return torch.where(count > 0, (known.sum() - known) / count.clamp(min=1), scores)


def ogm_factors(scores: Tensor, there: Tensor, strength: float) -> Tensor:
    """1 − tanh(α ρ) where ρ > 1, else 1: `[modality]`; ρ is a score over the mean of the others.

    >>> ogm_factors(torch.tensor([0.8, 0.4]), torch.tensor([True, True]), 0.5)  # ρ = 2 and ½
    tensor([0.2384, 1.0000])
    """
    ratio = scores / _mean_of_others(scores, there).clamp(min=1e-12)
    return torch.where((ratio > 1) & there, 1 - torch.tanh(strength * ratio), torch.ones_like(ratio))


def agm_ratios(scores: Tensor, there: Tensor) -> Tensor:
    """exp(mean over the others of s_m − s_n): `[modality]`, 1 for a modality that no sample of the batch has.

    >>> agm_ratios(torch.tensor([-0.5, -1.5]), torch.tensor([True, True]))
    tensor([2.7183, 0.3679])
    """
    apart = (scores - _mean_of_others(scores, there)).clamp(-20, 20)
    return torch.where(there, apart.exp(), torch.ones_like(scores))


def prototype_log_probabilities(features: Tensor, prototypes: Tensor) -> Tensor:
    """ln softmax(−distance to each class's prototype): `[batch, width]`, `[class, width]` → `[batch, class]`.

    A class without a prototype (NaN) has probability 0.

    >>> prototype_log_probabilities(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 5.0]])).exp()
    tensor([[0.5000, 0.5000]])
    """
    unknown = prototypes.isnan().any(dim=1)
    apart = features[:, None] - prototypes.nan_to_num()
    distance = (apart.square().sum(dim=2) + 1e-12).sqrt()
    return functional.log_softmax((-distance).masked_fill(unknown, -1e9), dim=1)


def pmr_weights(scores: Tensor, there: Tensor) -> Tensor:
    """max s / s_m − 1, from 0 to 1: `[modality]`, 0 for the best one and for those that no sample of the batch has.

    >>> pmr_weights(torch.tensor([0.9, 0.6, 0.1]), torch.tensor([True, True, True]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    best = scores.where(there, torch.zeros_like(scores)).max()
    return (best / scores.clamp(min=1e-12) - 1).clamp(0, 1) * there


def pareto_gradient(joint: Tensor, alone: Tensor) -> Tensor:
    """2 (a g + (1 − a) g_m), made as long as g + g_m if it is shorter: `[weight]`, `[weight]` → `[weight]`.

    a is ½ where the gradients agree; where they do not, a g + (1 − a) g_m is the shortest possible, and reduces both
    losses.

    >>> pareto_gradient(torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 1.0]))  # a = .6: 2 (.2, .4), shorter than (0, 1)
    tensor([0.4472, 0.8944])
    """
    product = joint @ alone
    if product >= 0:
        return joint + alone
    share = ((alone - joint) @ alone / (alone - joint).square().sum().clamp(min=1e-30)).clamp(0, 1)
    found = 2 * (share * joint + (1 - share) * alone)
    length, wanted = torch.linalg.vector_norm(found), torch.linalg.vector_norm(joint + alone)
    return found * (wanted / length.clamp(min=1e-30)).clamp(min=1)
