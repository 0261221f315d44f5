"""Whether a stream has changed since its reference: evidence that is valid at any time, of several quantities at once.

A new value's rank among all values before it, those of the reference included, is uniform and independent of earlier
ranks as long as values are exchangeable (Vovk, Nouretdinov and Gammerman 2003, Testing Exchangeability On-Line). A bet
on ranks that is fair for uniform ones multiplies a capital; by Ville's inequality, the share of exchangeable streams in
which the capital ever reaches 1/α is at most α, however long they are. The change may begin at any row, so the capital
is divided among all starts: the one who starts at row t puts in S(t − 1) − S(t) of S(t) = 1 / (1 + ln(1 + t)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

Side = Literal["low", "high", "both"]
CELLS = 256
_NOTHING = -1e4  # the logarithm of no capital
# Bets on small ranks and on large ones have the densities ε p^(ε − 1); the last bets on the ranks seen lately.
_EXPONENTS = np.array([0.15, 0.5])
_BINS, _MEMORY, _PRIOR = 10, 100.0, 10.0
_BETS = 2 * len(_EXPONENTS) + 1
_LEAST_RANK = 1e-12
_USED: dict[str, list[bool]] = {
    "low": [True, True, False, False, True],
    "high": [False, False, True, True, True],
    "both": [True] * _BETS,
}


class ChangeDetector:
    """The evidence that quantities have changed, each against its own past: `[quantity]`.

    Values are given as cells, whole numbers from 0 to `CELLS` − 1, whose order is that of the values. They are compared
    with values of the same category only, such as rows with the same modalities present.

    Args:
        sides: For each quantity: "low" if a change to smaller values matters, "high", or "both". A change to other
            values without a direction, such as a value that stays the same, counts with all of them.
        seed: Of the random numbers that decide between equal values.
    """

    def __init__(self, sides: Sequence[Side], seed: int = 0):
        count = len(sides)
        used = np.array([_USED[side] for side in sides], dtype=bool).reshape(count, _BETS)
        with np.errstate(divide="ignore"):
            self._log_share = np.log(used / used.sum(axis=1, keepdims=True))
        self._random = np.random.default_rng(seed)
        self.counts: dict[int, np.ndarray] = {}
        self.steps = np.zeros(count, dtype=np.int64)
        self.capital = np.full((count, _BETS), _NOTHING)
        self.rise = np.zeros((count, _BETS))
        self.starts = np.zeros((count, _BETS), dtype=np.int64)
        self.ranks = np.zeros((count, _BINS))
        self.log_evidence = np.zeros(count)

    def add_reference(self, cells: np.ndarray, active: np.ndarray, category: int) -> None:
        """Count a row of the reference; arguments as for `update`."""
        self.counts_of(category)[np.flatnonzero(active), cells[active]] += 1

    def update(self, cells: np.ndarray, active: np.ndarray, category: int, row: int) -> np.ndarray:
        """Take in one row, and return the natural logarithm of the evidence `[quantity]`.

        Args:
            cells: `[quantity]`.
            active: Booleans `[quantity]`; a quantity that is not active stays as it is.
            category: Of the row.
            row: Its number in the stream, for `since`.
        """
        draws = self._random.random(len(cells))  # for all, so that what is active does not shift later ones
        if not active.any():
            return self.log_evidence
        chosen = np.flatnonzero(active)
        cells, counts = cells[chosen], self.counts_of(category)
        own = counts[chosen]
        at = own[np.arange(len(chosen)), cells]
        below = np.where(np.arange(CELLS) < cells[:, None], own, 0).sum(axis=1)
        rank = (below + draws[chosen] * (at + 1)) / (own.sum(axis=1) + 1)
        counts[chosen, cells] += 1
        gain = self._bets(rank, chosen)
        steps = self.steps[chosen]
        put_in = np.log(_waiting(steps) - _waiting(steps + 1))
        self.capital[chosen] = np.logaddexp(self.capital[chosen], put_in[:, None]) + gain
        rise, starts = self.rise[chosen], self.starts[chosen]
        self.starts[chosen] = np.where(rise <= 0, row, starts)
        self.rise[chosen] = np.maximum(rise, 0) + gain
        self.steps[chosen] += 1
        played = np.logaddexp.reduce(self.capital[chosen] + self._log_share[chosen], axis=1)
        self.log_evidence[chosen] = np.logaddexp(played, np.log(_waiting(steps + 1)))
        return self.log_evidence

    def since(self, quantity: int) -> int:
        """The row from which on the evidence of a quantity has been rising, by the bet that won most."""
        return int(self.starts[quantity, (self.capital[quantity] + self._log_share[quantity]).argmax()])

    def restart(self, quantity: int) -> None:
        """Forget the evidence of a quantity; the values that were seen stay."""
        self.steps[quantity], self.log_evidence[quantity] = 0, 0.0
        self.capital[quantity], self.rise[quantity], self.ranks[quantity] = _NOTHING, 0.0, 0.0

    def _bets(self, rank: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """The logarithm of what each bet on the ranks `[k]` pays: `[k, bet]`."""
        low, high = np.log(np.maximum(rank, _LEAST_RANK)), np.log(np.maximum(1 - rank, _LEAST_RANK))
        sides = [np.log(e) + (e - 1) * log for log in (low, high) for e in _EXPONENTS]
        bins = np.minimum((rank * _BINS).astype(np.int64), _BINS - 1)
        seen = self.ranks[chosen]
        places = np.arange(len(chosen)), bins
        expected = (seen[places] + _PRIOR / _BINS) / (seen.sum(axis=1) + _PRIOR)
        seen *= 1 - 1 / _MEMORY
        seen[places] += 1
        self.ranks[chosen] = seen
        return np.stack([*sides, np.log(_BINS * expected)], axis=1)

    def counts_of(self, category: int) -> np.ndarray:
        """How many rows of a category are in each cell, `[quantity, cell]`."""
        if category not in self.counts:
            self.counts[category] = np.zeros((len(self.steps), CELLS), dtype=np.int64)
        return self.counts[category]

    def state(self) -> dict[str, Any]:
        """Everything that later rows depend on, as JSON values."""
        described = {name: getattr(self, name).tolist() for name in _ARRAYS}
        counted = {}
        for category, counts in self.counts.items():
            where = np.nonzero(counts)
            counted[str(category)] = np.column_stack([*where, counts[where]]).tolist()
        return {**described, "counts": counted, "random": self._random.bit_generator.state}

    def restore(self, described: Mapping[str, Any]) -> None:
        """Take over what `state` returned.

        Raises:
            ValueError, TypeError, KeyError: If it is not the state of a detector of as many quantities.
        """
        for name, (least, most) in _ARRAYS.items():
            before = getattr(self, name)
            array = np.array(described[name], dtype=before.dtype)
            if array.shape != before.shape or not ((array >= least) & (array <= most)).all():
                raise ValueError(f"{name} must be numbers {list(before.shape)} from {least:g} to {most:g}")
            setattr(self, name, array)
        counts: dict[int, np.ndarray] = {}
        for category, entries in described["counts"].items():
            triples = np.array(entries, dtype=np.int64).reshape(-1, 3)
            quantity, cell, count = triples.T
            known = np.zeros((len(self.steps), CELLS), dtype=np.int64)
            if (triples < 0).any() or (quantity >= len(known)).any() or (cell >= CELLS).any() or (count > _FAR).any():
                raise ValueError(f"counts must be at most {_FAR:g}, of the quantities and cells that there are")
            known[quantity, cell] = count
            counts[int(category)] = known
        self.counts = counts
        self._random.bit_generator.state = dict(described["random"])


_FAR = 10**12  # more rows than any stream has, and so a bound of what bets on them can win or lose
# The values of a detector, from the least that each can be to the most.
_ARRAYS = {
    "steps": (0, _FAR),
    "capital": (-_FAR, _FAR),
    "rise": (-_FAR, _FAR),
    "starts": (0, _FAR),
    "ranks": (0, _MEMORY + 1),
    "log_evidence": (-_FAR, _FAR),
}


def share_cells(share: np.ndarray) -> np.ndarray:
    """Cells of probabilities, equally wide in their log-odds.

    >>> share_cells(np.array([0.0, 0.5, 0.9, 0.99, 1.0])).tolist()
    [0, 128, 151, 177, 255]
    """
    inside = np.clip(np.asarray(share, dtype=np.float64), 1e-9, 1 - 1e-9)
    odds = np.log(inside) - np.log1p(-inside)
    return np.clip(((odds / 24 + 0.5) * CELLS).astype(np.int64), 0, CELLS - 1)


def count_cells(count: np.ndarray, largest: int) -> np.ndarray:
    """Cells of whole numbers from 0 to `largest`; neighbours share one if there are more numbers than cells.

    >>> count_cells(np.array([0, 3, 1000]), 1000).tolist()
    [0, 0, 255]
    """
    count = np.asarray(count, dtype=np.int64)
    return count if largest < CELLS else count * (CELLS - 1) // largest


def _waiting(steps: np.ndarray) -> np.ndarray:
    """S(t), the share of the capital that is put in after row t."""
    return 1 / (1 + np.log1p(steps))
