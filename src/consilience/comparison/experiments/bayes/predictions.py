"""What networks that others trained said, fused: half of the rows to learn from, the other half decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.comparison.experiments.bayes.deciding import (
    CALIBRATED,
    COPULA,
    MEAN,
    OURS,
    ROBUST,
    STACKED,
    THEOREM,
    Case,
    Decided,
    decide_all,
    decide_elsewhere,
    decide_when_broken,
    decide_with_gaps,
)
from consilience.comparison.experiments.bayes.splits import RATIO, draw_evenly, geometric_shares, thin_out
from consilience.core.samples import Samples

FUSED = ("image", "audio")  # the networks that saw one modality
BOTH = "centralnet"  # the one that was trained on both
MISSING, BROKEN = 0.5, 0.25  # the probability of each expert to be so


def of_pairs(samples: Samples, seed: int) -> Decided:
    """Image and audio fused, each alone beside it, as it is and calibrated; and with the network trained on both."""
    y = np.asarray(samples.y)
    learned, test = halves(y, seed)
    pair = hear(samples, FUSED, learned, test)
    every = decide_all(pair)
    ways = {}
    for name in (*FUSED, BOTH):
        alone = hear(samples, (name,), learned, test)
        ways[name] = alone.asked[:, 0]
        ways[f"{name}, calibrated"] = alone.decide(alone.rule("none"))
    ways |= {name: every[name] for name in (MEAN, THEOREM, CALIBRATED, OURS, ROBUST, COPULA, STACKED)}
    three = decide_all(hear(samples, (*FUSED, BOTH), learned, test))
    ways |= {f"{name}, all three": three[name] for name in (MEAN, THEOREM, OURS)}
    return Decided(ways, test, y[test])


def with_one_missing(samples: Samples, seed: int) -> Decided:
    """Each of the two gone with probability ½; where both are, the prior answers."""
    y = np.asarray(samples.y)
    learned, test = halves(y, seed)
    present = np.random.default_rng(seed).random((len(test), len(FUSED))) >= MISSING
    case = replace(hear(samples, FUSED, learned, test), present=present)
    return Decided(decide_with_gaps(case), test, y[test])


def with_one_broken(samples: Samples, seed: int) -> Decided:
    """Each of the two says, with a probability, what it said of another sample."""
    y = np.asarray(samples.y)
    learned, test = halves(y, seed)
    case = hear(samples, FUSED, learned, test)
    swapped = replace(case, asked=swap(case.asked, BROKEN, np.random.default_rng(seed)))
    return Decided(decide_when_broken(swapped, 1 - BROKEN), test, y[test])


def with_other_shares(samples: Samples, seed: int) -> Decided:
    """Learned with the classes as they come, used where the first is many times as frequent as the last."""
    y = np.asarray(samples.y)
    learned, others = halves(y, seed)
    shares = geometric_shares(y.max() + 1, RATIO)
    test = thin_out(y, others, shares)
    true = np.bincount(y[test], minlength=len(shares)) / len(test)
    ways, off = decide_elsewhere(hear(samples, FUSED, learned, test), true)
    return Decided(ways, test, y[test], off=off)


def halves(y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn how to fuse from, and rows to be decided."""
    return draw_evenly(y, len(y) // 2, seed)


def hear(samples: Samples, names: tuple[str, ...], learned: np.ndarray, test: np.ndarray) -> Case:
    """The opinions of some experts; −inf where a probability is 0."""
    with np.errstate(divide="ignore"):
        opinions = np.log(np.stack([np.asarray(samples[name], dtype=np.float64) for name in names], axis=1))
    return Case(opinions[learned], np.asarray(samples.y)[learned], opinions[test])


def swap(opinions: np.ndarray, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Opinions `[n, modality, class]`, each expert's with a probability that on another sample."""
    n, experts, _ = opinions.shape
    own = np.tile(np.arange(n)[:, None], experts)
    whose = np.where(rng.random((n, experts)) < probability, rng.permuted(own, axis=0), own)
    return opinions[whose, np.arange(experts)]
