"""The bound of eq. 2 in Zhang et al. 2023, and in it the Rademacher complexity of linear heads.

The complexity says how well the best of such heads would fit random labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Samples
from consilience.evaluation.metric_inputs import as_array
from consilience.evaluation.trust import ExpertRecord, record_experts, signed, targets_of

if TYPE_CHECKING:
    from torch import Tensor, nn


class Complexity(NamedTuple):
    """An estimate over random labels, its standard error, and a ceiling: a closed form that the mean cannot exceed."""

    estimate: float
    error: float
    ceiling: float


def linear_complexity(
    features: Any, radius: float, *, outputs: int = 1, draws: int = 100, random_state: int = 0
) -> Complexity:
    """The empirical Rademacher complexity of x ↦ Wx with ‖W‖_F ≤ radius on features `[n, width]`.

    (1/n)·E sup_W Σ_i ⟨σ_i, W x_i⟩ over random labels σ_i in {−1, +1}^outputs. For this class the best W is known, the
    one along Σ_i σ_i x_iᵀ, so the supremum is exact, radius·‖Σ_i σ_i x_iᵀ‖_F, and only the labels are sampled. By
    Jensen it is at most radius·√(outputs·Σ‖x_i‖²)/n, the ceiling.

    >>> found = linear_complexity(np.eye(4), radius=2.0)
    >>> found.estimate, found.ceiling
    (1.0, 1.0)
    """
    x = as_array(features).astype(np.float64)
    if x.ndim != 2 or not len(x) or not np.isfinite(x).all():
        raise InputError(f"features must be finite, of shape [n, width] with n ≥ 1, got shape {list(x.shape)}")
    if not 0 <= radius < math.inf or outputs < 1 or draws < 2:
        raise InputError(
            f"a complexity needs 0 ≤ radius, outputs ≥ 1 and draws ≥ 2, got {radius!r}, {outputs!r} and {draws!r}"
        )
    rng = np.random.default_rng(random_state)
    lengths = np.empty(draws)
    for draw in range(draws):  # one draw at a time: all of them would be `[draws, outputs, n]`
        labels = rng.integers(0, 2, size=(outputs, len(x)), dtype=np.int8) * 2.0 - 1.0
        lengths[draw] = np.linalg.norm(labels @ x)
    scale = radius / len(x)
    ceiling = scale * math.sqrt(outputs * float(np.square(x).sum()))
    return Complexity(scale * float(lengths.mean()), scale * float(lengths.std(ddof=1)) / math.sqrt(draws), ceiling)


def head_complexity(features: Any, weight: Any, bias: Any = None, **how: Any) -> Complexity:
    """ℜ of eq. 2 for an expert with a linear head: weight `[class, width]`, bias `[class]`, on features `[n, width]`.

    The class is that of all heads no larger than this one, measured without what softmax does not see (a vector added
    to every class); the bias is one more feature, 1. As in Bartlett and Mendelson's definition, which the paper uses, a
    factor of 2 is in it. Two classes: their difference is the paper's f, and the logistic loss has slope at most 1:
    2·ℜ(radius ‖w₁ − w₀‖). More: the cross entropy is √2-Lipschitz in the logits, and Maurer's vector contraction gives
    another √2: 2·√2·√2·ℜ of the vector-valued class.

    The radius is the trained head's, as if it had been fixed beforehand, and the encoder counts as given: the figure is
    a lower estimate of the complexity of the expert as a whole.
    """
    x, w = as_array(features).astype(np.float64), as_array(weight).astype(np.float64)
    if x.ndim != 2 or w.ndim != 2 or w.shape[0] < 2 or w.shape[1] != x.shape[1]:
        raise InputError(
            "a head needs a weight [class, width] with at least two classes for features [n, width], got "
            f"{list(w.shape)} and {list(x.shape)}"
        )
    if bias is not None:
        w = np.concatenate([w, as_array(bias).astype(np.float64)[:, None]], axis=1)
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    if len(w) == 2:
        factor, plain = 2.0, linear_complexity(x, float(np.linalg.norm(w[1] - w[0])), **how)
    else:
        centred = w - w.mean(axis=0)
        factor, plain = 4.0, linear_complexity(x, float(np.linalg.norm(centred)), outputs=len(w), **how)
    return Complexity(*(factor * part for part in plain))


def linear_heads(method: Any, names: tuple[str, ...]) -> dict[str, nn.Linear] | None:
    """Return the linear head of each modality's expert, or None if an expert has none."""
    from torch import nn

    heads: Any = getattr(method, "heads", None)
    experts: Any = getattr(method, "experts", None)
    try:
        found = {name: heads[name] if heads is not None else experts[name].head for name in names}
    except (AttributeError, KeyError, TypeError, InputError):
        return None
    return found if all(type(head) is nn.Linear for head in found.values()) else None


