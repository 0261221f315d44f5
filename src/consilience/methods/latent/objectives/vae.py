"""One autoencoder of all modalities side by side (Kingma and Welling 2014), missing ones as zeros: the baseline."""

from __future__ import annotations

from consilience.methods.latent.objectives.joint import Joint
from consilience.methods.latent.objectives.objective import register_objective


@register_objective("vae", paper="Kingma and Welling 2014, Auto-Encoding Variational Bayes")
class Vae(Joint):
    """The joint bound with one encoder that reads all modalities at once, whatever is missing."""

    subset_encoders = ("concat",)

    def default_encoder(self, modalities: int) -> str:
        """Side by side."""
        return "concat"
