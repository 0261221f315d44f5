"""The networks of `MultimodalVAE` where none are chosen. They are part of a saved model, so that they may change.

A `LatentModel` by itself has the smaller defaults of encoders and decoders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.core.modalities import Modality
from consilience.encoders import EncoderChoice
from consilience.methods.latent.decoders import DecoderChoice

# Chosen on validation samples, see docs/latent.md.
ENCODER: dict[str, Any] = {"name": "mlp", "hidden": [256, 128], "dropout": 0.0}
DECODER: dict[str, Any] = {"name": "mlp", "hidden": [256]}
SUBSET_ENCODERS = {"m2vae": "set"}


def default_encoders(
    modalities: Mapping[str, Modality], chosen: Mapping[str, EncoderChoice] | None
) -> dict[str, EncoderChoice]:
    """Return the chosen encoders, and the default of vectors without one.

    >>> default_encoders({"a": Modality("a", "vector", (3,))}, {"a": "linear"})
    {'a': 'linear'}
    """
    given = {name: choice for name, choice in (chosen or {}).items() if choice is not None}
    return {**_of_vectors(modalities, ENCODER), **given}


def default_decoders(
    modalities: Mapping[str, Modality], chosen: Mapping[str, DecoderChoice] | None
) -> dict[str, DecoderChoice]:
    """Return the chosen decoders, and the default of vectors without one."""
    given = {name: choice for name, choice in (chosen or {}).items() if choice is not None}
    return {**_of_vectors(modalities, DECODER), **given}


def _of_vectors(modalities: Mapping[str, Modality], network: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dict(network) for name, modality in modalities.items() if modality.kind == "vector"}


def chosen_networks(
    encoders: Mapping[str, EncoderChoice] | None, decoders: Mapping[str, DecoderChoice] | None
) -> tuple[dict[str, EncoderChoice] | None, dict[str, DecoderChoice] | None]:
    """Return the encoders and decoders of a saved model without those that are today's defaults; None for none."""
    kept_encoders = {name: choice for name, choice in (encoders or {}).items() if choice != ENCODER}
    kept_decoders = {name: choice for name, choice in (decoders or {}).items() if choice != DECODER}
    return kept_encoders or None, kept_decoders or None
