"""Sets, intervals and abstention for estimators: with a stated probability of holding, or being, the truth."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, name_rows
from consilience.core.settings import Share, checked
from consilience.estimators.answer_types import like_input
from consilience.evaluation.calibration_scores import CalibrationScores
from consilience.evaluation.conformal_outputs import Outputs, Predict, score_classes, score_numbers
from consilience.evaluation.conformal_scores import IntervalScore, SetScore, check_coverage, class_scores


class Calibrated:
    """An estimator that keeps the scores of calibration samples. Subclasses say how samples are read and predicted."""

    calibration_: CalibrationScores

    def _conformal_outputs(self, X: Any, present: Any) -> tuple[Outputs, np.ndarray]:
        """The outputs for new samples, and which modalities they have, `[n, modality]`."""
        raise NotImplementedError

    def _calibration_data(self, X: Any, y: Any, present: Any) -> tuple[np.ndarray, np.ndarray, Predict]:
        """Which modalities labelled samples have, their encoded targets, and a function that predicts them."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        """Raise an error if there is no trained model yet."""

    def _sets(self, outputs: Outputs, there: np.ndarray, coverage: float) -> np.ndarray:
        """The sets, or intervals, of outputs that were predicted; there: `[n, modality]`."""
        raise NotImplementedError

    def _flat(self) -> bool:
        """Whether there is one target, given as `[n]`."""
        raise NotImplementedError

    @checked
    def calibrate(self, X: Any, y: Any = None, present: Any = None) -> Any:
        """Score labelled samples for `predict_set`, `predict_interval` and `abstain`, in place of earlier ones.

        The guarantees are exact if the model has not seen these samples in any way, early stopping included, and if
        they are exchangeable with the samples to predict.

        Args:
            X: Samples, as for `fit`.
            y: Targets; None: those of the `Samples`.
            present: Booleans `[n, modality]`; False: missing.

        Returns:
            The estimator.
        """
        there, true, predict = self._calibration_data(X, y, present)
        self._collect(there, true, predict, "given")
        return self

    def _collect(self, present: np.ndarray, true: np.ndarray, predict: Predict, source: str) -> None:
        """Score samples; those without any modality do not count."""
        rows = np.flatnonzero(present.any(axis=1))
        if not len(rows):
            raise InputError("calibration: no sample has any of the model's modalities")
        score = score_classes if true.ndim == 1 else score_numbers
        evaluate = score(lambda chosen, mask: predict(rows[chosen], mask), true[rows])
        self.calibration_ = CalibrationScores.collect(present[rows], evaluate, source)

    def _calibrated(self) -> CalibrationScores:
        calibration = getattr(self, "calibration_", None)  # read once: another thread may delete it
        if calibration is None:
            self._check_fitted()
            raise InputError(
                f"this {type(self).__name__} has no calibration samples: call model.calibrate(X, y), or give "
                "--calibration FILE to consilience predict, with labelled samples that it was not trained on; or fit "
                "it with a validation set or with calibration=5 (folds) where it has these parameters"
            )
        return calibration


class PredictsSets(Calibrated):
    """A classifier with `predict_set` and `abstain`."""

    @checked
    def predict_set(
        self,
        X: Any,
        coverage: Share = 0.9,
        score: SetScore = "aps",
        present: Any = None,
        *,
        weigh_reliability: bool = False,
        allow_empty: bool = True,
    ) -> Any:
        """Return sets of classes that hold the true one with probability `coverage`, whichever modalities are present.

        Thresholds come from calibration samples with the same modalities present, see `Availability.group`. The
        coverage is exact for samples of `calibrate`; those of "auto", "validation" and folds hold it approximately.

        Args:
            X: Samples, as for `predict`.
            coverage: Above 0 and below 1.
            score: "aps" (adaptive), "raps" (adaptive, without long tails) or "lac" (smallest on average).
            present: Booleans `[n, modality]`; False: missing.
            weigh_reliability: Let sets grow where modalities seem broken: misses are shared out in proportion to the
                squared mean reliability of the present modalities, see `weighed_quantiles`. For methods that estimate
                it, such as `bayes-robust`. The coverage on average is the same; corrupted samples are not exchangeable
                with sound ones, so for them nothing is guaranteed.
            allow_empty: Whether a set may be empty. If not, the most probable class is always in it, and the coverage
                may be larger than asked for.

        Returns:
            Booleans `[n, class]`, columns in the order of `classes_`; `consilience.evaluation.set_labels` lists the
            labels. Without any modality, the set has all classes.
        """
        check_coverage(coverage)
        known = self._calibrated()
        if weigh_reliability and "reliability" not in known.values:
            raise UnsupportedError(
                "predict_set: weigh_reliability needs a method that estimates how reliable each modality is, such as "
                "bayes-robust"
            )
        outputs, there = self._conformal_outputs(X, present)
        reliability = outputs.reliability if weigh_reliability else None
        return like_input(X, self._sets(outputs, there, coverage, score, reliability, allow_empty))

    def _sets(
        self,
        outputs: Outputs,
        there: np.ndarray,
        coverage: float,
        score: SetScore = "aps",
        reliability: np.ndarray | None = None,
        allow_empty: bool = True,
    ) -> np.ndarray:
        """The sets of outputs that were predicted, `[n, class]`."""
        most = self._calibrated().quantiles(score, there, coverage, reliability)
        chosen = class_scores(outputs.values, score) <= most[:, None]
        if not allow_empty:
            chosen[np.arange(len(chosen)), outputs.values.argmax(axis=1)] = True
        return chosen

    @checked
    def abstain(self, X: Any, risk: Share = 0.02, confidence: Share = 0.95, present: Any = None) -> Any:
        """Return where the model should not decide, so that at most the share `risk` of its decisions is wrong.

        It decides where the largest probability reaches a threshold. Over the draw of the calibration samples, the risk
        holds with probability `confidence`, for each group of calibration samples (see `Availability.group`) and new
        samples from the same distribution. If no threshold guarantees the risk, it always abstains.

        Args:
            X: Samples, as for `predict`.
            risk: Above 0 and below 1.
            confidence: Above 0 and below 1.
            present: Booleans `[n, modality]`; False: missing.

        Returns:
            Booleans `[n]`; True: abstain. Always True without any modality.
        """
        known = self._calibrated()
        outputs, there = self._conformal_outputs(X, present)
        least = known.accept_thresholds(there, risk, confidence)
        return like_input(X, np.exp(outputs.values.max(axis=1)) < least)


class PredictsIntervals(Calibrated):
    """A regressor with `predict_interval`, which `predict_set` is another name of."""

    @checked
    def predict_interval(
        self, X: Any, coverage: Share = 0.9, score: IntervalScore = "absolute", present: Any = None
    ) -> Any:
        """Return intervals that hold the true number with probability `coverage`, whichever modalities are present.

        With several targets this holds for each of them. The coverage is exact for samples of `calibrate`; those of
        "auto", "validation" and folds hold it approximately.

        Args:
            X: Samples, as for `predict`.
            coverage: Above 0 and below 1.
            score: "absolute": intervals of one width for each pattern of present modalities; "normalised": wider where
                the method predicts a larger variance (bayes, bayes-robust), or where its experts disagree, for other
                methods that have experts.
            present: Booleans `[n, modality]`; False: missing.

        Returns:
            Lower and upper ends `[n, 2]`, or `[n, target, 2]`; infinite for a sample without any modality.
        """
        check_coverage(coverage)
        known = self._calibrated()
        if score not in known.values:
            raise UnsupportedError(
                "predict_interval: normalised residuals need a method with an expert for each modality, such as late; "
                "use score='absolute'"
            )
        outputs, there = self._conformal_outputs(X, present)
        return like_input(X, self._sets(outputs, there, coverage, score))

    def _sets(
        self, outputs: Outputs, there: np.ndarray, coverage: float, score: IntervalScore = "absolute"
    ) -> np.ndarray:
        """The intervals of numbers that were predicted, `[n, 2]` or `[n, target, 2]`."""
        half = self._calibrated().quantiles(score, there, coverage)
        bounded = np.isfinite(half)
        if score == "normalised":
            assert outputs.spread is not None
            half = half * outputs.spread
        ends = np.stack([outputs.values - half, outputs.values + half], axis=-1)
        broken = (np.isnan(ends).any(axis=2) | (bounded & ~np.isfinite(ends).all(axis=2))).any(axis=1)
        if broken.any():
            raise InputError(
                f"predict_interval: the interval of {name_rows(np.flatnonzero(broken))} is not finite: the values of "
                "these samples are too large, or the model is damaged"
            )
        return ends[:, 0] if self._flat() else ends

    @checked
    def predict_set(self, X: Any, coverage: Share = 0.9, score: IntervalScore = "absolute", present: Any = None) -> Any:
        """Return `predict_interval(X, coverage, score, present)`."""
        return self.predict_interval(X, coverage, score, present)
