"""How many parameters a loop adds to the models of AV-MNIST (table 10). Nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.comparison.experiments.experiment import Reproduction, register_experiment, run_folder


@dataclass(frozen=True)
class ProgressiveParameters:
    """Every model of the table is built for AV-MNIST's shapes, with and without its loop, and counted."""

    name: str = "progressive-table10"
    title: str = "How many parameters does progressive fusion add?"
    paper: str = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, table 10"
    notes: tuple[str, ...] = (
        "The paper states the encoders, with 4 and 6 stages of convolution, but neither the widths of fusion and head "
        "nor where the feedback joins. Ours are the defaults of `lowrank` (rank 40, width 120), `mfm` (factors of "
        "200), `refnet` and `gradient-blend` (width 256).",
        "MFM here reconstructs every pixel of image and spectrogram by a dense layer, which is most of it; the paper's "
        "decoders must be smaller. GB here is concatenation with two more heads.",
        "Published counts are in thousands, so that their differences are known to within a thousand.",
    )

    def run(self, *, quick: bool = False, out: Any = None, **how: Any) -> Reproduction:
        """Build, count, write the page; both sizes are the same. how: `jobs`, `cluster`, `verbose`, `command`."""
        from consilience.comparison.experiments.progressive_parameters.account import give_account
        from consilience.comparison.experiments.progressive_parameters.counting import Protocol, count_cell
        from consilience.comparison.experiments.study import run_study

        protocol = Protocol(self.name)
        return run_study(
            protocol,
            run_folder(self.name, quick, out),
            measuring=count_cell,
            account=lambda results: give_account(
                [results[cell.key].about for cell in protocol.cells()],
                title=self.title,
                paper=self.paper,
                notes=self.notes,
                command=how.get("command", ""),
            ),
            **how,
        )


register_experiment(ProgressiveParameters())
