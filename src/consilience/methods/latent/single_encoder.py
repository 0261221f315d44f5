"""The encoder q(z | x_m) of one modality alone, without decoders and without the encoders of other modalities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import UnsupportedError, unknown_name
from consilience.core.samples import Kind, Samples
from consilience.core.seeding import seeded
from consilience.core.settings import checked
from consilience.core.targets import Task
from consilience.encoders import EncoderChoice, describe_encoders
from consilience.methods import Spec
from consilience.methods.latent.likelihoods.likelihood import LikelihoodChoice, build_likelihood
from consilience.methods.latent.subset_encoders import (
    SUBSET_ENCODERS,
    OwnEncoder,
    ProductEncoder,
    SubsetEncoder,
    TrunkEncoder,
)
from consilience.methods.latent.trained_latent_model import TrainedLatent, join_states, mean_and_variance, split_states
from consilience.preparation import Preparation
from consilience.training.batch_loader import BatchLoader
from consilience.training.building_limits import BuildingLimits
from consilience.training.devices import moved_to, resolve_device

_ENCODER = "encoder."


class SingleEncoder:
    """q(z | x_m) of one modality of a trained latent model, for use where the other modalities are never measured.

    `MultimodalVAE.export_encoder` writes it, `consilience.load` reads it.
    """

    def __init__(
        self,
        network: SubsetEncoder,
        preparation: Preparation,
        likelihood: LikelihoodChoice = None,
        encoders: Mapping[str, EncoderChoice] | None = None,
    ):
        self.network, self.preparation, self.encoders = network, preparation, dict(encoders or {})
        (self.name,) = preparation.raw
        self.likelihood = likelihood
        self._encoder_input = build_likelihood(preparation.modalities[self.name], likelihood).encoder_input

    @classmethod
    def of(cls, trained: TrainedLatent, name: str) -> SingleEncoder:
        """Return the encoder of one modality of a trained model."""
        if name not in trained.names:
            raise unknown_name("modality", name, trained.names)
        whole, place = trained.model.subset_encoder, trained.names.index(name)
        subset = torch.zeros(1, len(trained.names), dtype=torch.bool)
        subset[0, place] = True
        if not whole.trained_on(subset.to(next(whole.parameters()).device)).all():
            raise UnsupportedError(
                f"objective {trained.model.criterion.name!r} has trained no encoder for {name!r} alone: choose "
                "subset_encoder='poe', or an objective that trains all subsets (m2vae)"
            )
        old = trained.preparation
        preparation = Preparation({name: old.transforms[name]}, {name: old.raw[name]}, old.task)
        encoders = {name: trained.encoders[name]} if name in trained.encoders else {}
        likelihood = (trained.settings.get("likelihoods") or {}).get(name)
        with seeded(0):  # the weights are overwritten below
            network = _build(_kind(whole), preparation, encoders, whole.latent)
        network.load_state_dict(_state_of_modality(whole, network, place))
        return cls(network.to(torch.get_default_dtype()).eval(), preparation, likelihood, encoders)

    @torch.no_grad()
    @checked
    def encode(self, X: Any, device: str = "auto") -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance `[n, latent]` of q(z | x), for values `[n, *shape]` or `Samples`."""
        if not isinstance(X, Samples):
            kind: Kind = self.preparation.raw[self.name].kind
            values = X[self.name] if isinstance(X, Mapping) else X
            X = Samples.of({self.name: values}, kinds={self.name: kind})
        target = resolve_device(device)
        network = moved_to(self.network, target).eval()
        posteriors = []
        for batch in BatchLoader(X.only([self.name]), self.preparation, target).in_order(256):
            batch.values = {self.name: self._encoder_input(batch[self.name])}
            posteriors.append(network(batch, batch.present[None])[0])
        return mean_and_variance(posteriors)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return tensors and JSON for `SingleEncoder.from_state`."""
        tensors, prepared = join_states(_ENCODER, self.network, self.preparation)
        described = {
            "network": _kind(self.network),
            "latent": self.network.latent,
            "likelihood": self.likelihood,
            "encoders": describe_encoders(self.encoders, self.network),
            "preparation": prepared,
        }
        return tensors, described

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> SingleEncoder:
        """Rebuild from what `state` returned, with a user's own encoder put back into it."""
        state, preparation = split_states(_ENCODER, tensors, described)
        with seeded(0), BuildingLimits(state.values()):  # the weights are overwritten below
            network = _build(described["network"], preparation, described["encoders"], described["latent"])
        network.load_state_dict(state)
        return cls(network.eval(), preparation, described["likelihood"], described["encoders"])


def _kind(network: SubsetEncoder) -> str:
    """Return a name to rebuild a network from; for a product it includes whether the prior takes part."""
    return ("poe" if network.prior else "poe without prior") if isinstance(network, ProductEncoder) else network.name


def _build(kind: str, preparation: Preparation, encoders: Mapping[str, EncoderChoice], latent: int) -> SubsetEncoder:
    spec = Spec(preparation.modalities, Task.none(), dict(encoders))
    if kind.startswith("poe"):
        return ProductEncoder(spec, latent, prior=kind == "poe")
    return SUBSET_ENCODERS[kind](spec, latent)


def _state_of_modality(whole: SubsetEncoder, single: SubsetEncoder, place: int) -> dict[str, Tensor]:
    """Return the tensors of a network of one modality, taken from the network of all."""
    state = whole.state_dict()
    row = (1 << place) - 1  # of the subset {m} among all subsets
    found = {}
    for key, like in single.state_dict().items():
        if key == "met":
            found[key] = torch.ones_like(like)
        elif isinstance(whole, OwnEncoder):
            found[key] = state[key.replace("each.0.", f"each.{row}.", 1)]
        elif isinstance(whole, TrunkEncoder) and key == "first":
            found[key] = state[key][place : place + 1, :, row : row + 1]
        elif isinstance(whole, TrunkEncoder) and key in ("first_bias", "second", "second_bias"):
            found[key] = state[key][row : row + 1]
        else:
            found[key] = state[key.replace(".each.0.", f".each.{place}.", 1)]
    return found
