"""The scikit-learn interface: fusion by any registered method, Bayesian fusion of opinions, latent fusion."""

from consilience.estimators.bayes_fusion import BayesFusion
from consilience.estimators.fusion import FusionClassifier, FusionRegressor, hold_out_rows
from consilience.estimators.load_model import load
from consilience.estimators.multimodal_vae import MultimodalVAE

__all__ = ["BayesFusion", "FusionClassifier", "FusionRegressor", "MultimodalVAE", "hold_out_rows", "load"]
