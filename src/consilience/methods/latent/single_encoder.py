"""One modality's encoder by itself: q(z | x_m), without decoders and without the encoders of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, SavedModelError, UnsupportedError, unknown_name
from consilience.core.samples import Kind, Samples
from consilience.core.targets import Task
from consilience.encoders import EncoderChoice, describe_encoders
from consilience.methods import Spec
from consilience.methods.latent.likelihoods import LikelihoodChoice, build_likelihood
from consilience.methods.latent.subset_encoders import (
    ConcatEncoder,
    OwnEncoder,
    ProductEncoder,
    SetEncoder,
    SubsetEncoder,
    TrunkEncoder,
)
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.preparation import Preparation
from consilience.training.batch_loader import BatchLoader
from consilience.training.devices import resolve_device
from consilience.training.seeding import seeded

_CLASSES: dict[str, type[SubsetEncoder]] = {
    one.name: one for one in (ConcatEncoder, OwnEncoder, SetEncoder, TrunkEncoder)
}
_ENCODER, _PREPARATION = "encoder.", "preparation."


class EncoderAlone:
    """q(z | x_m) of one modality of a trained latent model, to be used where the others are never seen.

    Made by `MultimodalVAE.export_encoder`, read by `consilience.load`.
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
        self._seen = build_likelihood(preparation.modalities[self.name], likelihood).seen

    @classmethod
    def of(cls, trained: TrainedLatent, name: str) -> EncoderAlone:
        """The encoder of one modality, taken out of a trained model."""
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
        with seeded(0):  # what is drawn here is overwritten at once
            network = _build(_kind(whole), preparation, encoders, whole.latent)
        network.load_state_dict(_state_of_one(whole, network, place))
        return cls(network.to(torch.get_default_dtype()).eval(), preparation, likelihood, encoders)

    @torch.no_grad()
    def encode(self, X: Any, device: str = "auto") -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance `[n, latent]` of q(z | x) for values `[n, *shape]`, or `Samples`; missing: the prior."""
        if not isinstance(X, Samples):
            kind: Kind = self.preparation.raw[self.name].kind
            values = X[self.name] if isinstance(X, Mapping) else X
            X = Samples.of({self.name: values}, kinds={self.name: kind})
        target = resolve_device(device)
        network = self.network.to(target).eval()
        found = []
        for batch in BatchLoader(X.only([self.name]), self.preparation, target).in_order(256):
            batch.values = {self.name: self._seen(batch[self.name])}
            found.append(network(batch, batch.present[None])[0])
        mean, variance = (torch.cat(parts) for parts in zip(*((one.mean, one.variance) for one in found)))
        return mean.cpu().numpy(), variance.cpu().numpy()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON for `EncoderAlone.from_state`."""
        learned, prepared = self.preparation.state()
        tensors = {_ENCODER + key: value for key, value in self.network.state_dict().items()}
        tensors |= {_PREPARATION + key: value for key, value in learned.items()}
        described = {
            "network": _kind(self.network),
            "latent": self.network.latent,
            "likelihood": self.likelihood,
            "encoders": describe_encoders(self.encoders, self.network),
            "preparation": prepared,
        }
        return tensors, described

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> EncoderAlone:
        """Rebuild what `state` gave, in which an encoder of the user's own has been put back."""
        try:
            preparation = Preparation.from_state(_part(tensors, _PREPARATION), described["preparation"])
            with seeded(0):
                network = _build(described["network"], preparation, described["encoders"], described["latent"])
            network.load_state_dict(_part(tensors, _ENCODER))
            return cls(network.eval(), preparation, described["likelihood"], described["encoders"])
        except (InputError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise SavedModelError(f"the encoder cannot be rebuilt as it was saved: {error}") from error


def _kind(network: SubsetEncoder) -> str:
    """A name from which a network is rebuilt; a product also remembers whether the prior takes part."""
    return ("poe" if network.prior else "poe without prior") if isinstance(network, ProductEncoder) else network.name


def _build(kind: str, preparation: Preparation, encoders: Mapping[str, EncoderChoice], latent: int) -> SubsetEncoder:
    spec = Spec(preparation.modalities, Task.none(), dict(encoders))
    if kind.startswith("poe"):
        return ProductEncoder(spec, latent, prior=kind == "poe")
    return _CLASSES[kind](spec, latent)


def _state_of_one(whole: SubsetEncoder, alone: SubsetEncoder, place: int) -> dict[str, Tensor]:
    """The tensors of a network of one modality, found among those of the network of all."""
    state = whole.state_dict()
    row = (1 << place) - 1  # of the subset {m} among all of them
    found = {}
    for key, like in alone.state_dict().items():
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


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
