"""The theorem one observation at a time: opinions come, are withdrawn, and two tallies become one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.opinion_inputs import (
    Opinions,
    log_of,
    read_distribution,
    read_log_kappa,
    read_opinions,
    read_present,
    read_prior,
    read_weights,
    to_logits,
)
from consilience.bayes.posterior import conclude, speakers, weigh
from consilience.core.errors import InputError


class FusionState:
    """What has been heard so far. After any sequence of calls the posterior is that of `fuse` on what is left.

    prior: of the experts, `[class]`, where an opinion does not come with its own · target_prior: `[class]`, where the
    posterior will be used; None: the prior.

    Classes ruled out are counted, not added up, so that even an opinion of −inf can be withdrawn. The first opinion
    decides between arrays and tensors, the type, the device and the shape `[...]` of the rows.

    >>> state = FusionState([0.5, 0.25, 0.25])
    >>> state.update(np.log([0.7, 0.2, 0.1])).update(np.log([0.5, 0.1, 0.4]))
    FusionState: 3 classes, shape [], 2 opinions
    >>> np.exp(state.log_posterior()).round(3)
    array([0.745, 0.085, 0.17 ])
    >>> np.exp(state.retract(np.log([0.7, 0.2, 0.1])).log_posterior()).round(3)
    array([0.5, 0.1, 0.4])
    """

    def __init__(self, prior: Any, target_prior: Any = None):
        size = np.shape(prior)
        if len(size) != 1:
            raise InputError(f"prior must have shape [class], got {list(size)}")
        self.prior = read_distribution("prior", prior, size[0])
        self.target_prior = self.prior
        if target_prior is not None:
            self.target_prior = read_distribution("target_prior", target_prior, size[0])
        self.count = 0
        self._like: Opinions | None = None
        # The sum and, separately, the digits that did not fit into it: what is added and taken away again leaves
        # nothing behind, however large it was.
        self._sum = self._rest = self._barred = torch.zeros(())

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
        """Hear one expert: logits `[..., class]`; its prior `[class]`; present, weight, reliability: `[...]`."""
        return self._hear(1, opinion, prior, present, weight, reliability, from_probabilities)

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
        """Withdraw what `update` was given with the same arguments, in any order."""
        return self._hear(-1, opinion, prior, present, weight, reliability, from_probabilities)

    def merge(self, other: FusionState) -> FusionState:
        """Take over everything another state has heard. Both must speak of the same target prior."""
        if not isinstance(other, FusionState):
            raise InputError(f"only a FusionState can be merged, got {type(other).__name__}")
        if not np.array_equal(self.target_prior, other.target_prior):
            raise InputError(
                f"states with different target priors cannot be merged: {self.target_prior.tolist()} and "
                f"{other.target_prior.tolist()}"
            )
        if other._like is not None:
            self._join(other._like)
            self._add(other._sum, other._barred)
            self._rest = self._rest + other._rest
        self.count += other.count
        return self

    def log_posterior(self, log_kappa: Any = None, *, return_conflict: bool = False) -> Any:
        """The log-posterior `[..., class]` of what has been heard, the target prior where that is nothing.

        log_kappa: ln κ `[..., class]` of the observations together · return_conflict: also return where every class is
        ruled out, booleans `[...]`; the answer there is the target prior.
        """
        like = self._like or read_opinions(np.zeros((1, len(self.prior))))
        rows = torch.zeros(len(like), like.classes, dtype=like.wide, device=like.device)
        kappa = read_log_kappa(log_kappa, like)
        posterior, conflict = conclude(
            rows + self._sum + self._rest, (rows + self._barred) > 0, log_of(self.target_prior, like), kappa
        )
        if like.numpy:
            posterior = posterior.detach()
        shaped = like.shaped(posterior.to(like.dtype))
        return (shaped, like.shaped(conflict)) if return_conflict else shaped

    def __repr__(self) -> str:
        shape = "" if self._like is None else f", shape {list(self._like.leading)}"
        return f"FusionState: {len(self.prior)} classes{shape}, {self.count} opinion{'s' if self.count != 1 else ''}"

    def _hear(
        self,
        sign: int,
        opinion: Any,
        prior: Any,
        present: Any,
        weight: Any,
        reliability: Any,
        probabilities: bool,
    ) -> FusionState:
        values = opinion if isinstance(opinion, Tensor) else np.asarray(opinion)
        if not values.ndim:
            raise InputError("an opinion must have shape [..., class], got []")
        given = read_opinions(values[..., None, :])
        if given.classes != len(self.prior):
            raise InputError(f"an opinion must have the state's {len(self.prior)} classes, got {given.classes}")
        base = self.prior[None] if prior is None else read_prior(prior, 1, given.classes)
        mask = read_present(_as_column(present), given)
        weights = read_weights("weights", _as_column(weight), given, mask)
        rho = read_weights("reliability", _as_column(reliability), given, mask)
        if weights is None and mask is not None:
            weights = mask.to(given.wide)
        if probabilities:
            given = to_logits(given, speakers(weights, rho))
        logits = given.rows().to(given.wide)
        evidence, barred = weigh(logits, log_of(base, given), weights, rho, label=lambda _: "the expert")
        self._join(given)
        self._add(sign * evidence[:, 0], sign * barred[:, 0].to(torch.int64))
        self.count += sign
        return self

    def _join(self, given: Opinions) -> None:
        """Agree on rows, kind, type and device."""
        if self._like is None:
            shape = (0, 1, given.classes)  # not the opinion itself, which may be large
            self._like = replace(given, parts=(), whole=torch.empty(shape, dtype=given.dtype, device=given.device))
            return
        known = self._like
        if given.leading != known.leading:
            raise InputError(
                f"an opinion must have the state's rows, shape {[*known.leading, known.classes]}, got "
                f"{[*given.leading, given.classes]}"
            )
        if given.numpy != known.numpy or given.device != known.device:
            raise InputError("a state is fed either arrays or tensors of one device, not both")

    def _add(self, evidence: Tensor, barred: Tensor) -> None:
        total = self._sum + evidence
        # Knuth's exact error of an addition.
        share = total - self._sum
        self._rest = self._rest + ((self._sum - (total - share)) + (evidence - share))
        self._sum, self._barred = total, self._barred + barred


def _as_column(values: Any) -> Any:
    if values is None or isinstance(values, Tensor):
        return values if values is None or not values.ndim else values[..., None]
    return np.asarray(values)[..., None]