@contextmanager
def seen_by(heads: Mapping[str, nn.Linear]) -> Iterator[dict[str, list[Tensor]]]:
    """Record the features `[batch, width]` that reach each head, while the context is open."""
    seen: dict[str, list[Tensor]] = {name: [] for name in heads}

    def keep(name: str) -> Any:
        return lambda module, inputs: seen[name].append(inputs[0].detach().float().cpu())

    hooks = [head.register_forward_pre_hook(keep(name)) for name, head in heads.items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def confidence_term(modalities: int, n: int, delta: float = 0.05) -> float:
    """The last term of eq. 2, M·√(ln(1/δ) / 2N), as printed there.

    It takes losses to lie between 0 and 1, which a cross entropy does not: where losses are larger it is too small.
    With weights that sum to one, √(ln(M/δ) / 2N) would do, so for M ≥ 2 the paper's is the more cautious.

    >>> round(confidence_term(2, 1000), 4)
    0.0774
    """
    if not 0 < delta < 1:
        raise InputError(f"delta, the probability that the bound fails, must be between 0 and 1, got {delta!r}")
    if modalities < 1 or n < 1:
        raise InputError(f"the bound needs at least one modality and one sample, got {modalities} and {n}")
    return modalities * math.sqrt(math.log(1 / delta) / (2 * n))


@dataclass(frozen=True)
class Bound:
    """The whole of eq. 2: with probability 1 − delta, the expected loss of the output Σ w·f is at most `total`.

    Attributes:
        loss: Term-L, with the losses of training.
        complexity: Term-C.
        covariance: Term-Cov.
        confidence: The last term; larger than printed in the paper where the mean weights sum to more than M.
        n: Training samples.
        delta: The probability with which the bound may fail.
        guessing: ln K, the loss of giving every class the same probability.
        shortfall: What weights that sum to less than one add, as in `SumBound`.
    """

    loss: float
    complexity: float
    covariance: float
    confidence: float
    n: int
    delta: float
    guessing: float
    shortfall: float = 0.0

    @property
    def total(self) -> float:
        """The bound."""
        return self.loss + self.complexity + self.covariance + self.confidence + self.shortfall

    @property
    def vacuous(self) -> bool:
        """Whether the bound is no better than the loss of giving every class the same probability."""
        return self.total >= self.guessing

    @property
    def words(self) -> str:
        """The bound in a sentence."""
        parts = (
            f"Term-L {self.loss:.3f}, Term-C {self.complexity:.3f}, Term-Cov {signed(self.covariance, 3)}, "
            f"confidence {self.confidence:.3f}"
        ) + (f", weights below one in total {self.shortfall:.3f}" if self.shortfall >= 0.0005 else "")
        about = (
            f"which is vacuous: to answer at random costs {self.guessing:.3f}"
            if self.vacuous
            else f"less than the {self.guessing:.3f} of answering at random"
        )
        return f"eq. 2 bounds the loss of Σ w·f, its output, by {self.total:.3f} ({parts}), {about}"


def bound_of(model: Any, record: ExpertRecord, train: Any, delta: float, seed: int) -> Bound:
    """Eq. 2 with the losses, the features and the number of the training samples, and the weights of the others."""
    if not isinstance(train, Samples) and not (isinstance(train, tuple | list) and len(train) == 2):
        raise InputError(f"train must be Samples with y, or a pair (X, y), got {type(train).__name__}")
    X, y = (train, None) if isinstance(train, Samples) else train
    inner = getattr(model, "model_", model)
    heads = linear_heads(getattr(inner, "method", None), record.names)
    if heads is None or not inner.task.classification:
        raise UnsupportedError(
            "the bound of eq. 2 is for classifiers whose experts have linear heads, such as those of late, qmf or "
            f"pdf; {getattr(inner, 'name', type(model).__name__)!r} is not one of them: leave train out"
        )
    own = record.sum_bound
    if own is None:
        raise UnsupportedError(
            f"eq. 2 does not bound the loss of {getattr(inner, 'name', type(model).__name__)!r}: {record.unbounded}. "
            "Leave train out"
        )
    with seen_by(heads) as features:
        learned = record_experts(model, X, targets_of(X, y, "train"))
    import torch

    terms, complexity = record.terms, 0.0
    for place, (name, head) in enumerate(heads.items()):
        seen = learned.present[:, place]
        reached = torch.cat(features[name]).numpy()
        if len(reached) != len(seen):
            raise UnsupportedError(
                f"the bound of eq. 2 needs heads that are called once per sample; that of {name!r} is not"
            )
        if seen.any():
            found = head_complexity(reached[seen], head.weight, head.bias, random_state=seed)
            complexity += float(terms.share[place] * terms.weight[place]) * found.estimate
    n, mean_total = int(learned.present.any(axis=1).sum()), float((terms.share * terms.weight).sum())
    return Bound(
        loss=float((terms.share * terms.weight * learned.terms.loss).sum()),
        complexity=complexity,
        covariance=float(terms.term_covariance.sum()),
        confidence=max(1.0, mean_total / len(record.names)) * confidence_term(len(record.names), n, delta),
        n=n,
        delta=delta,
        guessing=math.log(inner.task.outputs),
        shortfall=own.shortfall,
    )
