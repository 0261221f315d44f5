"""Progressive fusion on AV-MNIST, looked into: what each pass adds, where feedback should join, what depth costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.comparison.experiments.experiment import Reproduction, register_experiment, run_folder
from consilience.comparison.experiments.progressive_avmnist import PAPER

NAME = "progressive-figures"


@dataclass(frozen=True)
class ProgressiveFigures:
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

    def run(self, *, quick: bool = False, **how: Any) -> Reproduction:
        """Train what is not trained yet, then write the page. how: `out`, `jobs`, `cluster`, `verbose`, `command`."""
        from consilience.comparison.experiments.progressive_figures.cells import FULL, QUICK
        from consilience.comparison.experiments.progressive_figures.running import reproduce

        out = run_folder(self.name, quick, how.pop("out", None))
        protocol = QUICK if quick else FULL
        return reproduce(protocol, out, title=self.title, paper=self.paper, notes=self.notes, **how)


register_experiment(ProgressiveFigures())
