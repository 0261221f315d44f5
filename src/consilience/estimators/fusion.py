"""Any registered method as a scikit-learn classifier or regressor."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from consilience.bayes.bayes_rule import BayesRule
from consilience.core.errors import InputError, SavedModelError, show
from consilience.core.modalities import to_numpy
from consilience.core.samples import Samples, check_weight
from consilience.core.settings import OwnCheck, checked
from consilience.core.targets import Task, TaskKind, check_labels, check_numbers
from consilience.encoders import EncoderChoice
from consilience.estimators.available import available_if
from consilience.estimators.estimator_inputs import ReadsSamples, recipe_of
from consilience.estimators.fit_time import FitTime
from consilience.estimators.fusion_calibration import Calibration
from consilience.estimators.fusion_prediction import PredictsClasses, PredictsFusion
from consilience.estimators.hold_out import hold_out_rows
from consilience.estimators.imputer import fit_imputer
from consilience.estimators.online import LabelledOpinions, LearnsOnline
from consilience.estimators.prediction_sets import PredictsIntervals
from consilience.estimators.refitting import Refits
from consilience.estimators.saved_calibration import restore_calibration, split_calibration, write_calibration
from consilience.estimators.saving import describe_fitted, restore_fitted
from consilience.estimators.sklearn_parameters import check_fitted, draw_seed
from consilience.estimators.torch_data import is_torch_data, read_torch_data
from consilience.evaluation.regression import within_range
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training import Model, load_model
from consilience.training.model_folder import read_extra_tensors, rebuilding
from consilience.training.time_limit import saying_once


def _gives_weights(estimator: Any) -> None:
    """Raise an error unless the method weighs its modalities, which is known once it is fitted."""
    check_fitted(estimator, "model_")
    if not estimator.gives_weights_:
        raise AttributeError(f"method {estimator.method!r} does not weigh its modalities, so it has no trust")


def _has_members(estimator: Any) -> None:
    """Raise an error unless the method pools members, which is known once it is fitted."""
    check_fitted(estimator, "model_")
    pools = hasattr(estimator.model_.method, "leaderboard")
    if pools and not estimator.model_.task.classification:
        raise AttributeError(f"for a regression {estimator.method!r} is bayes-robust, which does not pool members")
    if not pools:
        raise AttributeError(f"method {estimator.method!r} does not pool members, so it has no leaderboard")


class _FusionEstimator(Refits, PredictsFusion, ReadsSamples):
    """What the classifier and the regressor share."""

    first = "method"
    nested = ("settings", "training")
    _task_kind: ClassVar[TaskKind]

    method: str = "auto"
    settings: Mapping[str, Any] | None = None
    encoders: Mapping[str, EncoderChoice] | Literal["auto"] | None = "auto"
    validation: Any = 0.1
    refit: bool = False
    impute: Annotated[str | Mapping[str, Any] | None, OwnCheck] = None
    calibration: Calibration = "auto"

    def _fit(
        self, X: Any, y: Any, present: Any, sample_weight: Any, class_weight: Any = None, groups: Any = None
    ) -> Any:
        self._forget()
        self._check_parameters()
        seed = draw_seed(self.random_state)
        X = self._of_torch(X, y)
        train = self._read(X, present, sample_weight)
        whole = Samples.of(train, self._targets(X, y), group=groups)
        train, validation = self._hold_out(whole, seed)
        self._check_refit(validation is not None and len(train) == len(whole))
        trainer = self._trainer(seed)
        time = FitTime(trainer.deadline, self._calibration_folds(), self.impute is not None)
        apart = self.calibration == "validation" or self.impute is not None  # from training, as the user wants it
        observed = (train, validation)
        if self.impute is not None:
            self.imputer_ = fit_imputer(
                self.impute, self.get_params(deep=False), train, validation, seed, time.of_imputer()
            )
            train, validation = self._filled(train), None if validation is None else self._filled(validation)
        refit = self.refit and validation is not None
        with saying_once():
            model = Model.fit(
                self.method,
                train,
                validation,
                settings=self.settings,
                encoders=self.encoders,
                task=self._task_kind,
                class_weight=class_weight,
                trainer=replace(trainer, deadline=time.of_model(refit)),
                keep_held_out=self.calibration == "auto" and self.impute is None,
                whole=None if apart else whole,
            )
            if model.rows > len(train):  # the method needs no validation samples, and has learned from them
                observed = (whole, None)
            model.recipe = recipe_of(observed[0])
            self._adopt(model, gives_weights=model.predict(train[:1], device=self.device).weights is not None)
            if not any(log.interrupted for log in model.logs):
                if refit and model.rows == len(train):
                    time.keep_for_refit()
                self._calibrate_fitted(*observed, seed, class_weight, time)
                if model.rows == len(train) and validation is not None:
                    self._judge_and_refit(model, train, validation, whole, seed, class_weight)
            model.method.forget_held_out()
        return self

    def _of_torch(self, X: Any, y: Any) -> Any:
        """The samples of a Dataset or DataLoader with its targets; anything else as it is."""
        if not is_torch_data(X):
            return X
        if y is not None:
            raise InputError(f"y is given beside a {type(X).__name__}, which has the targets in its items: leave y out")
        return read_torch_data(X)

    def _check_parameters(self) -> None:
        if not isinstance(self.method, str):
            raise InputError(f"method must be the name of a registered method, got {show(self.method)}")
        self._check_declared()

    def _targets(self, X: Any, y: Any) -> np.ndarray:
        """The targets given, or those of the samples: labels `[n]`, or numbers `[n]` or `[n, target]`."""
        y = X.y if y is None and isinstance(X, Samples) else y
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        checked = check_labels(y) if self._task_kind == "classification" else check_numbers(y)
        if to_numpy("y", y).ndim == 1:
            return checked.reshape(len(checked))
        return column_or_1d(checked[:, None], warn=True) if checked.ndim == 1 else checked

    def _hold_out(self, train: Samples, seed: int) -> tuple[Samples, Samples | None]:
        """Set part of the training samples aside for early stopping, unless a validation set was given."""
        given = self.validation
        if given is None:
            return train, None
        given = self._of_torch(given, None)
        if isinstance(given, Samples) or (isinstance(given, tuple | list) and len(given) == 2):
            X, y = (given, None) if isinstance(given, Samples) else given
            assert train.y is not None
            try:
                targets = self._targets(X, y)
                Task.of(train.y, self._task_kind).encode(targets)
                return train, Samples.of(self._read(X, known=train.modalities), targets)
            except InputError as error:
                raise type(error)(f"validation: {error}") from None
        if not isinstance(given, float | int | np.number) or not 0 <= given < 1:
            got = repr(given) if np.isscalar(given) else type(given).__name__
            raise InputError(f"validation must be a share ≥ 0 and < 1, None, Samples, or a pair (X, y), got {got}")
        held = hold_out_rows(train, float(given), self._task_kind, seed)
        # Too few samples to hold any out: all are trained on, for all epochs.
        return (train[~held], train[held]) if held.any() else (train, None)

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            check_fitted(self, "model_")

    def _observed(self, X: Any, present: Any) -> Samples:
        """New samples, in which nothing is filled in."""
        self._check_fitted()
        return self._read(X, present, known=self.model_.preparation.raw).without_targets()

    def _judged(self, X: Any, y: Any, present: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """True and predicted targets, and weights; a label that is not among those of training raises an error."""
        X = self._of_torch(X, y)
        predicted, true = self._decoded(X, present), self._targets(X, y)
        if len(true) != len(predicted):
            raise InputError(f"targets have {len(true)} rows, the samples have {len(predicted)}")
        self.model_.task.encode(true)
        return true, predicted, None if weight is None else check_weight(weight, len(true))

    @property
    def reference_(self) -> dict[str, Any]:
        """Statistics of the training data per modality, by which `robustness_curve` scales its noise."""
        check_fitted(self, "model_")
        return self.model_.reference()

    @available_if(_gives_weights)
    @checked
    def trust(self, X: Any, present: Any = None) -> Any:
        """Return the trust in each modality per sample `[n, modality]`; rows sum to 1 over the present modalities."""
        return self._trust(X, present)

    @available_if(_has_members)
    def leaderboard(self) -> list[Any]:
        """Return the members of `auto` in a classification: modality, name, held-out log-loss, weight in the pool."""
        return self.model_.method.leaderboard()  # type: ignore[operator]

    @checked
    def save(self, path: str | Path) -> Path:
        """Write a folder of safetensors and JSON, for `consilience.load`.

        A validation set, a random generator, callbacks and the folder of checkpoints are not saved. Encoders that are
        modules of your own and `frozen` ones must be passed to `consilience.load`.
        """
        check_fitted(self, "model_")
        extra = describe_fitted(self)
        tensors: dict[str, Tensor] = {}
        if hasattr(self, "imputer_"):
            tensors, extra["imputer"] = self.imputer_.state()
        tensors = tensors | write_calibration(self, extra)
        return self.model_.save(path, extra, tensors)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._task_kind == "regression"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


class FusionClassifier(ClassifierMixin, LearnsOnline, PredictsClasses, _FusionEstimator):
    """Train a fusion method on several modalities; predict also where some are missing.

    Args:
        method: Name of a registered method, see `consilience.methods.available()`. "auto" is the one to use if nothing
            is known about the data.
        settings: Settings of the method.
        encoders: Modality → name of an encoder, its settings, or an `nn.Module`; the default of the kind for others.
            "auto": the encoder `auto` for vectors, which suits small tables. None: the default of every kind.
        columns: For a 2-D array or a DataFrame: modality → slice, positions, names or a glob. Columns of strings in a
            DataFrame are one-hot encoded; a single one is text unless `kinds` says "vector".
        kinds: Modality → kind, where the shape does not show it. Of a DataFrame also column → "calendar" (features of
            its times), "category" (one-hot) or "number" (whole numbers that look like identifiers).
        fill: What single empty cells of a table become, as in `load_data`; "none": an error. Arrays in a mapping are
            not filled. Fill values and categories are learned from all rows of X, those held out for validation too.
        validation: Share of the training samples for early stopping; or None, `Samples` with y, a pair (X, y), or a
            torch `Dataset` or `DataLoader`. A method that cross-fits its parts in lockstep, such as `auto`, learns from
            that share too.
        refit: Train once more on all samples, those of that share included, for as many steps as early stopping found;
            about twice the time. Where those samples calibrate (`calibration`), they do so with the first model.
        class_weight: "balanced" or class → weight.
        calibration: Where the calibration samples of `predict_set` and `abstain` come from. "validation": the
            validation samples, which early stopping has seen. A number of folds: the training samples, cross-fitted by
            that many further trainings of the whole method. "auto": out-of-fold opinions of the training samples if
            the method has them (`bayes`, `bayes-robust`, `auto`), else the validation samples. None: only from
            `calibrate`.
        impute: Fill in missing modalities, in training and in prediction, with a latent model: an objective of
            `MultimodalVAE` such as "m2vae", or a mapping of its parameters.
        training: Further arguments of `consilience.training.Trainer`, such as `checkpoint`.
        callbacks: `consilience.training.callbacks.Callback` objects. They are not saved with the model.
        random_state: Seed of initial weights, batches and dropout; a RandomState or None.
        **training settings

    In `cross_val_score` and `GridSearchCV` wrap a mapping in `Samples.of`, which can be sliced. Single settings are
    searched as `settings__width`.

    Example:
        >>> from consilience import load_data
        >>> data = load_data("digits")
        >>> model = FusionClassifier("late", epochs=5).fit(data.train, data.train.y)
        >>> model.predict_proba(data.test).shape[1]
        10
        >>> model.trust(data.test[:1]).round(2).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    _task_kind = "classification"

    class_weight: Mapping[Any, float] | str | None = None

    @checked
    def fit(
        self, X: Any, y: Any = None, present: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> FusionClassifier:
        """Train the method.

        Args:
            X: Mapping name → array, `Samples`, a table, or a torch `Dataset` or `DataLoader` of (mapping, y), which is
                read into memory once, up to 4 GiB.
            y: Labels `[n]`; None: those of the `Samples`.
            present: Booleans `[n, modality]`; False: missing.
            sample_weight: `[n]`.
            groups: Labels `[n]`; samples with the same one stay together where a share is held out for validation and
                in every cross-fitting. By default those of the `Samples`; with their times blocks are held out.
        """
        return self._fit(X, y, present, sample_weight, self.class_weight, groups)

    def _why_no_update(self) -> str | None:
        check_fitted(self, "model_")
        if isinstance(getattr(self.model_.method, "rule", None), BayesRule):
            return None
        return f"is for bayes, bayes-robust and auto; method {self.method!r} has no calibrated experts"

    def _labelled_opinions(self, X: Any, y: Any, present: Any, weight: Any) -> LabelledOpinions:
        rule = self.model_.method.rule
        assert isinstance(rule, BayesRule)
        X = self._of_torch(X, y)
        labels, found = self.model_.task.encode(self._targets(X, y)), self.full_prediction(X, present)
        assert found.opinions is not None
        counted = None if weight is None else check_weight(weight, len(labels))
        return LabelledOpinions(rule, found.opinions.double().numpy(), labels, found.extra["present"], counted)

    def _put_rule(self, rule: BayesRule, evidence: float) -> None:
        method = copy.copy(self.model_.method)
        method._modules = {**method._modules, "rule": rule}
        self.model_ = replace(self.model_, method=method, fitted_on={**self.model_.fitted_on, "evidence": evidence})

    @property
    def evidence_(self) -> float | None:
        """How many rows calibration and class shares are of; None if the model was saved without their number."""
        rows = self.model_.fitted_on.get("rows")
        return self.model_.fitted_on.get("evidence", None if rows is None else float(rows) + len(self.classes_))

    @evidence_.setter
    def evidence_(self, rows: float | None) -> None:
        self.model_.fitted_on["evidence"] = rows

    @checked
    def score(self, X: Any, y: Any = None, sample_weight: Any = None, present: Any = None) -> float:
        """Return the accuracy; y: by default that of the `Samples`."""
        true, predicted, weight = self._judged(X, y, present, sample_weight)
        return float(accuracy_score(true, predicted, sample_weight=weight))


class FusionRegressor(RegressorMixin, PredictsIntervals, _FusionEstimator):
    """Train a fusion method to predict numbers.

    The parameters are those of `FusionClassifier` without `class_weight`. The default method "auto" means
    `bayes-robust`, which trains each expert in every fold as well. `concat` is trained once, and less good where
    modalities are missing or noisy (docs/defaults.md).

    Example:
        >>> import numpy as np
        >>> a, b = np.random.default_rng(0).normal(size=(2, 200, 3))
        >>> model = FusionRegressor("concat", epochs=20).fit({"a": a, "b": b}, a[:, 0] + b[:, 1])
        >>> model.predict({"a": a[:5], "b": b[:5]}).shape
        (5,)
    """

    _task_kind = "regression"

    @checked
    def fit(
        self, X: Any, y: Any = None, present: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> FusionRegressor:
        """Train the method; arguments as for `FusionClassifier.fit`, with numbers y `[n]` or `[n, target]`."""
        return self._fit(X, y, present, sample_weight, groups=groups)

    @checked
    def score(self, X: Any, y: Any = None, sample_weight: Any = None, present: Any = None) -> float:
        """Return R², averaged over targets; y: by default that of the `Samples`."""
        true, predicted, weight = self._judged(X, y, present, sample_weight)
        heard = np.ones(len(true), dtype=bool) if weight is None else np.asarray(weight) > 0
        largest = np.abs(true[heard]).max(axis=0)  # R² does not depend on the unit, its squares may overflow
        true, predicted = within_range(true[heard], largest), within_range(predicted[heard], largest)
        return float(r2_score(true, predicted, sample_weight=None if weight is None else np.asarray(weight)[heard]))


def load_fusion(path: Path, encoders: Mapping[str, EncoderChoice] | None = None) -> FusionClassifier | FusionRegressor:
    """Read an estimator that `save` wrote; encoders that are modules of the user's own are passed again."""
    model, extra = load_model(path, encoders)
    classes: dict[str, Any] = {"FusionClassifier": FusionClassifier, "FusionRegressor": FusionRegressor}
    if str(extra.get("estimator")) not in classes:
        raise SavedModelError(f"{path} holds a model but no estimator; read it with consilience.training.load_model")
    with rebuilding(path, "the estimator"):
        parameters, learned = restore_fitted(extra)
        if parameters.get("settings"):
            parameters["settings"] = model.settings
        estimator = classes[extra["estimator"]](**{"encoders": model.encoders or None} | parameters)
        estimator._adopt(model, gives_weights=learned["gives_weights_"])
        if "imputer" in extra:
            tensors, _ = split_calibration(read_extra_tensors(path))
            estimator.imputer_ = TrainedLatent.from_state(tensors, extra["imputer"])
        if "calibration" in extra:
            _, tensors = split_calibration(read_extra_tensors(path))
            learned["calibration_"] = restore_calibration(tensors, extra["calibration"])
    for name, value in learned.items():
        setattr(estimator, name, value)
    return estimator
