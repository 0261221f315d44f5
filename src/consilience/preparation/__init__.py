"""Standardisation and vocabularies, learned from the training samples: samples → tensors."""

from consilience.preparation.preparation import Preparation

__all__ = ["Preparation"]
