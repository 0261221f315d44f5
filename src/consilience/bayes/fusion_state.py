"""The theorem step by step: opinions are added and withdrawn, and two states are merged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes import opinion_inputs as inputs
from consilience.bayes.posterior import active_experts, expert_evidence, log_posterior
from consilience.core.errors import InputError, name_rows
from consilience.core.settings import checked


class FusionState:
    """The sum of the opinions so far. The posterior is always that of `fuse` on the opinions that are left.

    The first opinion decides between arrays and tensors, the type, the device and the shape `[...]` of the rows.
    Excluded classes are counted, so that even an opinion of −inf can be withdrawn.

    Args:
        prior: The experts' class prior `[class]`, for opinions that come without their own.
        target_prior: The class prior `[class]` where the posterior will be used. None: the mean of the priors of the
            opinions, as in `fuse`; `prior`, if none has a prior of its own.

    Example:
        >>> state = FusionState([0.5, 0.25, 0.25])
        >>> state.update(np.log([0.7, 0.2, 0.1])).update(np.log([0.5, 0.1, 0.4]))
        FusionState: 3 classes, shape [], 2 opinions
        >>> np.exp(state.log_posterior()).round(3)
        array([0.745, 0.085, 0.17 ])
        >>> np.exp(state.retract(np.log([0.7, 0.2, 0.1])).log_posterior()).round(3)
        array([0.5, 0.1, 0.4])
    """

    @checked
    def __init__(self, prior: Any, target_prior: Any = None):
        size = np.shape(prior)
        if len(size) != 1:
            raise InputError(f"prior must have shape [class], got {list(size)}")
        self.prior = inputs.read_distribution("prior", prior, size[0])
        self._target: np.ndarray | None = None
        if target_prior is not None:
            self._target = inputs.read_distribution("target_prior", target_prior, size[0])
        self.count = 0
        # How many opinions came with a prior of their own, and the sum of those.
        self._own_count, self._own_priors = 0, np.zeros(size[0])
        self._like: inputs.Opinions | None = None
        # The sum and its rounding error, so that a value that is added and withdrawn leaves nothing behind.
        self._sum = self._error = self._excluded = torch.zeros(())
        self._heard = torch.zeros((), dtype=torch.int64)  # active experts, [row]

    @property
    def target_prior(self) -> np.ndarray:
        """The class prior `[class]` of the posterior."""
        if self._target is not None:
            return self._target
        if not self._own_count:
            return self.prior
        return ((self.count - self._own_count) * self.prior + self._own_priors) / self.count

    @checked
    def update(
        self,
        opinion: Any,
        *,
        prior: Any = None,
        present: Any = None,
        weight: Any = None,
        reliability: Any = None,
        from_probabilities: bool = False,
    ) -> FusionState:
        """Add one expert's opinion.

        Args:
            opinion: Logits `[..., class]`.
            prior: The expert's class prior `[class]`. None: that of the state.
            present, weight, reliability: `[...]`, as for `fuse`.
            from_probabilities: Whether the opinion is probabilities instead of logits.

        Returns:
            The state itself.
        """
        return self._combine(1, opinion, prior, (present, weight, reliability), from_probabilities)

    @checked
    def retract(
        self,
        opinion: Any,
        *,
        prior: Any = None,
        present: Any = None,
        weight: Any = None,
        reliability: Any = None,
        from_probabilities: bool = False,
    ) -> FusionState:
        """Withdraw an opinion, given as in `update` with the same arguments; in any order.

        Raises:
            InputError: If it cannot have been added: there is no opinion left, or more active experts, excluded classes
                or priors would be withdrawn than were added. Other values are not compared with those that were added.
        """
        return self._combine(-1, opinion, prior, (present, weight, reliability), from_probabilities)

    @checked
    def merge(self, other: FusionState) -> FusionState:
        """Add all opinions of another state, which must have the same target prior.

        If both were given one, their `prior` may differ; the opinions that came without their own are then as if they
        had come with that of their state, here and in `retract`.
        """
        mine, others = (state.prior if state._target is None else state._target for state in (self, other))
        if (self._target is None) != (other._target is None) or not np.array_equal(mine, others):
            raise InputError(
                f"states with different target priors cannot be merged: {mine.tolist()} and {others.tolist()}"
            )
        if other._like is not None:
            self._check_like(other._like)
            self._add(other._sum, other._excluded)
            self._error = self._error + other._error
            self._heard = self._heard + other._heard
        own_count, own_priors = other._own_count, other._own_priors
        if not np.array_equal(self.prior, other.prior):
            own_count, own_priors = other.count, own_priors + (other.count - own_count) * other.prior
        self.count += other.count
        self._own_count, self._own_priors = self._own_count + own_count, self._own_priors + own_priors
        return self

    @checked
    def log_posterior(self, log_kappa: Any = None, *, return_conflict: bool = False) -> Any:
        """Return the log-posterior `[..., class]` of the opinions so far; without any, the target prior.

        Args:
            log_kappa: ln κ `[..., class]` of the observations together; ignored where fewer than two are active.
            return_conflict: Whether to return also booleans `[...]`, True where every class is excluded; the answer
                there is the target prior.
        """
        # A state of no rows is empty, but it has rows to be like.
        like = self._like if self._like is not None else inputs.read_opinions(np.zeros((1, len(self.prior))))
        rows = torch.zeros(len(like), like.classes, dtype=like.compute_dtype, device=like.device)
        kappa = inputs.read_log_kappa(log_kappa, like)
        if kappa is not None:
            kappa = kappa.masked_fill((self._heard.to(kappa.device).expand(len(like)) < 2)[:, None], 0)
        posterior, conflict = log_posterior(
            rows + self._sum + self._error, (rows + self._excluded) > 0, inputs.log_of(self.target_prior, like), kappa
        )
        if like.numpy:
            posterior = posterior.detach()
        shaped = like.shaped(posterior.to(like.dtype))
        return (shaped, like.shaped(conflict)) if return_conflict else shaped

    def __repr__(self) -> str:
        shape = "" if self._like is None else f", shape {list(self._like.leading)}"
        return f"FusionState: {len(self.prior)} classes{shape}, {self.count} opinion{'s' if self.count != 1 else ''}"

    def _combine(
        self, sign: int, opinion: Any, prior: Any, factors: tuple[Any, Any, Any], from_probabilities: bool
    ) -> FusionState:
        """Add (sign 1) or withdraw (sign −1) an opinion; `factors` are present, weight and reliability."""
        values = opinion if isinstance(opinion, Tensor) else np.asarray(opinion)
        if not values.ndim:
            raise InputError("an opinion must have shape [..., class], got []")
        given = inputs.read_opinions(values[..., None, :])
        if given.classes != len(self.prior):
            raise InputError(f"an opinion must have the state's {len(self.prior)} classes, got {given.classes}")
        base = self.prior[None] if prior is None else inputs.read_prior(prior, 1, given.classes)
        has_own = not np.array_equal(base[0], self.prior)  # naming the state's prior is the same as leaving it out
        columns = (_as_column(value) for value in factors)
        weights, rho = inputs.read_weights_and_reliability(given, *columns)
        if from_probabilities:
            given = inputs.to_logits(given, active_experts(weights, rho))
        logits = given.rows().to(given.compute_dtype)
        evidence, excluded = expert_evidence(
            logits, inputs.log_of(base, given), weights, rho, label=lambda _: "the expert"
        )
        active = active_experts(weights, rho)
        heard = torch.ones_like(logits[:, 0, 0], dtype=torch.int64) if active is None else active[:, 0].to(torch.int64)
        if sign < 0:
            self._check_added(excluded[:, 0], heard, has_own)
        self._check_like(given)
        self._add(sign * evidence[:, 0], sign * excluded[:, 0].to(torch.int64))
        self._heard = self._heard + sign * heard
        self.count += sign
        if has_own:
            self._own_count += sign
            self._own_priors = self._own_priors + sign * base[0]
        return self

    def _check_added(self, excluded: Tensor, heard: Tensor, has_own: bool) -> None:
        """Check that an opinion that is withdrawn can be one of those that were added."""
        if self._like is None or self.count < 1:
            reason = "the state has none"
        elif has_own and self._own_count < 1:
            reason = "none was added with a prior of its own"
        elif not has_own and self.count == self._own_count:
            reason = "all were added with a prior of their own, which must be given here too"
        elif heard.shape == self._heard.shape and bool((self._heard < heard).any()):
            rows = (self._heard < heard).nonzero().flatten().cpu().numpy()
            reason = f"no expert was active there ({name_rows(rows)})"
        elif excluded.shape == self._excluded.shape and bool((self._excluded < excluded).any()):
            rows = (self._excluded < excluded).any(1).nonzero().flatten().cpu().numpy()
            reason = f"it excludes classes that none excluded ({name_rows(rows)})"
        else:
            return
        raise InputError(f"retract: this opinion was never added: {reason}")

    def _check_like(self, given: inputs.Opinions) -> None:
        """Check that rows, kind and device are those of the first opinion."""
        if self._like is None:
            shape = (0, 1, given.classes)  # the opinion itself may be large and is not kept
            self._like = replace(given, parts=(), whole=torch.empty(shape, dtype=given.dtype, device=given.device))
            return
        first = self._like
        if given.leading != first.leading:
            raise InputError(
                f"an opinion must have the state's rows, shape {[*first.leading, first.classes]}, got "
                f"{[*given.leading, given.classes]}"
            )
        if given.numpy != first.numpy or given.device != first.device:
            raise InputError("a state takes either arrays or tensors of one device, not both")

    def _add(self, evidence: Tensor, excluded: Tensor) -> None:
        total = self._sum + evidence
        # Knuth's exact error of an addition.
        share = total - self._sum
        self._error = self._error + ((self._sum - (total - share)) + (evidence - share))
        self._sum, self._excluded = total, self._excluded + excluded


def _as_column(values: Any) -> Any:
    if values is None or isinstance(values, Tensor):
        return values if values is None or not values.ndim else values[..., None]
    return np.asarray(values)[..., None]
