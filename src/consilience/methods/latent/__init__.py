"""Latent fusion: variational autoencoders of several modalities, any of which may be missing."""

from consilience.methods import load_room

load_room(__name__, __path__)
