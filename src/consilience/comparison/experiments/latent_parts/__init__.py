"""Latent fusion on pictures cut into parts: M²VAE in both bounds, on all subsets and on chains, against its peers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.comparison.experiments.experiment import Reproduction, register_experiment, run_folder

_NOTES = (
    "The paper derives the objective and measures nothing, so there are no figures to stand beside ours.",
    "joint has no encoder for subsets; here it has a product of experts, trained on whole digits alone.",
    "A conditional log-likelihood is that of everything less that of what is given. Where the effective draws of the "
    "latter are few it is too high, though much less so than without refined proposals: the table of whole digits says "
    "of how many estimates that must be feared.",
)


@dataclass(frozen=True)
class LatentFusion:
    """Imputation error, conditional log-likelihood and coherence by the number of parts given.

    cuts: names in `pictures.CUTS` · full, quick: what differs from the defaults of `cells.Protocol` at the two sizes.
    """

    name: str
    title: str
    cuts: tuple[str, ...]
    full: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    paper: str = "Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective"
    notes: tuple[str, ...] = _NOTES

    def run(self, *, quick: bool = False, **how: Any) -> Reproduction:
        """Train what is not trained yet, then write the page. how: `out`, `jobs`, `cluster`, `verbose`, `command`."""
        return self.follow(self.protocol(quick), run_folder(self.name, quick, how.pop("out", None)), **how)

    def follow(self, protocol: Any, out: str | Path, *, command: str = "", **how: Any) -> Reproduction:
        """The same by any protocol."""
        from consilience.comparison.experiments.latent_parts.account import give_account
        from consilience.comparison.experiments.latent_parts.cells import measure_cell
        from consilience.comparison.experiments.latent_parts.findings import Findings
        from consilience.comparison.experiments.study import run_study

        return run_study(
            protocol,
            out,
            measuring=measure_cell,
            account=lambda results: give_account(
                Findings.gather(protocol, results),
                title=self.title,
                paper=self.paper,
                notes=self.notes,
                command=command,
            ),
            command=command,
            **how,
        )

    def protocol(self, quick: bool) -> Any:
        """What decides the numbers at one of the two sizes."""
        from consilience.comparison.experiments.latent_parts.cells import Protocol
        from consilience.comparison.experiments.latent_parts.pictures import CUTS

        cuts = tuple(CUTS[name] for name in self.cuts)
        return Protocol(self.name, cuts, **(self.full | (self.quick if quick else {})))


register_experiment(
    LatentFusion(
        "m2vae-digits",
        "Latent fusion on digits: which objective imputes, and how well?",
        ("digits",),
        quick={"seeds": 2, "epochs": 40, "patience": 15, "draws": 100, "estimated": 100},
    )
)
register_experiment(
    LatentFusion(
        "m2vae-mnist",
        "Latent fusion on halves and quadrants of MNIST: which objective imputes, and how well?",
        ("halves", "quadrants"),
        full={
            "seeds": 5,
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
