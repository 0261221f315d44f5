"""How many parameters a loop adds to the models of AV-MNIST (table 10). Nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.comparison.experiments.experiment import register_experiment
from consilience.comparison.experiments.progressive_avmnist import PAPER
from consilience.comparison.experiments.study import Study, Workings

if TYPE_CHECKING:
    from consilience.comparison.experiments.progressive_parameters.counting import Protocol


@dataclass(frozen=True, kw_only=True)
class ProgressiveParameters(Study):
    """Every model of the table is built for AV-MNIST's shapes, with and without its loop, and counted."""

    name: str = "progressive-table10"
    title: str = "How many parameters does progressive fusion add?"
    paper: str = f"{PAPER}, table 10"
    notes: tuple[str, ...] = (
        "The paper states the encoders, with 4 and 6 stages of convolution, but neither the widths of fusion and head "
        "nor where the feedback joins. Ours are the defaults of `lowrank` (rank 40, width 120), `mfm` (factors of "
        "200), `refnet` and `gradient-blend` (width 256).",
        "MFM here reconstructs every pixel of image and spectrogram by a dense layer, which is most of it; the paper's "
        "decoders must be smaller. GB here is concatenation with two more heads.",
        "Published counts are in thousands, so that their differences are known to within a thousand.",
    )

    def protocol(self, quick: bool) -> Protocol:
        """All models; both sizes are the same."""
        from consilience.comparison.experiments.progressive_parameters.counting import Protocol

        return Protocol(self.name)

    def workings(self) -> Workings:
        """How it is measured and told."""
        from consilience.comparison.experiments.progressive_parameters.account import give_account
        from consilience.comparison.experiments.progressive_parameters.counting import count_cell

        return Workings(count_cell, give_account)


register_experiment(ProgressiveParameters())
