"""Calibration samples of a fusion estimator: given ones, validation samples, or training samples by cross-fitting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from torch import Tensor

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Interval
from consilience.core.targets import check_numbers
from consilience.data.folds import most_folds
from consilience.estimators.fit_time import FitTime
from consilience.estimators.prediction_sets import Calibrated
from consilience.evaluation.conformal_outputs import (
    Outputs,
    Predict,
    expert_spread,
    log_softmax,
    mean_reliability,
    predicted_spread,
)
from consilience.methods import Prediction
from consilience.training import Model
from consilience.training.trainer import split_folds

Calibration = Literal["auto", "validation"] | Annotated[int, Interval(2)] | None
_LEAST_LOG = -700.0  # the log-probability of a class that a fold's training samples did not have


class CalibratesFusion(Calibrated):
    """How a `FusionClassifier` or `FusionRegressor` gets its calibration samples and predicts them."""

    calibration: Any
    device: str
    model_: Model
    modalities_: tuple[str, ...]

    def _conformal_outputs(self: Any, X: Any, present: Any) -> tuple[Outputs, np.ndarray]:
        samples = self._observed(X, present)
        filled = self._filled(samples)
        outputs = self._outputs_of(self.model_.predict(filled, device=self.device), filled)
        return outputs, samples.present_among(self.modalities_)

    def _outputs_of(self, prediction: Prediction, filled: Samples) -> Outputs:
        """What conformal prediction needs of a prediction for samples in which missing modalities are filled in."""
        task = self.model_.task
        used = filled.present_among(self.modalities_)
        if task.classification:
            reliability = None
            if self.model_.method.weights_are_reliabilities and prediction.weights is not None:
                reliability = mean_reliability(prediction.weights.double().numpy(), used)
            return self._as_outputs(prediction.output)._replace(reliability=reliability)
        spread = None
        if "variance" in prediction.extra:
            spread = predicted_spread(prediction.extra["variance"].double().numpy(), task)
        elif prediction.opinions is not None:
            spread = expert_spread(prediction.opinions.double().numpy(), used, task)
        return self._as_outputs(prediction.output)._replace(spread=spread)

    def _as_outputs(self, output: Tensor) -> Outputs:
        """A method's output `[k, output]` as log-probabilities, or as numbers in the user's units."""
        if self.model_.task.classification:
            return Outputs(log_softmax(output))
        numbers = self.model_.task.decode(output.numpy())
        return Outputs(numbers.reshape(len(numbers), -1))

    def _calibration_data(self: Any, X: Any, y: Any, present: Any) -> tuple[np.ndarray, np.ndarray, Predict]:
        self._check_fitted()
        true = self._encoded(self._targets(X, y))
        samples = self._observed(X, present)
        if len(true) != len(samples):
            raise InputError(f"calibration: there are {len(samples)} samples and {len(true)} targets")
        return samples.present_among(self.modalities_), true, self._predicting(samples)

    def _flat(self) -> bool:
        return self.model_.task.flat

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        """Targets as columns `[n]`, or as numbers in the user's units `[n, target]`."""
        encoded = self.model_.task.encode(y)  # also checks labels and the number of targets
        return encoded if self.model_.task.classification else check_numbers(y)

    def _predicting(self, samples: Samples) -> Predict:
        """A function that predicts rows of the samples with some of their modalities."""

        def predict(rows: np.ndarray, mask: np.ndarray) -> Outputs:
            there = {name: mask[:, m] for m, name in enumerate(self.modalities_) if name in samples}
            return self._conformal_outputs(samples.select(rows), there)[0]

        return predict

    def _calibrate_fitted(
        self,
        train: Samples,
        validation: Samples | None,
        seed: int,
        class_weight: Any = None,
        time: FitTime | None = None,
    ) -> None:
        """Score the calibration samples that the parameter `calibration` names."""
        how = self.calibration
        if how is None:
            return
        if self._calibration_folds():
            self._cross_fit(train, validation, seed, class_weight, time or FitTime(None))
            return
        everything = np.ones((1, len(self.modalities_)), dtype=bool)
        method = self.model_.method
        if how == "auto" and method.held_out_output(np.zeros(1, dtype=np.int64), everything) is not None:

            def held_out(rows: np.ndarray, mask: np.ndarray) -> Outputs:
                output = method.held_out_output(rows, mask)
                assert output is not None
                variance = method.held_out_variance(rows, mask)
                spread = None if variance is None else predicted_spread(variance.numpy(), self.model_.task)
                weights = method.held_out_weights(rows, mask) if method.weights_are_reliabilities else None
                reliability = None
                if weights is not None and self.model_.task.classification:
                    reliability = mean_reliability(weights.numpy(), mask)
                return self._as_outputs(output)._replace(reliability=reliability, spread=spread)

            self._collect_weighted(train, held_out, "cross-fitting")
        elif validation is not None:
            self._collect_weighted(validation, self._predicting(validation.without_targets()), "validation")
        elif how == "validation":
            raise InputError(
                "calibration='validation' needs validation samples, and there are none: give validation a share, "
                "samples, or calibration a number of folds"
            )

    def _collect_weighted(self, samples: Samples, predict: Predict, source: str) -> None:
        """Score samples whose weight is not 0."""
        assert samples.y is not None
        rows = np.arange(len(samples)) if samples.weight is None else np.flatnonzero(samples.weight)
        there = samples.present_among(self.modalities_)[rows]
        if not there.any():
            return  # no sample that the model could be calibrated with
        self._collect(there, self._encoded(samples.y)[rows], lambda k, mask: predict(rows[k], mask), source)

    def _calibration_folds(self) -> int:
        """In how many folds the method is trained again, to calibrate it."""
        return 0 if self.calibration in (None, "auto", "validation") else int(self.calibration)

    def _cross_fit(
        self: Any, train: Samples, validation: Samples | None, seed: int, class_weight: Any, time: FitTime
    ) -> None:
        """Train the whole method on all folds but one, and score that one, for every fold."""
        folds = most_folds(train, self._calibration_folds())
        fold_of = split_folds(train, self.model_.task, folds, seed)
        parameters = self.get_params(deep=False) | {
            "calibration": None,
            "callbacks": None,
            "columns": None,
            "kinds": None,
        }
        if self.validation is not None and not np.isscalar(self.validation):  # read already, by these columns
            parameters["validation"] = validation
        training = {name: value for name, value in (self.training or {}).items() if name != "checkpoint"}
        models = []
        for fold in range(folds):
            own_seed = (seed * folds + fold) % 2**63
            deadline = time.of_fold()
            if deadline is not None:
                training["deadline"] = deadline
            other = type(self)(**parameters | {"training": training or None, "random_state": own_seed})
            others = train.select(np.flatnonzero(fold_of != fold))
            other._fit(others, None, None, None, _of_classes(class_weight, others))
            if any(log.interrupted for log in other.model_.logs):
                return
            models.append(other)
        predicting = [model._predicting(train.without_targets()) for model in models]

        def predict(rows: np.ndarray, mask: np.ndarray) -> Outputs:
            parts = [np.flatnonzero(fold_of[rows] == fold) for fold in range(folds)]
            outputs = [
                _in_columns(of(rows[part], mask[part]), model, self)
                for of, part, model in zip(predicting, parts, models)
                if len(part)
            ]
            order = np.argsort(np.concatenate(parts))
            values, reliability, spread = (_joined(each, order) for each in zip(*outputs))
            assert values is not None
            return Outputs(values, reliability, spread)

        self._collect_weighted(train, predict, "cross-fitting")


def _of_classes(class_weight: Any, samples: Samples) -> Any:
    """Class weights without those of classes that a fold's training samples do not have."""
    if not isinstance(class_weight, Mapping):
        return class_weight
    assert samples.y is not None
    known = set(samples.y.tolist())
    return {label: weight for label, weight in class_weight.items() if label in known}


def _in_columns(outputs: Outputs, model: Any, whole: Any) -> Outputs:
    """Outputs with a column for every class of the whole model, some of which a fold may not have had."""
    if not model.model_.task.classification or len(model.classes_) == len(whole.classes_):
        return outputs
    values = np.full((len(outputs.values), len(whole.classes_)), _LEAST_LOG)
    values[:, np.searchsorted(whole.classes_, model.classes_)] = outputs.values
    return outputs._replace(values=values)


def _joined(values: Sequence[np.ndarray | None], order: np.ndarray) -> np.ndarray | None:
    given = [value for value in values if value is not None]
    return np.concatenate(given)[order] if given else None
