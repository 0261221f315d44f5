"""`partial_fit`: calibration and class shares follow labelled rows that come in later, without new training."""

from __future__ import annotations

import copy
import os
import threading
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.rule_update import update_rule
from consilience.core.errors import InputError
from consilience.core.settings import NonNegativeFloat, checked
from consilience.estimators.available import available_if

# One update of a model at a time: two that began at once would both start from the same rule, and one would be lost.
# The locks are kept here, since a model that holds one could not be copied, sent to another process or saved.
_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_LOCKING = threading.Lock()


def _updating(model: Any) -> threading.RLock:
    """The lock of a model."""
    with _LOCKING:
        return _LOCKS.setdefault(model, threading.RLock())


def _forget_locks() -> None:
    """In a process that was forked nobody is left who could release them."""
    global _LOCKS, _LOCKING
    _LOCKS, _LOCKING = WeakKeyDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget_locks)


class LabelledOpinions(NamedTuple):
    """A rule, and opinions `[n, modality, class]` on labelled rows; y, weight `[n]`, present `[n, modality]`."""

    rule: BayesRule
    opinions: np.ndarray
    y: np.ndarray
    present: np.ndarray
    weight: np.ndarray | None


def evidence_of(y: np.ndarray, classes: int, weight: np.ndarray | None = None) -> float:
    """Return how many rows a fit is of: those given, and one for each class, which smoothed shares add.

    >>> evidence_of(np.array([0, 1, 1]), 2)
    5.0
    """
    return float(len(y) if weight is None else weight.sum()) + classes


def _has_rule(estimator: Any) -> None:
    """Raise an error unless the experts are joined by a rule, which is known once the estimator is fitted."""
    if (reason := estimator._why_no_update()) is not None:
        raise AttributeError(f"partial_fit {reason}")


class LearnsOnline:
    """A classifier whose experts are joined by a `BayesRule`."""

    evidence_: float | None

    def _why_no_update(self) -> str | None:
        """Why there is nothing that could be updated, or None; an error if the estimator is not fitted."""
        raise NotImplementedError

    def _labelled_opinions(self, X: Any, y: Any, present: Any, weight: Any) -> LabelledOpinions:
        raise NotImplementedError

    def _put_rule(self, rule: BayesRule, evidence: float) -> None:
        """Use another rule, of so many rows, from the next prediction on."""
        raise NotImplementedError

    @available_if(_has_rule)
    @checked
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        present: Any = None,
        sample_weight: Any = None,
        old_rows: NonNegativeFloat | None = None,
    ) -> Self:
        """Update calibration and class shares from labelled rows that came in later, as `bayes.rule_update` says.

        With N old rows and n new ones, a class has the share (N·old share + its new rows) / (N + n). Temperatures,
        and the biases and reliabilities of the calibrations "bias" and "robust", minimise the loss of the new rows
        plus that of N rows for which the old calibration is right. Experts, the dependence between them, and what
        unfamiliar inputs are recognised by stay as they were fitted. A `target_prior` that is given stays too.
        Prediction sets need `calibrate` again, since the scores of calibration samples are of the model before. Other
        threads may predict meanwhile: a prediction is of the model before or of the one after, for all its rows.
        Updates of several threads are made one after another.

        Args:
            X: Rows, as for `predict`. The model must not have learned from them before.
            y: Labels `[n]` of known classes; None: those of the `Samples`.
            present: Booleans `[n, modality]`; False: missing.
            sample_weight: `[n]`.
            old_rows: N, how many rows the old evidence counts as. None: as many as it is of, so that all rows count
                alike. A fixed number forgets: what it counts is the last rows, older ones less and less.

        Raises:
            AttributeError: It is not fitted, or the method is not `bayes`, `bayes-robust` or `auto`.
            InputError: There are no rows, a label is unknown, or the model was saved without the number of its rows.

        Example:
            >>> import consilience as cs
            >>> data = cs.load_data("digits")
            >>> model = cs.FusionClassifier("bayes", epochs=3).fit(data.train)
            >>> later, test = data.test[:200], data.test[200:]
            >>> model.partial_fit(later).score(test) > 0.9
            True
        """
        with _updating(self):
            rule, opinions, labels, there, weight = self._labelled_opinions(X, y, present, sample_weight)
            if len(labels) != len(opinions):
                raise InputError(f"partial_fit: there are {len(opinions)} samples and {len(labels)} targets")
            old = getattr(self, "evidence_", None) if old_rows is None else old_rows
            if old is None:
                raise InputError(
                    "partial_fit: how many rows this model was fitted on was not saved with it: give old_rows, the "
                    "number of rows that its fit counts as"
                )
            updated = update_rule(copy.deepcopy(rule), opinions, labels, there, old_rows=old, weight=weight)
            if hasattr(self, "calibration_"):  # first, so that no set is made of new probabilities and old scores
                del self.calibration_
            self._put_rule(updated, old + float(len(labels) if weight is None else weight.sum()))
        return self
