"""What a training run records: its log, validation figures, early stopping, and the errors of one that diverged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import TrainingError
from consilience.core.seeding import let_others_by
from consilience.methods import Method, Prediction, weighted_mean
from consilience.training.batch_loader import BatchLoader
from consilience.training.training_settings import ResolvedSettings


@dataclass
class Log:
    """The log of a training run: one row per epoch (phase, epoch, losses, validation figures, seconds) and its end.

    Attributes:
        rows: One per epoch.
        best_epoch: Epoch with the lowest validation loss, from 0, within its phase; None without validation.
        best_step: Steps of the optimizer within that phase until that epoch ended.
        interrupted: Whether Ctrl-C ended the run.
        finished: Whether it was not interrupted and did not fail.
        seconds: How long it took.
        out_of_time: Whether the time limit ended it.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    interrupted: bool = False
    finished: bool = False
    seconds: float = 0.0
    best_step: int | None = None
    out_of_time: bool = False

    @property
    def whole(self) -> bool:
        """Whether it ended by itself and not by a time limit."""
        return self.finished and not self.out_of_time

    def take_best(self, epoch: int | None, steps_per_epoch: int) -> None:
        """Note the best epoch so far, and the steps until its end."""
        self.best_epoch, self.best_step = epoch, None if epoch is None else (epoch + 1) * steps_per_epoch


def diverged(
    title: str, term: str, value: float, lr: float, *, epoch: int, batch: int | None = None, seed: int | None = None
) -> TrainingError:
    """Return the error for a loss term that is not finite.

    Args:
        title: What was trained.
        term: Name of the loss term.
        value: Its value.
        lr: The learning rate, which the error advises to lower.
        epoch: Epoch, from 0.
        batch: Batch within the epoch, from 0, where it is known.
        seed: Seed of the model, where several are trained at once.
    """
    who = "" if seed is None else f"with seed {seed} "
    where = f"epoch {epoch + 1}" + ("" if batch is None else f" (batch {batch + 1})")
    return TrainingError(
        f"training {title}: {who}the loss term {term!r} became {value} in {where}. "
        f"Lower lr (now {lr:g}) or set clip=1.0"
    )


def first_broken(losses: Mapping[str, Tensor]) -> tuple[str, float]:
    """Return the first loss term that is not finite and its value, or the sum if only the sum is not finite."""
    values = {name: value.item() for name, value in losses.items()}
    broken = next((item for item in values.items() if not math.isfinite(item[1])), None)
    return broken or ("sum of " + " + ".join(values), sum(values.values()))


def check_weights(module: nn.Module, lr: float) -> None:
    """Raise an error if trained weights are not finite: no loss follows the last step that would show it."""
    for name, weight in module.named_parameters():
        if weight.requires_grad and not torch.isfinite(weight).all():
            raise TrainingError(
                f"training {type(module).__name__}: the weights {name!r} are not finite after the last step. "
                f"Lower lr (now {lr:g}) or set clip=1.0"
            )


@torch.no_grad()
def validate(model: Any, method: Method, loader: BatchLoader, batch_size: int) -> dict[str, float]:
    """Return the validation figures of a whole set.

    Args:
        model: The method as it is called, possibly in a wrapper.
        method: The method itself.
        loader: The set.
        batch_size: Samples per batch.
    """
    model.eval()
    pieces = []
    for batch in loader.in_order(batch_size):
        let_others_by()
        pieces.append(per_sample(method, model(batch), batch))
    return figures(method, torch.cat(pieces, dim=1))


def per_sample(method: Method, prediction: Prediction, batch: Batch) -> Tensor:
    """Return the loss, whether a classification is right, and the weight of each sample: `[3, batch]`."""
    losses = method.validation_losses(prediction, batch)
    losses = losses.to(torch.promote_types(losses.dtype, torch.float32))
    right = correct(method, prediction.output, batch)
    return torch.stack([losses, right.to(losses), batch.weight.to(losses)])


def figures(method: Method, values: Tensor) -> dict[str, float]:
    """Return the mean validation loss, which early stopping uses, and the accuracy of a classification.

    Args:
        method: Says which share of the worst samples is ignored.
        values: What `per_sample` returned for all samples, `[3, n]`.
    """
    losses, right, weight = values.cpu().double()
    row = {"validation_loss": mean_without_worst(losses, weight, method.ignored_worst)}
    if method.task.classification:
        row["validation_accuracy"] = float(weighted_mean(right, weight))
    return row


