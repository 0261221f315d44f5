"""The scikit-learn face: fusion of modalities by any registered method, Bayesian fusion of opinions, latent fusion."""

from consilience.estimators.bayes import BayesFusion
from consilience.estimators.fusion import FusionClassifier, FusionRegressor, hold_out_rows
from consilience.estimators.latent import MultimodalVAE
from consilience.estimators.loading import load

__all__ = ["BayesFusion", "FusionClassifier", "FusionRegressor", "MultimodalVAE", "hold_out_rows", "load"]
