"""Opinions into one decision: the theorem, its κ, and what else could be done with the same opinions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.comparison.experiments.experiment import register_experiment
from consilience.comparison.experiments.study import Study, Workings

if TYPE_CHECKING:
    from consilience.comparison.experiments.bayes.cells import Protocol

_PAPER = "Jørgensen, Tětková, Hansen 2024, Image classification with symbolic hints using limited resources"
_OURS = (
    "The paper states the theorem and uses it with κ = 1, to give a picture's classifier a hint from a text; its own "
    "tables are not repeated here. How κ is estimated and how far it is believed is ours."
)
_CHOSEN = (
    "The figures in the columns “when chosen” were measured when the recipe was chosen, among some 25 variants and on "
    "these very sets, over 5 to 10 seeds. The splits and the regularisation of those experts are not recorded; that "
    "the sum of logits and the theorem came out alike, but for the 20:1 prior, suggests that classes were drawn "
    "evenly, as they are here. Rows that have nothing to do with κ differ too, so the experts were not quite these."
)
_UNEVEN = (
    "For the 20:1 prior only the ratio and n = 600 are known. Here the classes' shares fall in equal steps from the "
    "first class to the last, which at n = 600 leaves every class enough samples for testing. Which classes are the "
    "frequent ones matters to every way, so it was also measured with the shares rising, beside the same figures."
)


@dataclass(frozen=True, kw_only=True)
class FusedOpinions(Study):
    """Log-loss, accuracy and calibration of every way to decide, under the conditions of a protocol.

    name: also that of its conditions in `cells.PROTOCOLS` · seeds: at full size and in the quick form, which differs in
    nothing else.
    """

    seeds: tuple[int, int]
    paper: str = _PAPER
    notes: tuple[str, ...] = (_OURS, _CHOSEN, _UNEVEN)

    def protocol(self, quick: bool) -> Protocol:
        """What decides the numbers at one of the two sizes."""
        from consilience.comparison.experiments.bayes.cells import PROTOCOLS, Protocol

        data, conditions = PROTOCOLS[self.name]
        return Protocol(self.name, data, conditions, self.seeds[quick])

    def workings(self) -> Workings:
        """How it is measured and told."""
        from consilience.comparison.experiments.bayes.account import give_account
        from consilience.comparison.experiments.bayes.cells import measure_cell

        return Workings(measure_cell, give_account)


register_experiment(
    FusedOpinions(
        name="bayes-digits",
        title="Fusing the opinions of linear experts on quadrants of digits: which way?",
        seeds=(20, 10),
    )
)
register_experiment(
    FusedOpinions(
        name="bayes-handwritten",
        title="Fusing the opinions of linear experts on six views of digits: which way?",
        seeds=(20, 10),
    )
)
register_experiment(
    FusedOpinions(
        name="bayes-predictions",
        title="Fusing saved predictions of an image and an audio network: as good as a network trained on both?",
        seeds=(24, 12),
        notes=(
            _OURS,
            "The predictions are those of somebody's networks on AV-MNIST's test set, of three training runs. Figures "
            "of accuracy that came with them stand beside ours; they are of all rows, ours of the half that nothing "
            "was learned from.",
            "Of the networks only their opinions are known, so a broken expert is made of opinions too: it says what "
            "it said of another sample. A ρ that is learned from opinions sees who speaks otherwise than usual, which "
            "such an expert does not.",
        ),
    )
)
