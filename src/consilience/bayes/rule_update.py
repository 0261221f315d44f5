"""Labelled rows that come in later: calibration, reliability and class shares of a rule follow, experts do not.

With N_0 rows of old evidence and n new rows, the class shares where the rule is used become

    π'_c = (N_0 π_c + n_c) / (N_0 + n)

which is the share among all rows. Temperature, bias and reliability of an expert minimise

    Σ_i v_i [ −ln q(y_i | z_i) − (N_0 / n) Σ_c p(c | z_i) ln q(c | z_i) ]

where p is what its old calibration says of its opinion z_i, and q what the new one would say. The second term is the
loss that the old evidence would have on these opinions: without any new label it is smallest where nothing changes.
Where the new rows are too few or too unlike those of the fit to tell the parameters, the old evidence counts by itself
(see `calibration_update`).
Each new row counts v_i ∝ π_exp(y_i) / π'(y_i), so that a class that has become more frequent is no evidence against an
expert, which was trained with the shares π_exp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.calibration import fit_bias_temperature, fit_robust_temperature, fit_temperature
from consilience.bayes.calibration_update import Expert, update_expert
from consilience.bayes.priors import empirical_prior
from consilience.core.errors import InputError


def update_rule(
    rule: BayesRule,
    opinions: np.ndarray,
    y: np.ndarray,
    present: np.ndarray,
    *,
    old_rows: float,
    weight: np.ndarray | None = None,
) -> BayesRule:
    """Update a fitted rule in place from labelled rows; what it knows of the dependence between experts stays.

    What is new replaces what was in one step, after all of it is computed. A prediction that runs beside it reads the
    rule more than once, so an estimator that other threads use updates a copy.

    Args:
        rule: The rule.
        opinions: Logits on the new rows `[n, modality, class]`.
        y: Class indices `[n]`.
        present: Booleans `[n, modality]`.
        old_rows: How many rows the old evidence counts as; 0: it is forgotten.
        weight: `[n]`.

    Returns:
        The rule.

    Raises:
        InputError: There is no row of positive weight, or old_rows is negative.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(2, size=500)
        >>> z = np.eye(2)[y][:, None] * 2 + rng.normal(size=(500, 1, 2))
        >>> rule = BayesRule(1, 2).double().fit(z, y)
        >>> before = rule.temperature.item()
        >>> there = np.ones((500, 1), dtype=bool)
        >>> bool(update_rule(rule, 4 * z, y, there, old_rows=500).temperature.item() > before)
        True
    """
    counted = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    total = counted.sum()
    if not total > 0:
        raise InputError("partial_fit: there is no row of positive weight")
    if not (np.isfinite(old_rows) and old_rows >= 0):
        raise InputError(f"partial_fit: old_rows must be a number ≥ 0, got {old_rows!r}")
    shares = _shares(rule.target)
    target = (old_rows * shares + np.bincount(y, counted, rule.classes)) / (old_rows + total)
    if old_rows == 0:
        target = empirical_prior(y, rule.classes, weight=counted)
    learned = {"target": target}
    if rule.calibration is not None:
        learned |= _recalibrated(rule, opinions, y, present, counted, old_rows, target)
    rule.learn(**learned)
    return rule


def _recalibrated(
    rule: BayesRule,
    opinions: np.ndarray,
    y: np.ndarray,
    present: np.ndarray,
    counted: np.ndarray,
    old_rows: float,
    target: np.ndarray,
) -> dict[str, np.ndarray]:
    """Fit the calibration of every expert that the rows have; returns its new buffers."""
    prior = _shares(rule.prior)
    importance = counted * prior[y] / np.maximum(target[y], 1e-300)
    if not importance.sum() > 0:
        return {}
    importance *= counted.sum() / importance.sum()
    given = torch.from_numpy(np.where(present[:, :, None], opinions, 0.0).astype(np.float64))
    moved = rule.uncalibrated(given, torch.from_numpy(present)).double().cpu().numpy()
    names = ("temperature", "bias", "reliability", "plain_temperature")
    learned = {name: rule.get_buffer(name).double().cpu().numpy().copy() for name in names}
    # "auto" joins two calibrations, each of which has old evidence of its own: what it said of the new rows.
    joined = "robust" if rule.calibration == "auto" else rule.calibration
    parts: list[tuple[str, Any, np.ndarray]] = [("temperature", joined, _said(rule, given, present, 0.0))]
    if rule.calibration == "auto":
        parts.append(("plain_temperature", "temperature", _said(rule, given, present, 1.0)))
    for expert in range(rule.modalities):
        rows = np.flatnonzero(present[:, expert] & (importance > 0))
        if not len(rows):
            continue
        for name, kind, said in parts:
            own, weight = moved[rows, expert], importance[rows]
            if old_rows == 0:
                found = _fit_anew(kind, own, y[rows], weight, prior)
            else:
                sound = learned["reliability"][expert] if kind == "robust" else 1.0
                old = Expert(learned[name][expert], learned["bias"][expert], sound)
                evidence = {"old_rows": old_rows, "old_share": old_rows / counted.sum()}
                found = update_expert(old, kind, own, said[rows, expert], y[rows], weight, prior, **evidence)
            learned[name][expert] = found.temperature
            if kind == "bias":
                learned["bias"][expert] = found.bias
            elif kind == "robust":
                learned["reliability"][expert] = found.reliability
    return learned


def _fit_anew(kind: str, z: np.ndarray, y: np.ndarray, weight: np.ndarray, prior: np.ndarray) -> Expert:
    """The calibration of one expert of new rows alone; z: `[n, class]`."""
    opinions, bias, sound = z[:, None], np.zeros((1, z.shape[1])), np.ones(1)
    if kind == "robust":
        temperature, sound = fit_robust_temperature(opinions, y, prior, weight=weight)
    elif kind == "bias":
        temperature, bias = fit_bias_temperature(opinions, y, weight=weight)
    else:
        temperature = fit_temperature(opinions, y, weight=weight)
    return Expert(float(temperature[0]), bias[0], float(sound[0]))


def _said(rule: BayesRule, given: torch.Tensor, present: np.ndarray, plain_share: float) -> np.ndarray:
    """The calibrated probabilities of each expert `[n, modality, class]`, by the shares of a joined calibration."""
    with torch.no_grad():
        return rule.calibrated(given, torch.from_numpy(present), plain_share).softmax(2).double().cpu().numpy()


def _shares(values: torch.Tensor) -> np.ndarray:
    shares = values.double().cpu().numpy()
    return shares / shares.sum()
