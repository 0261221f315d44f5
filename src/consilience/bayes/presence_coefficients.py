"""Coefficients of calibrated κ where some modalities are missing: learned from samples whose modalities are hidden.

With few modalities, every set of present ones has coefficients of its own, one row of a table; with more, every number
of present ones has. Samples that have more modalities than a row serves are used with the others hidden. Rows that too
few samples could teach have the coefficients of all samples together, interpolated (see `kappa.coefficient_share`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.kappa import Coefficients, Estimate, centred, coefficient_share, fit_coefficients
from consilience.core.modality_sets import all_sets, set_numbers

_MOST_EXACT = 4  # modalities for which every set of them has its row
_LEAST_ROWS = 50  # samples that a row of its own is learned from
# The most features (of all modalities together) for which missing modalities are learned: with more, densities of many
# sets of modalities would take long.
_MOST_FEATURES = 128


@dataclass(frozen=True)
class Table:
    """Coefficients by row of the table: of the experts `[row, modality]`, of ln κ̂ (α) and of ln p̂ (β), `[row]`."""

    weights: Tensor
    alpha: Tensor
    beta: Tensor


def count_rows(modalities: int) -> int:
    """The number of rows of the table.

    >>> [count_rows(modalities) for modalities in (1, 2, 4, 5)]
    [2, 4, 16, 6]
    """
    return 2**modalities if modalities <= _MOST_EXACT else modalities + 1


def row_of(present: Tensor) -> Tensor:
    """The row that serves each sample, `[n, modality]` → `[n]`.

    >>> row_of(torch.tensor([[True, False, True], [False, False, False]])).tolist()
    [5, 0]
    """
    return present.sum(1) if present.shape[1] > _MOST_EXACT else set_numbers(present)


def interpolated(fitted: Coefficients, modalities: int) -> Table:
    """The table of one fit to all samples: the fitted coefficients if all are present, the theorem's if one is."""
    if modalities > _MOST_EXACT:
        there = torch.arange(modalities) < torch.arange(count_rows(modalities))[:, None]
    else:
        there = all_sets(modalities)
    share = coefficient_share(there).to(torch.float64)
    weights = 1 - share[:, None] + share[:, None] * torch.as_tensor(fitted.weights, dtype=torch.float64)
    return Table(weights, share * fitted.alpha, share * fitted.beta)


def expert_weights(weights: Tensor, present: Tensor) -> Tensor:
    """Each expert's weight `[n, modality]` from the table `[row, modality]`: 1 alone, 0 where missing."""
    return weights[row_of(present)] * present


def dependence_terms(alpha: Tensor, beta: Tensor, present: Tensor, estimate: Estimate) -> Tensor:
    """α ln κ̂ + β ln p̂, which `fuse` takes in place of ln κ: `[n, class]`; alpha and beta: `[row]`."""
    log_kappa, log_density = estimate
    row = row_of(present)
    terms = alpha[row][:, None] * log_kappa
    if log_density is not None:
        terms = terms + beta[row][:, None] * log_density
    return centred(terms)


def fit_table(
    evidence: Tensor,
    y: Tensor,
    log_prior: Tensor,
    present: Tensor,
    estimate: Callable[[Tensor], Estimate],
    weight: np.ndarray | None = None,
    *,
    ridge: float,
) -> Table:
    """Fit the coefficients of every row.

    Args:
        evidence: z_j − ln π, `[n, modality, class]`, finite also where missing.
        y: Class indices `[n]`.
        log_prior: `[class]`.
        present: `[n, modality]`.
        estimate: Takes which modalities are used, `[n, modality]`; returns ln κ̂ and ln p̂ of each sample by a model
            that was fitted without it.
        weight: Sample weights `[n]`.
        ridge: The penalty on τ, as for `fit_coefficients`.
    """
    modalities, classes = evidence.shape[1:]
    pooled = fit_coefficients(evidence, y, log_prior, present, estimate(present), weight, ridge=ridge)
    table = interpolated(pooled, modalities)
    if modalities < 3 or modalities * (classes - 1) > _MOST_FEATURES:
        return table
    for row, mask in _hidden(present):
        rows = mask.any(1).nonzero()[:, 0]
        if len(rows) < _LEAST_ROWS or bool((mask == present).all()):
            continue
        log_kappa, log_density = estimate(mask)
        own = fit_coefficients(
            evidence[rows],
            y[rows],
            log_prior,
            mask[rows],
            (log_kappa[rows], None if log_density is None else log_density[rows]),
            None if weight is None else weight[rows.numpy()],
            share=torch.ones(len(rows), dtype=evidence.dtype),
            ridge=ridge,
        )
        table.weights[row], table.alpha[row], table.beta[row] = torch.from_numpy(own.weights), own.alpha, own.beta
    return table


def _hidden(present: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Every row for two or more modalities, and which modalities its samples keep `[n, modality]`; none of others."""
    modalities = present.shape[1]
    if modalities <= _MOST_EXACT:
        for row, kept in enumerate(all_sets(modalities)):
            if kept.sum() > 1:
                able = (present | ~kept).all(1)
                yield row, able[:, None] & kept
        return
    # The modalities in a random order for each sample, present ones first; the first of them are kept.
    order = torch.from_numpy(np.random.default_rng(0).random(present.shape)).masked_fill(~present, 2.0)
    rank = order.argsort(1).argsort(1)
    for count in range(2, modalities + 1):
        able = present.sum(1) >= count
        yield count, (rank < count) & able[:, None]
