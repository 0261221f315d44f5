"""The theorem without gradients on one CPU core at the speed of memory: one cache-sized block of rows at a time.

The common case is one pass over the logits. Blocks for which its arithmetic is not exact go to the reference in
`posterior`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from consilience.bayes.opinion_inputs import Opinions
from consilience.bayes.posterior import expert_evidence, log_posterior

# The sums of a block stay in cache between the passes over them; the logits are read once.
BLOCK_BYTES = 3 * 2**19
# On other devices a block only limits the memory that the reference uses.
DEVICE_BYTES = 2**28
# Beyond this, an offset that an expert adds to every class costs digits of the differences between classes.
LARGE_OFFSET = 64.0
SAFE_SUM = 1e25
LOG2_E, LN_2 = math.log2(math.e), math.log(2)


def fuse_in_blocks(
    opinions: Opinions,
    log_prior: Tensor,
    log_target: Tensor,
    weights: Tensor | None,
    reliability: Tensor | None,
    log_kappa: Tensor | None,
    out: Tensor,
) -> Tensor:
    """Write the log-posterior `[row, class]` to `out` and return the conflicts, booleans `[row]`.

    Args:
        opinions: The experts' logits.
        log_prior: `[expert or 1, class]`.
        log_target: `[class]`.
        weights, reliability: `[row, expert]` or None.
        log_kappa: `[row, class]` or None.
        out: `[row, class]`.
    """
    on_cpu = opinions.device.type == "cpu"
    width = opinions.classes if on_cpu else opinions.classes * opinions.experts
    rows = max(1, (BLOCK_BYTES if on_cpu else DEVICE_BYTES) // (width * opinions.compute_dtype.itemsize))
    conflict = torch.zeros(len(opinions), dtype=torch.bool, device=opinions.device)
    fast = None
    if on_cpu and reliability is None and log_prior.isfinite().all() and len(opinions):
        fast = _FastPath(opinions, log_prior, log_target, min(rows, len(opinions)))
    for start in range(0, len(opinions), rows):
        part = slice(start, start + rows)
        logits = opinions.rows(part).to(opinions.compute_dtype)
        w, kappa = (None if values is None else values[part] for values in (weights, log_kappa))
        if fast is None or not fast.fuse(logits, w, kappa, out[part]):
            rho = None if reliability is None else reliability[part]
            evidence, excluded = expert_evidence(logits, log_prior, w, rho, label=opinions.label, first_row=start)
            posterior, conflict[part] = log_posterior(evidence.sum(1), excluded.any(1), log_target, kappa)
            out[part] = posterior
    return conflict


class _FastPath:
    """Plain sums in base 2 (whose power is twice as fast), with buffers that every block uses again."""

    def __init__(self, opinions: Opinions, log_prior: Tensor, log_target: Tensor, rows: int):
        self.sums = torch.empty(rows, opinions.classes, dtype=opinions.compute_dtype)
        self.other = torch.empty_like(self.sums)
        self.total = torch.empty(rows, 1, dtype=opinions.compute_dtype)
        self.equal = torch.full((rows, opinions.experts), LOG2_E, dtype=opinions.compute_dtype)
        # A term that is the same for all classes need not be added.
        constant = log_target - log_prior.expand(opinions.experts, -1).sum(0)  # of the priors, where all are active
        self.constant = None if bool((constant == constant[0]).all()) else constant * LOG2_E
        same = bool((log_prior == log_prior[:, :1]).all())
        self.log_prior = None if same else log_prior * LOG2_E
        self.log_target = None if bool((log_target == log_target[0]).all()) else log_target * LOG2_E
        self.skips_inactive = False
        self.copy: Tensor | None = None

    def fuse(self, logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None, out: Tensor) -> bool:
        """Write the block's log-posterior to `out`, or return False where this arithmetic is not exact."""
        if weights is not None and bool((weights < 0).any()) and not logits[weights < 0].isfinite().all():
            return False  # a negative weight would turn +inf into an excluded class
        if self._in_one_pass(logits, weights, log_kappa, out):
            return True
        if not self.skips_inactive and weights is not None and not logits[weights == 0].isfinite().all():
            # 0 · NaN is NaN. If one block has such values, the next is likely to have them too.
            self.skips_inactive = True
            if self._in_one_pass(logits, weights, log_kappa, out):
                return True
        return self._without_offsets(logits, weights, log_kappa, out)

    def _in_one_pass(self, logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None, out: Tensor) -> bool:
        rows = len(logits)
        scores = self._sum(logits, weights, log_kappa)
        # Checking the first class is enough. If |w z| is small for every expert's first class and the sums are of
        # ordinary size, then w z is ordinary for the winning class too, or an expert is strongly against it relative to
        # its own first class, and digits would be lost whatever offset was removed. (Read while it is in cache.)
        first = logits[:, :, 0] if weights is None else torch.where(weights == 0, 0, logits[:, :, 0] * weights)
        if not float(first.abs().max()) <= LARGE_OFFSET:  # also for NaN
            return False
        # Powers are written to where the answer will be, so that its memory is fetched while they are computed.
        inputs = [values.numpy() for values in (logits, log_kappa) if values is not None]
        apart = out.dtype == scores.dtype and not any(np.may_share_memory(out.numpy(), values) for values in inputs)
        powers = torch.exp2(scores, out=out if apart else self.other[:rows])
        total = torch.sum(powers, 1, keepdim=True, out=self.total[:rows])
        low, high = (float(value) for value in total.aminmax())
        if not (low > 1 / SAFE_SUM and high < SAFE_SUM):
            return False
        torch.add(total.log_().neg_(), scores, alpha=LN_2, out=out)
        return True

    def _without_offsets(self, logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None, out: Tensor) -> bool:
        if self.copy is None:
            self.copy = torch.empty_like(logits)
        copy = self.copy[: len(logits)].copy_(logits)
        if weights is not None:
            copy.numpy()[(weights == 0).numpy()] = 0
        top = copy.amax(-1, keepdim=True)
        if not top.isfinite().all():
            return False
        scores = self._sum(copy.sub_(top), weights, log_kappa).mul_(LN_2)
        if not scores.amax(-1).isfinite().all():
            return False
        out.copy_(torch.log_softmax(scores, -1, out=self.other[: len(copy)]))
        return True

    def _sum(self, logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None) -> Tensor:
        """ln π_target + Σ_j w_j (z_j − ln π_j) + ln κ, in base 2 and up to a constant: `[row, class]`."""
        rows = len(logits)
        if weights is not None and self.skips_inactive:
            scores = _sum_active(logits, weights * LOG2_E)
        else:
            # NumPy's einsum reads memory once, in order; a batched matrix product is half as fast.
            factors = self.equal[:rows] if weights is None else weights * LOG2_E
            scores = self.sums[:rows]
            np.einsum("bn,bnc->bc", factors.numpy(), logits.numpy(), out=scores.numpy())
        if weights is None:
            if self.constant is not None:
                scores.add_(self.constant)
        else:
            if self.log_prior is not None and len(self.log_prior) == 1:
                scores.addcmul_(weights.sum(1, keepdim=True), self.log_prior, value=-1)
            elif self.log_prior is not None:
                prior = self.other[:rows]
                np.einsum("bn,nc->bc", weights.numpy(), self.log_prior.numpy(), out=prior.numpy())
                scores.sub_(prior)
            if self.log_target is not None:
                scores.add_(self.log_target)
        if log_kappa is not None:
            scores.add_(log_kappa, alpha=LOG2_E)
        return scores


def _sum_active(logits: Tensor, weights: Tensor) -> Tensor:
    """Σ_j w_j z_j `[row, class]`; the logits of experts of weight 0 are not read."""
    active = weights != 0
    indices = active.flatten().nonzero().flatten()
    return functional.embedding_bag(
        indices,
        logits.reshape(-1, logits.shape[2]),
        offsets=functional.pad(active.sum(1).cumsum(0), (1, 0)),
        mode="sum",
        per_sample_weights=weights.flatten()[indices],
        include_last_offset=True,
    )