def mean_without_worst(losses: Tensor, weight: Tensor, share: float) -> float:
    """Return the weighted mean of losses without the largest ones.

    Args:
        losses: `[n]`. An ignored loss may be infinite; if any loss is NaN, the mean is NaN.
        weight: `[n]`.
        share: Share of the samples of positive weight that is ignored, rounded up to a whole number of samples, but
            never more than one sample in twenty.

    Example:
        >>> mean_without_worst(torch.tensor([1.0] * 19 + [1e9]), torch.ones(20), 0.01)
        1.0
    """
    if not share:
        return float(weighted_mean(losses, weight))
    counted = weight > 0
    count = int(counted.sum())
    ignored = losses.masked_fill(~counted, -math.inf).topk(min(math.ceil(share * count), count // 20)).indices
    finite = losses.index_fill(0, ignored[losses[ignored].isinf()], 0)
    return float(weighted_mean(finite, weight.index_fill(0, ignored, 0)))


def correct(method: Method, output: Tensor, batch: Batch) -> Tensor:
    """Return 1 where a classification is right, `[batch]`; zeros for a regression."""
    if not method.task.classification:
        return torch.zeros_like(batch.weight)
    assert batch.y is not None
    return (output.argmax(dim=1) == batch.y).to(batch.weight.dtype)


_CHANGES = ("best", "best_epoch", "waiting_from", "stale", "passed")  # of `EarlyStopping`, over time


class EarlyStopping:
    """The lowest validation loss of each model, its epoch, and for how many epochs nothing worthwhile has happened.

    Args:
        patience: Epochs without a lower loss after which a model has ended. None: it never ends.
        least_epochs: No model ends before so many epochs.
        models: How many models are trained at once.
        worthwhile: The patience begins anew only when the loss has fallen by more than this.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.improves(loss, epoch) for epoch, loss in enumerate([0.5, 0.4, 0.6, 0.4])]
        [True, True, False, False]
        >>> stopping.best_epoch, stopping.ended()
        ([1], True)
    """

    def __init__(self, patience: int | None, least_epochs: int = 0, models: int = 1, worthwhile: float = 0.0):
        self.patience, self.least_epochs, self.worthwhile = patience, least_epochs, worthwhile
        self.best, self.waiting_from = [math.inf] * models, [math.inf] * models
        self.best_epoch: list[int | None] = [None] * models
        self.stale, self.passed = [0] * models, [0] * models

    @classmethod
    def of(
        cls,
        settings: ResolvedSettings,
        steps_per_epoch: int,
        frozen: int = 0,
        models: int = 1,
        classification: bool = True,
    ) -> EarlyStopping:
        """Return early stopping by the settings of a run.

        Args:
            settings: Patience, the least steps, and what of a classification is worthwhile.
            steps_per_epoch: Steps of the optimizer in an epoch.
            frozen: Steps until nothing is frozen any more; only then the patience begins.
            models: How many models are trained at once.
            classification: Whether losses are of classifications; every fall of another loss is worthwhile.
        """
        least = math.ceil(settings.least_steps / steps_per_epoch)
        if frozen:
            least = max(least, math.ceil(frozen / steps_per_epoch) + (settings.patience or 0))
        return cls(settings.patience, least, models, settings.worthwhile if classification else 0.0)

    def improves(self, loss: float, epoch: int, model: int = 0) -> bool:
        """Take note of a model's validation loss in an epoch (from 0); return whether it is the lowest so far."""
        self.stale[model] += 1
        self.passed[model] += 1
        if loss < self.waiting_from[model] - self.worthwhile:
            self.waiting_from[model], self.stale[model] = loss, 0
        if not loss < self.best[model]:  # nor if it is not a number
            return False
        self.best[model], self.best_epoch[model] = loss, epoch
        return True

    def ended(self, model: int = 0) -> bool:
        """Whether the loss of a model has not fallen enough for `patience` epochs, and it has had `least_epochs`."""
        enough = self.passed[model] >= self.least_epochs
        return self.patience is not None and self.stale[model] >= self.patience and enough

    def state(self) -> dict[str, Any]:
        """Return what changes over time."""
        return {name: getattr(self, name) for name in _CHANGES}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        # A state of an older version: every lower loss was worthwhile.
        passed = [stale + (0 if best is None else best + 1) for stale, best in zip(state["stale"], state["best_epoch"])]
        for name, value in ({"waiting_from": list(state["best"]), "passed": passed} | state).items():
            setattr(self, name, value)
