"""Latent fusion on pictures cut into parts: M²VAE in both bounds, on all subsets and on chains, against its peers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consilience.comparison.experiments.experiment import register_experiment
from consilience.comparison.experiments.study import Study, Workings

if TYPE_CHECKING:
    from consilience.comparison.experiments.latent_parts.cells import Protocol

_NOTES = (
    "The paper derives the objective and measures nothing, so there are no figures to stand beside ours.",
    "joint has no encoder for subsets; here it has a product of experts, trained on whole digits alone.",
    "A conditional log-likelihood is that of everything less that of what is given. Where the effective draws of the "
    "latter are few it is too high, though much less so than without refined proposals: the table of whole digits says "
    "of how many estimates that must be feared.",
)


@dataclass(frozen=True, kw_only=True)
class LatentFusion(Study):
    """Imputation error, conditional log-likelihood and coherence by the number of parts given.

    cuts: names in `pictures.CUTS` · full, quick: what differs from the defaults of `cells.Protocol` at the two sizes.
    """

    cuts: tuple[str, ...]
    full: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    paper: str = "Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective"
    notes: tuple[str, ...] = _NOTES

    def protocol(self, quick: bool) -> Protocol:
        """What decides the numbers at one of the two sizes."""
        from consilience.comparison.experiments.latent_parts.cells import Protocol
        from consilience.comparison.experiments.latent_parts.pictures import CUTS

        cuts = tuple(CUTS[name] for name in self.cuts)
        return Protocol(self.name, cuts, **(self.full | (self.quick if quick else {})))

    def workings(self) -> Workings:
        """How it is measured and told."""
        from consilience.comparison.experiments.latent_parts.account import give_account
        from consilience.comparison.experiments.latent_parts.cells import measure_cell

        return Workings(measure_cell, give_account)


register_experiment(
    LatentFusion(
        name="m2vae-digits",
        title="Latent fusion on digits: which objective imputes, and how well?",
        cuts=("digits",),
        quick={"seeds": 2, "epochs": 40, "patience": 15, "draws": 100, "estimated": 100},
    )
)
register_experiment(
    LatentFusion(
        name="m2vae-mnist",
        title="Latent fusion on halves and quadrants of MNIST: which objective imputes, and how well?",
        cuts=("halves", "quadrants"),
        full={
            "most": (5000, 1000, 1000),
            "latent": 20,
            "hidden": (256, 128),
            "epochs": 100,
            "patience": 10,
            "batch_size": 128,
            "estimated": 100,
            "device": "auto",
        },
        quick={
            "most": (1000, 300, 300),
            "seeds": 2,
            "epochs": 10,
            "batch_size": 64,
            "draws": 100,
            "estimated": 40,
        },
        notes=(
            *_NOTES,
            "Pixels are binarised once, each drawn with its grey value for the probability of ink, and their "
            "likelihood is Bernoulli, so that nats compare with what is published of MNIST.",
            "Of its images 5 000 train each model, 1 000 choose the epoch and 1 000 test, drawn anew with every seed.",
        ),
    )
)
