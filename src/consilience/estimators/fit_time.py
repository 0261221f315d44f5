"""How the time limit of a `fit` is divided over what it trains: imputer, model, folds of a calibration, and refit."""

from __future__ import annotations

from consilience.training.time_limit import Deadline

# Of the time of a model that is refitted: a refit takes at most about as many steps as the first training.
_FIRST_SHARE = 0.45


class FitTime:
    """What is left of the time limit of a `fit`, divided equally over the trainings that wait for it.

    Args:
        deadline: Of the `fit`, whose time runs from now; None: no limit, and no training has one.
        folds: How many times the whole estimator is trained again, to calibrate it.
        imputes: Whether an imputer is trained before each model.

    Example:
        >>> time = FitTime(Deadline(60), folds=2)
        >>> [round(time.of_model().seconds), round(time.of_fold().seconds)]
        [20, 30]
    """

    def __init__(self, deadline: Deadline | None, folds: int = 0, imputes: bool = False):
        self._deadline = None if deadline is None else deadline.start()
        self._of_estimator = 1.0 + imputes
        self._waiting = self._of_estimator * (1 + folds)

    def of_imputer(self) -> Deadline | None:
        """The deadline of the imputer."""
        return self._take(1.0)

    def of_model(self, refit: bool = False) -> Deadline | None:
        """The deadline of the model; with `refit` of its first training, after which a part is kept."""
        whole = self._take(1.0)
        if whole is None or not refit:
            return whole
        return Deadline(whole.seconds * _FIRST_SHARE, kept=whole.seconds * (1 - _FIRST_SHARE))

    def keep_for_refit(self) -> None:
        """The model will be refitted after the folds."""
        self._waiting += 1 - _FIRST_SHARE

    def of_fold(self) -> Deadline | None:
        """The deadline of all that is trained for the next fold."""
        return self._take(self._of_estimator)

    def _take(self, parts: float) -> Deadline | None:
        if self._deadline is None:
            return None
        seconds = max(self._deadline.left(), 0.0) * parts / self._waiting
        self._waiting -= parts
        return Deadline(seconds)
