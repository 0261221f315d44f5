"""Evaluation: metrics of predictions, whether trust goes to the right modalities, robustness to corruption."""

from consilience.evaluation.classification import (
    ReliabilityBins,
    accuracy,
    balanced_accuracy,
    brier,
    ece,
    macro_f1,
    nll,
    reliability_bins,
)
from consilience.evaluation.diagnostics import TrustDiagnostics, trust_diagnostics
from consilience.evaluation.loop_diagnostics import depth_curve, joining_curve, probe_steps, step_features
from consilience.evaluation.metrics import METRICS, Metric, evaluate, find_metric, register_metric
from consilience.evaluation.regression import acc2, acc7, mae, mse, pearson
from consilience.evaluation.robustness import RobustnessCurve, robust_auc, robustness_curve
from consilience.evaluation.trust import TrustQuality, trust_from_weights, trust_quality

__all__ = [
    "METRICS",
    "Metric",
    "ReliabilityBins",
    "RobustnessCurve",
    "TrustDiagnostics",
    "TrustQuality",
    "acc2",
    "acc7",
    "accuracy",
    "balanced_accuracy",
    "brier",
    "depth_curve",
    "ece",
    "evaluate",
    "find_metric",
    "joining_curve",
    "macro_f1",
    "mae",
    "mse",
    "nll",
    "pearson",
    "probe_steps",
    "register_metric",
    "reliability_bins",
    "robust_auc",
    "robustness_curve",
    "step_features",
    "trust_diagnostics",
    "trust_from_weights",
    "trust_quality",
]
