"""`auto`, the default method: `bayes-robust` with pooled experts, and a network over all modalities."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.learned_buffers import Learned
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeFloat, Rate
from consilience.corruption.random_faults import FAULTS
from consilience.data.folds import folds_as_groups, most_folds
from consilience.data.row_order import similar_blocks
from consilience.methods import Method, Prediction, Spec, Step, register
from consilience.methods.fusion.early import Early
from consilience.methods.opinions.bayes import Folds, RuleData, fit_rule
from consilience.methods.opinions.bayes_robust import BayesRobust
from consilience.methods.opinions.class_shares import cross_fit_shares
from consilience.methods.opinions.held_out_opinions import HeldOut
from consilience.methods.opinions.member_training import (
    ALL,
    EXPERT,
    Task,
    in_order_of_worth,
    say_left_out,
    train_members,
)
from consilience.methods.opinions.pooled_expert import PooledExpert, fit_pool, member_of
from consilience.methods.opinions.unimodal import Unimodal
from consilience.training import Log, Trainer
from consilience.training.lockstep import CrossFit, cross_fit_as_in, cross_fit_in_lockstep, reason_alone

logger = logging.getLogger("consilience")
# The network over all modalities, chosen with the encoder `auto` (docs/defaults.md).
_NETWORK = {"name": "mlp", "hidden": [256], "dropout": 0.3}
# Inputs of all modalities together beyond which there is no such network.
_WIDEST = 20_000
_HIDDEN_SHARE = 0.5  # of the modalities, in the copies from which the weights for incomplete samples are learned


class Member(NamedTuple):
    """A member of the pool, for `leaderboard`.

    Attributes:
        modality: What it sees; "all" for the network over all modalities and for the fused experts.
        name: "network", "linear", "trees", "experts" (the fused experts) or "expert" (of another kind of modality).
        loss: Log-loss on held-out samples, NaN where it was not measured.
        weight: Its weight in the pool.
    """

    modality: str
    name: str
    loss: float
    weight: float


class PresencePool(Learned):
    """Weights of two log-posteriors, with all modalities present and with some missing: `[2, 2]`."""

    weights: Tensor
    losses: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(weights=torch.tensor([[1.0, 0.0], [1.0, 0.0]]), losses=torch.full((2,), torch.nan))

    def forward(self, experts: Tensor, network: Tensor, whole: Tensor) -> Tensor:
        """Pool log-posteriors `[n, class]`; whole: the samples that lack no modality, booleans `[n]`."""
        weights = self.weights.to(experts)[(~whole).long()]
        return functional.log_softmax(weights[:, :1] * experts + weights[:, 1:] * network.to(experts), dim=1)


@register(
    "auto", equation="ln P(c | x) = a·ln P_experts(c | x) + b·ln P_network(c | x) + const, if all modalities are sound"
)
class AutoFusion(BayesRobust):
    """The default: `bayes-robust` with an expert of each modality that suits tables, and a network over all of them.

    The expert of a vector is a pool of a network, a logistic regression and decision trees, unless an encoder is
    chosen. The experts are fused as in `bayes-robust`, reliabilities included. If all modalities are vectors, there is
    also a network over their values side by side. It is trained with modalities hidden at random, and finds what only
    several modalities show. It is pooled with the fused experts where all modalities seem to be sound; the weights a
    and b have the lowest log-loss on held-out samples, one pair for samples with all modalities and one for others.
    Where a modality seems to be broken, the experts decide alone.

    All members are cross-fitted on the same folds, and training stops by the loss of held-out samples, so that no
    validation samples are needed. For a regression this is `bayes-robust`.

        ln P_sound(c | x) = a·ln P_experts(c | x) + b·ln P_network(c | x) + const

    Args:
        folds: Folds of the cross-fitting.
        faults, noise: As for `bayes-robust`.
        hidden: Probability of hiding a modality from the network over all of them in training.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        folds: Folds = 5,
        faults: Sequence[str] = tuple(FAULTS),
        noise: NonNegativeFloat | None = None,
        hidden: Rate = 0.25,
    ):
        vectors = [name for name, modality in spec.modalities.items() if modality.kind == "vector"]
        experts = spec.preferring(dict.fromkeys(vectors, "auto")) if spec.task.classification else spec
        super().__init__(experts, folds=folds, faults=faults, noise=noise)
        self.hidden = hidden
        width = sum(math.prod(modality.shape) for modality in spec.modalities.values())
        joined = spec.task.classification and len(vectors) == len(spec.modalities) > 1 and width <= _WIDEST
        self.network = self._build_network() if joined else None
        self.pool = PresencePool()
        self._fitted: CrossFit | None = None  # the network's, until `forget_held_out`

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Cross-fit the members in the order of their worth, then learn as `bayes-robust` does.

        After Ctrl-C, and at the end of a time limit, what is learned comes from the members that are trained by then.
        A second Ctrl-C leaves them as they are, uncalibrated and taken to be sound.
        """
        self._fitted = self._held_out = None
        self.folds = most_folds(train, self.folds)
        if not self.task.classification:
            super().fit(train, validation, trainer)
            return
        train, trainer = self._in_blocks(train, trainer)
        noisy = self._with_noise(train, trainer)
        outcome = train_members(in_order_of_worth(self._tasks(train, validation, trainer, noisy)), trainer)
        self._fitted = outcome.fitted.get((ALL, "network"))
        begun = outcome.stopped.modality if outcome.stopped is not None and outcome.stopped.name == EXPERT else None
        if begun is not None:  # it keeps its best weights, but said nothing of held-out samples
            for name in self.names:
                if name != begun:
                    self._join(name, outcome.of(name), train, noisy)
            logger.warning("%s was interrupted: members as trained so far, not calibrated", self.name)
            return
        try:
            fitted = [self._join(name, outcome.of(name), train, noisy) for name in self.names]
            untrained = [name for name in self.names if not outcome.of(name)]
            say_left_out(self.name, outcome, untrained, trainer.time_limit)
            opinions = np.stack([found.held_out.double().numpy() for found in fitted], axis=1)
            self._learn_rule(train, trainer, opinions, [found.methods for found in fitted], fitted[0].fold_of)
        except KeyboardInterrupt:
            if trainer.on_interrupt == "raise":
                raise
            trainer.logs.append(Log(interrupted=True))
            logger.warning("%s: learning how to fuse the members was interrupted: they are not calibrated", self.name)

    def _in_blocks(self, train: Samples, trainer: Trainer) -> tuple[Samples, Trainer]:
        """The samples in blocks, and how they are held out, where neighbouring ones resemble each other."""
        assert train.y is not None
        found = similar_blocks(train, self.task.encode(train.y), self.folds, trainer.seed)
        if found is None:
            return train, trainer
        blocks, correlation = found
        logger.warning(
            "%s: training rows next to each other resemble each other beyond their class (correlation %.2f), so the "
            "probabilities are learned from rows held out in %d blocks; if rows have groups, give them",
            self.name,
            correlation,
            blocks.max() + 1,
        )
        return train.ordered_by(blocks, None), replace(trainer, stop_by_rows=True)

    def _tasks(self, train: Samples, validation: Samples | None, trainer: Trainer, noisy: Trainer) -> list[Task]:
        """The cross-fitting of every member. noisy: the trainer of the experts."""
        tasks = [] if self.network is None else [Task(ALL, "network", partial(self._fit_network, train, validation))]
        common = train, validation, noisy, self.folds
        for modality, expert in self.experts.items():
            make = partial(self.expert, self.spec, modality)
            if not isinstance(expert, PooledExpert):
                tasks.append(Task(modality, EXPERT, partial(_fit_member, make, *common, expert), first=True))
                continue
            seconds = expert.trained_members(len(train), self.folds)
            quickest = min(seconds, key=lambda name: (name == "network", seconds[name]))
            for name, taken in seconds.items():
                of_member = partial(_fit_member, member_of(make, name), *common, expert.members[name])
                taken_at_once = None if name == "network" else taken
                tasks.append(Task(modality, name, of_member, name == quickest, taken_at_once))
        return tasks

    def _fit_network(self, train: Samples, validation: Samples | None, trainer: Trainer) -> CrossFit | None:
        """Cross-fit the network over all modalities."""
        assert self.network is not None
        alone = replace(trainer, modality_dropout=trainer.modality_dropout or self.hidden)
        if reason_alone(self.network, train, alone) is None:
            return cross_fit_in_lockstep(self.network, self._build_network, train, alone, self.folds)
        log = alone.part(1 / self.folds).run(self.network, train, validation)
        return cross_fit_as_in(log, self._build_network, train, alone, self.folds)

    def _join(self, modality: str, fitted: Mapping[str, CrossFit], train: Samples, trainer: Trainer) -> CrossFit:
        """The cross-fitting of a modality's expert from those of its members; without any it knows the class shares."""
        expert, make = self.experts[modality], partial(self.expert, self.spec, modality)
        if not fitted:
            return cross_fit_shares(expert, make, train, trainer, self.folds)
        if isinstance(expert, PooledExpert):
            return expert.pool_members(fitted, make, train, trainer)
        return fitted[EXPERT]

    def forget_held_out(self) -> None:
        """Free also the networks of the folds."""
        super().forget_held_out()
        self._fitted = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_fitted": None}

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Each expert's own loss, and that of the network, for a training loop of the user's."""
        losses = super().objective(prediction, batch, step)
        if self.network is None:
            return losses
        own = self.network.objective(self.network(batch), batch, step)
        return losses | {f"network {name}": loss for name, loss in own.items()}

    def leaderboard(self) -> list[Member]:
        """Return every member with its loss on held-out samples and its weight."""
        rows = []
        for modality, expert in self.experts.items():
            if isinstance(expert, PooledExpert):
                parts = zip(expert.members.names, expert.pool.losses.tolist(), expert.pool.weights.tolist())
                rows += [Member(modality, name, loss, weight) for name, loss, weight in parts]
            else:
                rows.append(Member(modality, EXPERT, math.nan, 1.0))
        if self.network is not None:
            losses, weights = self.pool.losses.tolist(), self.pool.weights[0].tolist()
            rows += [Member("all", name, *each) for name, *each in zip(("experts", "network"), losses, weights)]
        return rows

    def _build_network(self) -> Method:
        return Early(Spec(self.modalities, self.task), encoder=_NETWORK)

    def _if_sound(self, raw: Tensor, batch: Batch) -> Tensor:
        experts = super()._if_sound(raw, batch)
        if self.network is None or not any(of_network for _, of_network in self.pool.known("weights")):
            return experts
        network = self.network(batch).output.log_softmax(dim=1)
        return self.pool(experts, network, batch.present.all(dim=1))

    def _held_out_if_sound(
        self, fused: Tensor, fold: int, held: HeldOut, rows: np.ndarray, present: np.ndarray
    ) -> Tensor:
        if self._fitted is None or not self.pool.weights[:, 1].any():
            return fused
        columns = [self.names.index(name) for name in held.samples.names]
        fewer = held.samples.select(rows).replaced({}, present=present[:, columns])
        network = held.trainer.predict(self._fitted.methods[fold], fewer).output.double().log_softmax(dim=1)
        return self.pool(fused, network, torch.from_numpy(present.all(axis=1)))

    def _learn_if_sound(
        self,
        raw: Tensor,
        parts: Sequence[Samples],
        y: np.ndarray,
        weight: np.ndarray,
        fold_of: np.ndarray,
        trainer: Trainer,
    ) -> Tensor:
        experts = super()._learn_if_sound(raw, parts, y, weight, fold_of, trainer)
        if self._fitted is None:
            return experts
        samples, own = parts[0], raw[: len(y)]
        there = samples.present_among(self.names)
        hidden = there & (np.random.default_rng(trainer.seed).random(there.shape) < _HIDDEN_SHARE)
        hidden &= ~(hidden == there).all(axis=1, keepdims=True)  # at least one modality stays
        fewer = samples.replaced({}, present=(there & ~hidden)[:, [self.names.index(name) for name in samples.names]])
        groups = folds_as_groups(samples, fold_of)
        rules = [self._fit_rule(own, y, there, weight, fold_of != fold, groups) for fold in range(self.folds)]
        weights: list[np.ndarray] = []
        losses: list[float] = []
        for part, mask in ((samples, there), (fewer, fewer.present_among(self.names))):
            pair = np.stack(
                [
                    _by_fold(rules, own, mask, fold_of),
                    self._network_held_out([part], trainer, fold_of).numpy(),
                ]
            )
            chosen = mask.all(axis=1) == (part is samples)
            if not chosen.any():  # as where every sample lacks a modality
                chosen = np.ones(len(y), dtype=bool)
            weights.append(fit_pool(pair[:, chosen], y[chosen], weight[chosen]))
            losses = losses or [_log_loss(each[chosen], y[chosen], weight[chosen]) for each in pair]
        self.pool.learn(weights=np.stack(weights), losses=np.array(losses))
        masks = torch.from_numpy(np.concatenate([part.present_among(self.names) for part in parts]))
        return self.pool(experts, self._network_held_out(parts, trainer, fold_of).to(experts), masks.all(dim=1))

    def _network_held_out(self, parts: Sequence[Samples], trainer: Trainer, fold_of: np.ndarray) -> Tensor:
        """Log-probabilities of the network for every sample of the parts, out-of-fold: `[n, class]`."""
        assert self._fitted is not None
        found = []
        for part in parts:
            output = torch.zeros(len(part), self.task.outputs, dtype=torch.float64)
            for fold, network in enumerate(self._fitted.methods):
                rows = np.flatnonzero(fold_of == fold)
                if len(rows):
                    output[rows] = trainer.predict(network, part.select(rows)).output.double()
            found.append(output.log_softmax(dim=1))
        return torch.cat(found)

    def _fit_rule(
        self,
        raw: Tensor,
        y: np.ndarray,
        there: np.ndarray,
        weight: np.ndarray,
        rows: np.ndarray,
        groups: np.ndarray | None,
    ) -> BayesRule:
        """A rule like the method's own, learned from some samples; κ̂ of one without its group, if there are groups."""
        assert isinstance(self.rule, BayesRule)
        rule = BayesRule(len(self.names), self.task.outputs, kappa=self.rule.kappa).double()
        learned = RuleData(raw.numpy()[rows], y[rows], there[rows], weight[rows])
        fit_rule(rule, learned, None if groups is None else groups[rows])
        return rule


def _fit_member(
    make: Callable[[], Method],
    train: Samples,
    validation: Samples | None,
    noisy: Trainer,
    folds: int,
    member: Unimodal,
    trainer: Trainer,
) -> CrossFit | None:
    """Cross-fit a member with the trainer of the experts, in the time of the other one."""
    return member.cross_fit(make, train, validation, replace(noisy, deadline=trainer.deadline), folds)


def _by_fold(rules: Sequence[BayesRule], raw: Tensor, mask: np.ndarray, fold_of: np.ndarray) -> np.ndarray:
    """The log-posterior of every sample by the rule that was learned without its fold: `[n, class]`."""
    output = torch.zeros(len(raw), raw.shape[2], dtype=torch.float64)
    for fold, rule in enumerate(rules):
        rows = np.flatnonzero(fold_of == fold)
        if len(rows):
            output[rows] = rule(raw[rows].double(), torch.from_numpy(mask[rows])).double()
    return output.numpy()


def _log_loss(log_p: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    return float(-(weight * log_p[np.arange(len(y)), y]).sum() / weight.sum())
