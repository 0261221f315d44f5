"""Latent fusion on pictures cut into parts: M²VAE in both bounds, on all subsets and on chains, against its peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.comparison.experiments.experiment import Reproduction, register_experiment


@dataclass(frozen=True)
class LatentFusion:
    """Imputation error, conditional log-likelihood and coherence by the number of parts given.

    data, parts, count: the set, what its pictures are cut into (None: they come in parts) and how many parts that is.
    """

    name: str = "m2vae-digits"
    title: str = "Latent fusion on digits: which objective imputes, and how well?"
    data: str = "digits"
    parts: str | None = None
    count: int = 4
    paper: str = "Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective"
    notes: tuple[str, ...] = (
        "The paper derives the objective and measures nothing, so there are no figures to stand beside ours.",
        "joint has no encoder for subsets; here it has a product of experts, trained on whole digits alone.",
        "A conditional log-likelihood is that of everything less that of what is given. Where the effective draws of "
        "the latter are few it is too high, though much less so than without refined proposals: the last table says "
        "of how many estimates that must be feared.",
    )

    def run(self, *, quick: bool = False, **how: Any) -> Reproduction:
        """Train what is not trained yet, then write the page. how: `out`, `jobs`, `cluster`, `verbose`, `command`."""
        from consilience.comparison.experiments.m2vae_digits.running import reproduce

        how = {name: value for name, value in how.items() if value is not None}
        out = how.pop("out", f"runs/{self.name}{'-quick' if quick else ''}")
        return reproduce(self.protocol(quick), out, title=self.title, paper=self.paper, notes=self.notes, **how)

    def protocol(self, quick: bool) -> Any:
        """What decides the numbers. Of the 60 000 pictures of MNIST a part is used, as a processor can train on."""
        from consilience.comparison.experiments.m2vae_digits.cells import Protocol

        most = None if self.data == "digits" else (2000, 500, 500) if quick else (20000, 2000, 2000)
        size: dict[str, Any] = {"seeds": 3, "epochs": 60, "patience": 15, "draws": 300} if quick else {}
        if self.data != "digits":
            size = {"seeds": 2, "epochs": 10, "patience": 5, "draws": 100} if quick else {"seeds": 5, "epochs": 100}
        return Protocol(self.name, self.data, self.parts, self.count, most, **size)


register_experiment(LatentFusion())
for _parts, _count in (("halves", 2), ("quadrants", 4)):
    register_experiment(
        LatentFusion(
            f"m2vae-mnist-{_parts}",
            f"Latent fusion on {_parts} of MNIST: which objective imputes?",
            "mnist",
            _parts,
            _count,
        )
    )
