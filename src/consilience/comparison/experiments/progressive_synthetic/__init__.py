"""Progressive fusion on its authors' synthetic regression: does feeding the fused features back help, when, and why?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.comparison.experiments.experiment import register_experiment
from consilience.comparison.experiments.progressive_avmnist import PAPER
from consilience.comparison.experiments.study import Study, Workings

if TYPE_CHECKING:
    from consilience.comparison.experiments.progressive_synthetic.cells import Protocol


@dataclass(frozen=True, kw_only=True)
class ProgressiveSynthetic(Study):
    """Experiment B.1: a grid over (η, σ₂), many trials a cell, with both controls and at several sizes of data."""

    name: str = "progressive-synthetic"
    title: str = "Progressive fusion on synthetic data: when does feeding the fused features back help?"
    paper: str = f"{PAPER}, B.1"
    notes: tuple[str, ...] = (
        "The paper gives neither the number of samples, the widths, the optimizer nor the range of η and σ₂; ours are "
        "on the page. The gain depends on all of them, on the number of samples and on σ₂ most.",
        "Equation 3 is printed without its sign; the sum is meant.",
    )

    def protocol(self, quick: bool) -> Protocol:
        """The defaults, or what takes minutes."""
        from consilience.comparison.experiments.progressive_synthetic.cells import FULL, QUICK

        return QUICK if quick else FULL

    def workings(self) -> Workings:
        """How it is measured and told."""
        from consilience.comparison.experiments.progressive_synthetic.account import give_account
        from consilience.comparison.experiments.progressive_synthetic.cells import measure_cell, measure_on_gpu

        return Workings(measure_cell, give_account, measure_on_gpu)


register_experiment(ProgressiveSynthetic())
