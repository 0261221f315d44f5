"""JMVAE on MNIST and its labels: the published log-likelihood of images, by the published recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.comparison.experiments.experiment import register_experiment
from consilience.comparison.experiments.study import Study, Workings

if TYPE_CHECKING:
    from consilience.comparison.experiments.jmvae_mnist.cells import Protocol


@dataclass(frozen=True, kw_only=True)
class JmvaeMnist(Study):
    """Image and label as two modalities; log-likelihoods of the image, of both, and of each given the other."""

    name: str = "jmvae-mnist"
    title: str = "JMVAE on images and labels of MNIST: the published log-likelihood"
    paper: str = "Suzuki, Nakayama and Matsuo 2016, Joint Multimodal Learning with Deep Generative Models"
    notes: tuple[str, ...] = (
        "What is published is log p(image), the label summed out, and not log p(image, label): both are here. It was "
        "estimated with z from q(z | image, label); so is ours beside it. The table of all likelihoods draws z from a "
        "proposal that was refined first. Either lies too low in expectation: of two estimates of one likelihood the "
        "higher is the nearer.",
        "α, the weight of the pull between posteriors, is 0.1, as in MultiVae's script that gives the same figure.",
        "Training images are drawn anew at every step, each pixel with its grey value for the probability of ink, and "
        "test images once. Likelihoods are Bernoulli and categorical.",
        "Nets as published: images and labels through a layer of 512 each, side by side into another, for q(z | image, "
        "label); two layers of 512 for the posteriors of one alone and for the decoders. Their variances come from a "
        "softplus, ours from an exponential.",
        "The weights are those of the last epoch, all 60 000 training images having been trained on; MultiVae takes "
        "the epoch of the lowest training loss after the warm-up.",
        "m2vae stands beside it with the same nets and the same training: what does a bound of its own for each "
        "modality cost the image's likelihood?",
    )

    def protocol(self, quick: bool) -> Protocol:
        """The defaults, or what takes minutes."""
        from consilience.comparison.experiments.jmvae_mnist.cells import FULL, QUICK

        return QUICK if quick else FULL

    def workings(self) -> Workings:
        """How it is measured and told."""
        from consilience.comparison.experiments.jmvae_mnist.account import give_account
        from consilience.comparison.experiments.jmvae_mnist.cells import measure_cell

        return Workings(measure_cell, give_account)


register_experiment(JmvaeMnist())
