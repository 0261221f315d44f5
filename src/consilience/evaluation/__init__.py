"""Evaluation: metrics of predictions, whether trust goes to the right modalities, robustness to corruption."""

from consilience.evaluation.classification import (
    ReliabilityBins,
    accuracy,
    balanced_accuracy,
    brier,
    brier_score_loss,
    ece,
    macro_f1,
    nll,
    reliability_bins,
)
from consilience.evaluation.confusion import ConfusionMatrix, confusion_matrix
from consilience.evaluation.diagnostics import TrustDiagnostics, trust_diagnostics
from consilience.evaluation.loop_diagnostics import depth_curve, joining_curve, probe_steps, step_features
from consilience.evaluation.metrics import METRICS, Metric, evaluate, find_metric, register_metric
from consilience.evaluation.permutation_importance import PermutationImportance, permutation_importance
from consilience.evaluation.ranking_metrics import auroc, average_precision, concordance
from consilience.evaluation.regression import acc2, acc7, mae, mape, mse, pearson, pinball, r2
from consilience.evaluation.robustness import RobustnessCurve, robust_auc, robustness_curve
from consilience.evaluation.selective_risk import RiskCurve, aurc, risk_threshold, selective_risk_curve
from consilience.evaluation.set_metrics import (
    interval_coverage,
    mean_interval_width,
    mean_set_size,
    set_coverage,
    set_labels,
)
from consilience.evaluation.trust import TrustQuality, trust_from_weights, trust_quality

__all__ = [
    "METRICS",
    "ConfusionMatrix",
    "Metric",
    "PermutationImportance",
    "ReliabilityBins",
    "RiskCurve",
    "RobustnessCurve",
    "TrustDiagnostics",
    "TrustQuality",
    "acc2",
    "acc7",
    "accuracy",
    "aurc",
    "auroc",
    "average_precision",
    "balanced_accuracy",
    "brier",
    "brier_score_loss",
    "concordance",
    "confusion_matrix",
    "depth_curve",
    "ece",
    "evaluate",
    "find_metric",
    "interval_coverage",
    "joining_curve",
    "macro_f1",
    "mae",
    "mape",
    "mean_interval_width",
    "mean_set_size",
    "mse",
    "nll",
    "pearson",
    "permutation_importance",
    "pinball",
    "probe_steps",
    "r2",
    "register_metric",
    "reliability_bins",
    "risk_threshold",
    "robust_auc",
    "robustness_curve",
    "selective_risk_curve",
    "set_coverage",
    "set_labels",
    "step_features",
    "trust_diagnostics",
    "trust_from_weights",
    "trust_quality",
]
