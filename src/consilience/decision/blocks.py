"""The theorem on one CPU core at the speed of memory: a cache-sized block of rows at a time, for when no gradient is
wanted.

The common case is one pass over the logits. Whatever it cannot be sure of, it leaves to the reference in `posterior`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from consilience.decision.opinions import Opinions
from consilience.decision.posterior import conclude, weigh

# The sums of a block stay in cache between the passes over them; the logits pass through once.
BLOCK_BYTES = 2**21
# On other devices a block only bounds what the reference holds at a time.
DEVICE_BYTES = 2**28
# Beyond this, what an expert adds to every class eats into the digits that tell classes apart.
LARGE_OFFSET = 64.0
SAFE_SUM = 1e25
LOG2_E, LN_2 = math.log2(math.e), math.log(2)


def fuse_blocks(
    opinions: Opinions,
    log_prior: Tensor,
    log_target: Tensor,
    weights: Tensor | None,
    reliability: Tensor | None,
    log_kappa: Tensor | None,
    out: Tensor,
) -> Tensor:
    """Write the log-posterior `[row, class]` to `out`; where the experts contradict each other: booleans `[row]`."""
    on_cpu = opinions.device.type == "cpu"
    width = opinions.classes if on_cpu else opinions.classes * opinions.experts
    rows = max(1, (BLOCK_BYTES if on_cpu else DEVICE_BYTES) // (width * opinions.wide.itemsize))
    conflict = torch.zeros(len(opinions), dtype=torch.bool, device=opinions.device)
    plain = None
    if on_cpu and reliability is None and log_prior.isfinite().all() and len(opinions):
        plain = _Plain(opinions, log_prior, log_target, min(rows, len(opinions)))
    for start in range(0, len(opinions), rows):
        part = slice(start, start + rows)
        logits = opinions.rows(part).to(opinions.wide)
        w, kappa = (None if one is None else one[part] for one in (weights, log_kappa))
        if plain is None or not plain.fuse(logits, w, kappa, out[part]):
            rho = None if reliability is None else reliability[part]
            evidence, barred = weigh(logits, log_prior, w, rho, label=opinions.label, first_row=start)
            posterior, conflict[part] = conclude(evidence.sum(1), barred.any(1), log_target, kappa)
            out[part] = posterior
    return conflict


class _Plain:
    """Straight arithmetic in base 2 (its power is twice as fast), with buffers that are used again for every block."""

    def __init__(self, opinions: Opinions, log_prior: Tensor, log_target: Tensor, rows: int):
        self.sums = torch.empty(rows, opinions.classes, dtype=opinions.wide)
        self.other = torch.empty_like(self.sums)
        self.total = torch.empty(rows, 1, dtype=opinions.wide)
        self.equal = torch.full((rows, opinions.experts), LOG2_E, dtype=opinions.wide)
        # What does not differ between classes need not be added.
        everyone = log_target - log_prior.expand(opinions.experts, -1).sum(0)
        self.constant = None if bool((everyone == everyone[0]).all()) else everyone * LOG2_E
        priors = torch.cat([-log_prior, log_target[None]])
        self.priors = None if bool((priors == priors[:, :1]).all()) else priors * LOG2_E
        self.copy: Tensor | None = None

    def fuse(self, logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None, out: Tensor) -> bool:
        """Write the block's log-posterior to `out`, or return False where this arithmetic cannot be trusted."""
        if self.copy is None:
            if self._in_one_pass(logits, weights, log_kappa, out):
                return True
            # What one block needs, the next is likely to need: from now on a copy, rid of what silent experts hold.
            self.copy = torch.empty_like(logits)
        copy = self.copy[: len(logits)].copy_(logits)
        if weights is not None:
            copy.numpy()[(weights == 0).numpy()] = 0
        return self._in_one_pass(copy, weights, log_kappa, out) or self._without_offsets(copy, weights, log_kappa, out)

    def _in_one_pass(self, logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None, out: Tensor) -> bool:
        rows = len(logits)
        scores = self._add_up(logits, weights, log_kappa)
        # One class tells enough. Say |w z| is small for every expert's first class, and the sums are of ordinary size.
        # Then either w z is ordinary for the winning class too, or an expert is strongly against it relative to its
        # own first class, and digits would be lost whatever offset was removed. (Read now that it is in cache.)
        first = logits[:, :, 0] if weights is None else logits[:, :, 0] * weights
        if not float(first.abs().max()) <= LARGE_OFFSET:  # NaN is not
            return False
        powers, total = torch.exp2(scores, out=self.other[:rows]), self.total[:rows]
        torch.sum(powers, 1, keepdim=True, out=total)
        least, most = (float(one) for one in total.aminmax())
        if not (least > 1 / SAFE_SUM and most < SAFE_SUM):
            return False
        torch.add(total.log_().neg_(), scores, alpha=LN_2, out=out)
        return True

    def _without_offsets(self, copy: Tensor, weights: Tensor | None, log_kappa: Tensor | None, out: Tensor) -> bool:
        top = copy.amax(-1, keepdim=True)
        if not top.isfinite().all():
            return False
        scores = self._add_up(copy.sub_(top), weights, log_kappa).mul_(LN_2)
        if not scores.amax(-1).isfinite().all():
            return False
        out.copy_(torch.log_softmax(scores, -1, out=self.other[: len(copy)]))
        return True

    def _add_up(self, logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None) -> Tensor:
        """ln π_target + Σ_j w_j (z_j − ln π_j) + ln κ, in base 2 and up to a constant: `[row, class]`."""
        rows = len(logits)
        scores = self.sums[:rows]
        # NumPy's einsum walks through memory once, in order; a batched matrix product is half as fast.
        factors = self.equal[:rows] if weights is None else weights * LOG2_E
        np.einsum("bn,bnc->bc", factors.numpy(), logits.numpy(), out=scores.numpy())
        if weights is None:
            if self.constant is not None:
                scores.add_(self.constant)
        elif self.priors is not None:
            counted = weights.sum(1, keepdim=True) if len(self.priors) == 2 else weights
            counted = torch.cat([counted, torch.ones_like(counted[:, :1])], 1)
            prior = self.other[:rows]
            np.einsum("bn,nc->bc", counted.numpy(), self.priors.numpy(), out=prior.numpy())
            scores.add_(prior)
        if log_kappa is not None:
            scores.add_(log_kappa, alpha=LOG2_E)
        return scores
