"""The base classes of methods, what they are built from, and the registry of all methods.

Example:
    >>> "bayes-robust" in available()
    True
    >>> METHODS["late"].tasks
    ('classification', 'regression')
"""

from consilience.methods.losses import equal_weights, expert_losses, task_losses, weighted_mean
from consilience.methods.method import ExpertMethod, JointMethod, Method, Prediction, Step, encode
from consilience.methods.registration import (
    METHODS,
    available,
    build,
    check_settings,
    choose_encoders,
    find,
    register,
    registry,
)
from consilience.methods.spec import PerModality, Spec

__all__ = [
    "METHODS",
    "ExpertMethod",
    "JointMethod",
    "Method",
    "PerModality",
    "Prediction",
    "Spec",
    "Step",
    "available",
    "build",
    "check_settings",
    "choose_encoders",
    "encode",
    "equal_weights",
    "expert_losses",
    "find",
    "register",
    "registry",
    "task_losses",
    "weighted_mean",
]
