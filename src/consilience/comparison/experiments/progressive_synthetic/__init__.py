"""Progressive fusion on its authors' synthetic regression: does feeding the fused features back help, when, and why?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.comparison.experiments.experiment import Reproduction, register_experiment, run_folder

NAME = "progressive-synthetic"


@dataclass(frozen=True)
class ProgressiveSynthetic:
    """Experiment B.1: a grid over (η, σ₂), many trials a cell, with both controls and at several sizes of data."""

    name: str = NAME
    title: str = "Progressive fusion on synthetic data: when does feeding the fused features back help?"
    paper: str = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, B.1"
    notes: tuple[str, ...] = (
        "The paper gives neither the number of samples, the widths, the optimizer nor the range of η and σ₂; ours are "
        "on the page. The gain depends on all of them, on the number of samples and on σ₂ most.",
        "Equation 3 is printed without its sign; the sum is meant.",
    )

    def run(self, *, quick: bool = False, **how: Any) -> Reproduction:
        """Train what is not trained yet, then write the page. how: `out`, `jobs`, `cluster`, `verbose`, `command`."""
        from consilience.comparison.experiments.progressive_synthetic.cells import FULL, QUICK
        from consilience.comparison.experiments.progressive_synthetic.running import reproduce

        protocol = QUICK if quick else FULL
        out = run_folder(self.name, quick, how.pop("out", None))
        return reproduce(protocol, out, title=self.title, paper=self.paper, notes=self.notes, **how)


register_experiment(ProgressiveSynthetic())
