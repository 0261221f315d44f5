"""The scikit-learn interface: fusion by any registered method, Bayesian fusion of opinions, latent fusion."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience.estimators.bayes_fusion import BayesFusion as BayesFusion
    from consilience.estimators.fusion import FusionClassifier as FusionClassifier
    from consilience.estimators.fusion import FusionRegressor as FusionRegressor
    from consilience.estimators.hold_out import hold_out_rows as hold_out_rows
    from consilience.estimators.load_model import load as load
    from consilience.estimators.monitor import Monitor as Monitor
    from consilience.estimators.multimodal_vae import MultimodalVAE as MultimodalVAE

# Name → its module. Loaded on first use: the command line predicts without scikit-learn.
_PUBLIC = {
    "BayesFusion": "bayes_fusion",
    "FusionClassifier": "fusion",
    "FusionRegressor": "fusion",
    "Monitor": "monitor",
    "MultimodalVAE": "multimodal_vae",
    "hold_out_rows": "hold_out",
    "load": "load_model",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
