"""Multimodal fusion: several modalities, one decision, and how far each can be trusted."""

from __future__ import annotations

import importlib

from consilience.version import __version__

TYPE_CHECKING = False  # as in typing, whose import takes longer than all of this

# Public name → where it lives. Loaded on first use: `import consilience` costs next to nothing.
_PUBLIC = {
    "BayesFusion": "estimators",
    "FusionClassifier": "estimators",
    "FusionRegressor": "estimators",
    "FusionState": "bayes.fusion_state",
    "Monitor": "estimators",
    "MultimodalVAE": "estimators",
    "Samples": "core.samples",
    "compare": "comparison",
    "corrupt": "corruption",
    "estimate_target_prior": "bayes.priors",
    "fuse": "bayes.fuse",
    "load": "estimators",
    "load_data": "data",
    "progressive": "methods.progressive.progressive",
    "robust_auc": "evaluation",
    "robustness_curve": "evaluation",
    "trust_diagnostics": "evaluation",
}

__all__ = ["__version__", "methods", *_PUBLIC]

if TYPE_CHECKING:
    from typing import Any

    from consilience import methods as methods
    from consilience.bayes.fuse import fuse as fuse
    from consilience.bayes.fusion_state import FusionState as FusionState
    from consilience.bayes.priors import estimate_target_prior as estimate_target_prior
    from consilience.comparison import compare as compare
    from consilience.core.samples import Samples as Samples
    from consilience.corruption import corrupt as corrupt
    from consilience.data import load_data as load_data
    from consilience.estimators import BayesFusion as BayesFusion
    from consilience.estimators import FusionClassifier as FusionClassifier
    from consilience.estimators import FusionRegressor as FusionRegressor
    from consilience.estimators import Monitor as Monitor
    from consilience.estimators import MultimodalVAE as MultimodalVAE
    from consilience.estimators import load as load
    from consilience.evaluation import robust_auc as robust_auc
    from consilience.evaluation import robustness_curve as robustness_curve
    from consilience.evaluation import trust_diagnostics as trust_diagnostics
    from consilience.methods.progressive.progressive import progressive as progressive


def __getattr__(name: str) -> Any:
    if name == "methods":
        return importlib.import_module("consilience.methods")
    if name in _PUBLIC:
        found = getattr(importlib.import_module(f"consilience.{_PUBLIC[name]}"), name)
        globals()[name] = found  # from now on no call looks for it, nor sees what replaces it in its own module
        return found
    raise AttributeError(f"module 'consilience' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "methods", *_PUBLIC})
