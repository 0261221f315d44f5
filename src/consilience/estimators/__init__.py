"""The scikit-learn face: fusion of modalities by any registered method, and Bayesian fusion of opinions."""

from consilience.estimators.bayes import BayesFusion
from consilience.estimators.fusion import FusionClassifier, FusionRegressor, hold_out_rows
from consilience.estimators.loading import load

__all__ = ["BayesFusion", "FusionClassifier", "FusionRegressor", "hold_out_rows", "load"]
