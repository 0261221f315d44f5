"""Latent fusion: variational autoencoders of several modalities, any of which may be missing."""
