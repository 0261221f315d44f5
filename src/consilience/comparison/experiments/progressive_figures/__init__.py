"""Progressive fusion on AV-MNIST, looked into: what each pass adds, where feedback should join, what depth costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.comparison.experiments.experiment import register_experiment
from consilience.comparison.experiments.progressive_avmnist import PAPER
from consilience.comparison.experiments.study import Study, Workings

if TYPE_CHECKING:
    from consilience.comparison.experiments.progressive_figures.cells import Protocol

NAME = "progressive-figures"


@dataclass(frozen=True, kw_only=True)
class ProgressiveFigures(Study):
    """Figures 6, 10a and 10b: a linear probe after every pass, the joining stage, the number of passes."""

    name: str = NAME
    title: str = "Inside the loop: what each pass adds, where feedback should join, how deep to unroll"
    paper: str = f"{PAPER}, figures 6, 10a and 10b"
    notes: tuple[str, ...] = (
        "Of these figures the text has survived, not the drawings: which models they show, at how many passes and "
        "stages, is said for figure 6 only (LFN, MFM and RefNet). No published figures stand beside ours.",
        "Features are what the fusion hears of each modality, as in the paper's section G; the probe is a logistic "
        "regression on standardised features of training pairs, scored on test pairs.",
        "Data, encoders and training are those of `progressive-table9`; see there for what the paper leaves open.",
    )

    def protocol(self, quick: bool) -> Protocol:
        """The defaults, or what takes minutes."""
        from consilience.comparison.experiments.progressive_figures.cells import FULL, QUICK

        return QUICK if quick else FULL

    def workings(self) -> Workings:
        """How it is measured and told."""
        from consilience.comparison.experiments.progressive_figures.account import give_account
        from consilience.comparison.experiments.progressive_figures.cells import measure_cell, measure_on_gpu

        return Workings(measure_cell, give_account, measure_on_gpu)


register_experiment(ProgressiveFigures())
