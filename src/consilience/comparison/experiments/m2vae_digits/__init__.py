"""Latent fusion on the quadrants of digits: M²VAE in both bounds, on all subsets and on chains, against its peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consilience.comparison.experiments.experiment import Reproduction, register_experiment


@dataclass(frozen=True)
class M2VaeDigits:
    """Imputation error, conditional log-likelihood and coherence by the number of quadrants given."""

    name: str = "m2vae-digits"
    title: str = "Latent fusion on digits: which objective imputes, and how well?"
    paper: str = "Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective"
    notes: tuple[str, ...] = (
        "The paper derives the objective and measures nothing, so there are no figures to stand beside ours.",
        "joint has no encoder for subsets; here it has a product of experts, trained on whole digits alone.",
        "Where the effective draws are few, log p of the given quadrants is estimated too low, and the conditional "
        "log-likelihood, from which it is subtracted, too high: that of joint is not to be believed.",
    )

    def run(self, *, quick: bool = False, **how: Any) -> Reproduction:
        """Train what is not trained yet, then write the page. how: `out`, `jobs`, `cluster`, `verbose`, `command`."""
        from consilience.comparison.experiments.m2vae_digits.cells import FULL, QUICK
        from consilience.comparison.experiments.m2vae_digits.running import reproduce

        protocol, size = (QUICK, "-quick") if quick else (FULL, "")
        how = {name: value for name, value in how.items() if value is not None}
        out = how.pop("out", f"runs/{self.name}{size}")
        return reproduce(protocol, out, title=self.title, paper=self.paper, notes=self.notes, **how)


register_experiment(M2VaeDigits())
