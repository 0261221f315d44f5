"""The samples that reliability was learned from, to judge them as it judges new ones.

A sample fits statistics that were learned from it better than any new sample: it is one of its own nearest neighbours,
and the covariances are in part its own. It would therefore look unusual. What was measured of it without its fold is
kept here, and used instead where the sample is seen again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from consilience.bayes.anomaly_scores import SHARED
from consilience.bayes.learned_buffers import Learned
from consilience.core.tracing import is_traced

# Scores, which are logarithms, that differ by less are the same: features that a network computes in 32 bits differ by
# up to 1e-6 with the size of the batch.
_SAME = 1e-5
# A sample is recognised by this many modalities, or by all that it has: a single one may be swapped in from another.
_MODALITIES = 2
# The samples of the same norm that are compared, for each modality.
_CANDIDATES = 4


class LearnedRows(Learned):
    """What was measured of the samples learned from, out-of-fold. Before `fit` there are none.

    Samples are recognised by their scores, as the statistics that were learned from all of them give them.

    Args:
        scores: The number of scores of each modality.
        pairs: The modalities of each pair.

    >>> scores, present = torch.arange(24.0).reshape(2, 3, 4).unbind(), torch.ones(3, 2, dtype=torch.bool)
    >>> known = LearnedRows([4, 4], []).fit(scores, present, [torch.zeros(3, 4)] * 2, None)
    >>> known.find([score[1:] + torch.tensor([[0.0], [0.1]]) for score in scores], present[1:])
    tensor([[ 1,  1],
            [-1, -1]])
    """

    marks: Tensor
    norms: Tensor
    order: Tensor
    scores: Tensor
    evidence: Tensor

    def __init__(self, scores: Sequence[int], pairs: Sequence[tuple[int, int]]):
        super().__init__()
        self.sizes, self.pairs = list(scores), list(pairs)
        self.learn(
            marks=torch.zeros(0, len(scores), SHARED),
            norms=torch.zeros(len(scores), 0),
            order=torch.zeros(len(scores), 0, dtype=torch.int64),
            scores=torch.zeros(0, sum(scores)),
            evidence=torch.zeros(0, len(pairs)),
        )

    def fit(
        self, own: Sequence[Tensor], present: Tensor, scores: Sequence[Tensor], evidence: Tensor | None
    ) -> LearnedRows:
        """Keep what was measured of some samples.

        Args:
            own: Scores by what was learned from these samples too: of each modality `[n, score]`.
            present: `[n, modality]`.
            scores: Out-of-fold, of each modality `[n, score]`; further columns are not of the input, and not kept.
            evidence: Of the pairs, out-of-fold, `[n, pair]`; None without pairs.
        """
        marks = _marks(own).masked_fill(~present[..., None], torch.inf)
        norms, order = marks[..., 0].T.contiguous().sort(dim=1)
        self.learn(
            marks=marks,
            norms=norms,
            order=order,
            scores=torch.cat([score[:, :size] for score, size in zip(scores, self.sizes)], dim=1),
            evidence=torch.zeros(len(present), 0) if evidence is None else evidence,
        )
        return self

    def find(self, own: Sequence[Tensor], present: Tensor) -> Tensor:
        """Which sample each modality is of, `[n, modality]`; −1 where it is of none or missing. Shapes as for `fit`."""
        found = torch.full(present.shape, -1, device=present.device)
        if not len(self.marks):
            return found
        marks = _marks(own)
        norms, known = marks[..., 0].T.contiguous(), self.norms.to(marks)
        if is_traced():
            return self._find_everywhere(marks, norms, known, present)
        first = torch.searchsorted(known, norms - _SAME)
        alike = (torch.searchsorted(known, norms + _SAME) > first) & present.T
        rows = torch.where(alike.any(dim=0))[0]
        if not len(rows):
            return found
        place = (first[:, rows, None] + torch.arange(_CANDIDATES, device=first.device)).clamp(max=len(self.marks) - 1)
        candidates = self.order.gather(1, place.flatten(1)).view_as(place).transpose(0, 1).flatten(1)
        near = (self.marks.to(marks)[candidates] - marks[rows, None]).abs() <= _SAME
        same = near.all(dim=3) & present[rows, None]
        count, best = same.sum(dim=2).max(dim=1)
        enough = (count > 0) & (count >= present[rows].sum(dim=1).clamp(max=_MODALITIES))
        at = torch.arange(len(rows), device=rows.device)
        found[rows] = torch.where(enough[:, None] & same[at, best], candidates[at, best][:, None], -1)
        return found

    def _find_everywhere(self, marks: Tensor, norms: Tensor, known: Tensor, present: Tensor) -> Tensor:
        """The same for all rows, since tracing cannot select some: a row without a candidate matches none."""
        first = (known[:, None] < (norms - _SAME)[..., None]).sum(dim=2)  # [modality, n]
        place = (first[..., None] + torch.arange(_CANDIDATES)).clamp(max=len(self.marks) - 1)
        candidates = self.order.gather(1, place.flatten(1)).view_as(place).transpose(0, 1).flatten(1)
        near = (self.marks.to(marks)[candidates] - marks[:, None]).abs() <= _SAME
        same = near.all(dim=3) & present[:, None]
        count, best = same.sum(dim=2).max(dim=1)
        enough = (count > 0) & (count >= present.sum(dim=1).clamp(max=_MODALITIES))
        chosen = candidates.gather(1, best[:, None])
        here = same.gather(1, best[:, None, None].expand(-1, 1, same.shape[2]))[:, 0]
        return torch.where(enough[:, None] & here, chosen, -1)

    def restore(
        self, found: Tensor, scores: Sequence[Tensor], evidence: Tensor | None
    ) -> tuple[Sequence[Tensor], Tensor | None]:
        """Replace the scores and evidence of the samples found by those out-of-fold.

        Args:
            found: See `find`.
            scores: Of each modality, `[n, score]`.
            evidence: Of the pairs, `[n, pair]`, or None.
        """
        known = found >= 0
        if not len(self.marks) or not (is_traced() or known.any()):
            return scores, evidence
        kept = self.scores.split(self.sizes, dim=1)
        restored = []
        for m, (score, size) in enumerate(zip(scores, self.sizes)):
            inputs = torch.where(known[:, m, None], kept[m][found[:, m]].to(score), score[:, :size])
            restored.append(torch.cat([inputs, score[:, size:]], dim=1))
        if evidence is None:
            return restored, None
        both = torch.stack([known[:, a] & known[:, b] for a, b in self.pairs], dim=1)
        # All modalities of a sample that are known are of the same sample.
        return restored, torch.where(both, self.evidence[found.amax(dim=1)].to(evidence), evidence)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, before in self._buffers.items():  # a model that was saved without them knows no samples
            state_dict.setdefault(prefix + name, before)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _marks(own: Sequence[Tensor]) -> Tensor:
    """The scores that all modalities have, `[n, modality, score]`."""
    return torch.stack([score[:, :SHARED] for score in own], dim=1)
