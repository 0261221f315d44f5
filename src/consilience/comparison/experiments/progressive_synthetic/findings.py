"""What the trials of experiment B.1 say: gains over the base, shares of trials won, areas under error–noise curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.comparison.experiments.progressive_synthetic.cells import Cell, Protocol
from consilience.comparison.experiments.progressive_synthetic.nets import NETS
from consilience.comparison.store import Result


@dataclass(frozen=True)
class Standing:
    """A net beside the one it is compared with, over all cells of one n: shares and gains as fractions.

    won: of all trials · gain: mean of 1 − error / base's error, spread: its standard deviation over the draws, each
    averaged over its cells · validation: the gain on validation data, at the epochs chosen there.
    """

    won: float
    gain: float
    spread: float
    validation: float


@dataclass(frozen=True)
class Findings:
    """Mean squared errors of every net, in units of the target's variance.

    errors, validation: n → net → `[eta, sigma, trial]` · parameters: net → how many.
    """

    protocol: Protocol
    errors: Mapping[int, Mapping[str, np.ndarray]]
    validation: Mapping[int, Mapping[str, np.ndarray]]
    parameters: Mapping[str, int]

    @classmethod
    def gather(cls, protocol: Protocol, results: Mapping[str, Result]) -> Findings:
        """From the results of all cells, by key."""

        def grid(n: int, name: str, what: str) -> np.ndarray:
            keys = [[Cell.of(protocol, n, eta, sigma).key for sigma in protocol.sigmas] for eta in protocol.etas]
            return np.array([[results[key].arrays[f"{name}/{what}"] for key in row] for row in keys], dtype=float)

        first = next(iter(results.values())).about["nets"]
        return cls(
            protocol,
            {n: {name: grid(n, name, "test") for name in protocol.nets} for n in protocol.sizes},
            {n: {name: grid(n, name, "validation") for name in protocol.nets} for n in protocol.sizes},
            {name: first[name]["parameters"] for name in protocol.nets},
        )

    def gains(self, n: int, name: str, *, validation: bool = False) -> np.ndarray:
        """1 − error / error of the net it is compared with: `[eta, sigma, trial]`."""
        errors = (self.validation if validation else self.errors)[n]
        return 1 - errors[name] / errors[NETS[name].against]

    def standing(self, n: int, name: str) -> Standing:
        """A net's gain and share of trials won."""
        gains = self.gains(n, name)
        by_draw = gains.mean(axis=(0, 1))
        spread = float(by_draw.std(ddof=1)) if len(by_draw) > 1 else float("nan")
        return Standing(
            float((gains > 0).mean()), float(gains.mean()), spread, float(self.gains(n, name, validation=True).mean())
        )

    def area_gains(self, n: int, name: str, over: str) -> np.ndarray:
        """How much smaller the area under a net's error–noise curve is than the base's, as a fraction of that.

        over: the noise of the curve. "sigma" gives `[eta, trial]`, "eta" gives `[sigma, trial]`.
        """
        levels, axis = (self.protocol.sigmas, 1) if over == "sigma" else (self.protocol.etas, 0)
        mine, base = (area(self.errors[n][one], levels, axis) for one in (name, NETS[name].against))
        return 1 - mine / base


def area(errors: np.ndarray, levels: Sequence[float], axis: int) -> np.ndarray:
    """The area under error against noise, by trapezia, along one axis.

    >>> area(np.array([1.0, 3.0, 3.0]), (0.0, 1.0, 3.0), 0).item()
    8.0
    """
    moved = np.moveaxis(errors, axis, -1)
    return ((moved[..., 1:] + moved[..., :-1]) / 2 * np.diff(levels)).sum(axis=-1)
