"""`reconboost`: experts boost each other by turns, each learning more from samples that the others do not explain."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import Fraction, PositiveInt
from consilience.methods import ExpertMethod, Prediction, Spec, Step, expert_losses, register, weighted_mean
from consilience.training import Trainer
from consilience.training.optimizers import Phase
from consilience.training.training_settings import resolve

_BOOST = "boost "


@register(
    "reconboost",
    paper="Hua et al. 2024, ReconBoost: Boosting Can Achieve Modality Reconcilement",
    equation="z = η Σ_{m∈S} z_m; by turns (1 − λ P_{−m}(y)) ℓ(z_m, y), then ℓ(z, y)",
)
class Reconboost(ExpertMethod):
    """The sum of the experts' logits, which learn by turns; after each turn all of them are put right together.

    In its turn an expert learns alone, and the more from a sample, the less probable the others together make the true
    class. It thus corrects what they get wrong, in place of repeating what they know, as in gradient boosting. Then all
    experts and η are trained on the loss of the sum.

        z = η Σ_{m∈S} z_m,   η is learned
        turn of m:   L = (1 − λ P_{−m}(y)) · ℓ(z_m, y),   P_{−m} = softmax(η Σ_{n≠m} z_n)
        after it:    L = ℓ(z, y)

    Half of the epochs are for turns, half for the sum; each turn and each correction keeps its best epoch by the
    validation loss of the sum, and starts the optimizer anew. Training does not end before its last turn. The full
    gradient of boosting, −Σ_k (y_k − λ P_{−m}(k)) ln p_mk, has no lower bound; the published code keeps the term of
    the true class, which is the loss above, with λ = 0.2. Its further loss, which aligns two experts, is detached from
    both and so has no effect; it is left out. Its experts can share a head; here each has its own. It reports the best
    stage on the test set.

    Args:
        reconcile: λ, how much an expert may leave to the others.
        turn_epochs: The most epochs of a turn, and of the correction after it.
    """

    tasks = ("classification",)
    by_turns = True

    def __init__(self, spec: Spec, *, reconcile: Fraction = 0.2, turn_epochs: PositiveInt = 4):
        super().__init__(spec)
        self.reconcile, self.turn_epochs = reconcile, turn_epochs
        self.rate = nn.Parameter(torch.tensor(1.0))

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sum over the present experts, and 1 for each of them."""
        weights = batch.present.to(opinions.dtype)
        return self.rate * torch.einsum("bm,bmc->bc", weights, opinions), weights

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The loss of the expert whose turn it is, or of the sum; outside of turns both, for all experts."""
        assert prediction.opinions is not None
        assert batch.y is not None
        turn = step.phase.removeprefix(_BOOST) if step.phase.startswith(_BOOST) else None
        losses = {} if turn is not None else {"task": self._task_loss(prediction, batch)}
        if turn is not None or step.phase == "fit":
            boosting = boosting_losses(
                expert_losses(self.task, prediction.opinions, batch),
                (self.rate * prediction.opinions).detach(),
                batch.y,
                batch.present,
                self.reconcile,
            )
            own = boosting.sum(dim=1) if turn is None else boosting[:, self.names.index(turn)]
            losses["experts"] = weighted_mean(own, batch.weight)
        return losses

    def _task_loss(self, prediction: Prediction, batch: Batch) -> Tensor:
        own = expert_losses(self.task, prediction.output[:, None], batch)[:, 0]
        return weighted_mean(own, batch.weight)

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Turns of all experts, one after the other, as often as the epochs allow and at least once."""
        epochs, pair = resolve(trainer, len(train)).epochs, 2 * len(self.names)
        each = max(1, min(self.turn_epochs, epochs // pair))
        rounds = max(1, epochs // (each * pair))
        if trainer.refit_steps is not None and len(trainer.logs) < len(trainer.refit_steps):
            rounds = max(1, len(trainer.refit_steps[len(trainer.logs)]) // pair)
        phases = []
        for name in self.names * rounds:
            phases += [Phase(_BOOST + name, each, parameters=_Expert(name)), Phase("all", each)]
        trainer.run(self, train, validation, phases)


class _Expert:
    """The parameters of one expert."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, method: nn.Module) -> list[nn.Parameter]:
        assert isinstance(method, Reconboost)
        return [*method.encoders[self.name].parameters(), *method.heads[self.name].parameters()]


def boosting_losses(losses: Tensor, logits: Tensor, y: Tensor, present: Tensor, reconcile: float) -> Tensor:
    """(1 − λ P_{−m}(y)) ℓ_m, 0 where missing: `[batch, modality]`. Without other modalities P_{−m} is 0.

    Args:
        losses: Of each expert `[batch, modality]`.
        logits: η z_m `[batch, modality, class]`, detached.
        y: True classes `[batch]`.
        present: `[batch, modality]`.
        reconcile: λ.
    """
    there = present.to(logits.dtype)
    known = logits * there[:, :, None]
    others = known.sum(dim=1, keepdim=True) - known
    target = y[:, None, None].expand(-1, logits.shape[1], 1)
    explained = others.softmax(dim=2).gather(2, target)[:, :, 0]
    explained = explained * (there.sum(dim=1, keepdim=True) - there > 0)
    return (1 - reconcile * explained) * losses * there
