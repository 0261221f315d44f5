"""The scikit-learn face: any registered method as a classifier or a regressor, on mappings of arrays or on tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from consilience.columns import Columns, describe_columns, restore_columns, split_columns
from consilience.encoders import EncoderChoice
from consilience.errors import InputError, SavedModelError, unknown_name
from consilience.evaluation.trust import trust_from_weights
from consilience.samples import Kind, Samples
from consilience.targets import Task, TaskKind, check_labels, check_numbers
from consilience.training import Model, Trainer, load_model


def _gives_weights(estimator: Any) -> bool:
    """Trust exists only for methods that weigh their modalities, and is known once fitted."""
    return getattr(estimator, "gives_weights_", False)


class _FusionEstimator(BaseEstimator):
    """What the classifier and the regressor share: parameters, the door, fitting, saving."""

    _task_kind: ClassVar[TaskKind]

    def __init__(
        self,
        method: str = "concat",
        *,
        settings: Mapping[str, Any] | None = None,
        encoders: Mapping[str, EncoderChoice] | None = None,
        columns: Columns | None = None,
        kinds: Mapping[str, Kind] | None = None,
        epochs: int = 100,
        batch_size: int = 64,
        lr: float = 1e-3,
        optimizer: str = "adam",
        weight_decay: float = 0.0,
        patience: int | None = 15,
        validation: Any = 0.1,
        modality_dropout: float = 0.0,
        training: Mapping[str, Any] | None = None,
        device: str = "auto",
        precision: str = "32",
        random_state: Any = 0,
        verbose: int = 0,
    ):
        self.method = method
        self.settings = settings
        self.encoders = encoders
        self.columns = columns
        self.kinds = kinds
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation = validation
        self.modality_dropout = modality_dropout
        self.training = training
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, present: Any, sample_weight: Any, class_weight: Any = None) -> Any:
        y = y if y is not None or not isinstance(X, Samples) else X.y
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        seed = self._seed()
        train = self._samples(X, as_numpy(y), present, sample_weight, first=True)
        train = Samples.of(train, self._check_targets(as_numpy(y)))
        train, validation = self._hold_out(train, seed)
        model = Model.fit(
            self.method,
            train,
            validation,
            settings=self.settings,
            encoders=self.encoders,
            task=self._task_kind,
            class_weight=class_weight,
            trainer=self._trainer(seed),
        )
        return self._adopt(model, gives_weights=model.predict(train[:1], device=self.device).weights is not None)

    def _check_targets(self, y: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _adopt(self, model: Model, gives_weights: bool) -> Any:
        self.model_ = model
        self.gives_weights_ = gives_weights
        self.modalities_ = tuple(model.preparation.raw)
        self.n_iter_ = max(1, sum(len(log.rows) for log in model.logs))
        return self

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _trainer(self, seed: int) -> Trainer:
        settings: dict[str, Any] = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lr": self.lr,
            "optimizer": self.optimizer,
            "weight_decay": self.weight_decay,
            "patience": self.patience,
            "modality_dropout": self.modality_dropout,
            "device": self.device,
            "precision": self.precision,
            "verbose": self.verbose,
            "seed": seed,
        }
        for name, value in (self.training or {}).items():
            if name in settings:
                raise InputError(f"training: {name!r} is a parameter of its own; give {name}={value!r}")
            if name not in Trainer.__dataclass_fields__ or name in ("preparation", "logs"):
                known = sorted(set(Trainer.__dataclass_fields__) - {"preparation", "logs"} - settings.keys())
                raise unknown_name("training setting", name, known)
            settings[name] = value
        return Trainer(**settings)

    def _samples(self, X: Any, y: Any, present: Any, weight: Any, first: bool = False) -> Samples:
        """Whatever the user has, as samples: a mapping of arrays, `Samples`, or one table and `columns`."""
        # A sparse matrix may be a mapping too; validate_data says how to make it dense.
        if isinstance(X, Samples) or (isinstance(X, Mapping) and not issparse(X)):
            if self.columns is not None:
                raise InputError("columns= is for one 2-D array or DataFrame; a mapping names its modalities itself")
            if first:
                for learned in ("n_features_in_", "feature_names_in_"):  # of an earlier fit on a table
                    self.__dict__.pop(learned, None)
            if isinstance(X, Samples):
                return Samples.of(X, y, present=present, weight=weight)
            # What training saw decides how the same modality is read later: token lists of equal length, say.
            kinds = self.kinds
            if hasattr(self, "model_") and not first:
                kinds = {name: one.kind for name, one in self.model_.preparation.raw.items() if name in X}
            return Samples.of(X, y, kinds=kinds, present=present, weight=weight)
        # NaN is let through here: a modality whose columns are all NaN is missing, and Samples refuses the rest.
        table = validate_data(self, X, reset=first, ensure_all_finite=False, ensure_min_samples=2 if first else 1)
        if y is not None and len(table) != len(y):
            raise InputError(f"X has {len(table)} rows, y has {len(y)}")
        chosen_columns = split_columns(self.columns, table.shape[1], list(getattr(self, "feature_names_in_", ())))
        values = {name: table[:, chosen] for name, chosen in chosen_columns.items()}
        return Samples.of(values, y, kinds=self.kinds, present=present, weight=weight)

    def _hold_out(self, train: Samples, seed: int) -> tuple[Samples, Samples | None]:
        """Set part of the training samples aside for early stopping, unless a validation set was given."""
        given = self.validation
        if given is None:
            return train, None
        if isinstance(given, Samples):
            return train, given
        if isinstance(given, tuple | list) and len(given) == 2:
            return train, self._samples(given[0], as_numpy(given[1]), None, None)
        if not isinstance(given, float | int | np.number) or not 0 <= given < 1:
            raise InputError(
                f"validation must be a share from 0 to 1, None, Samples with y, or a pair (X, y), got {given!r}"
            )
        held = hold_out_rows(train.y, float(given), seed, self._task_kind == "classification")
        if train.weight is not None:
            held &= train.weight > 0  # a sample that counts nothing can judge nothing
        # Too few samples to spare any: every one is trained on, for all epochs.
        return (train, None) if not held.any() else (train[~held], train[held])

    def _output(self, X: Any, present: Any) -> np.ndarray:
        return self._predict(X, present).output.numpy()

    def _predict(self, X: Any, present: Any) -> Any:
        check_is_fitted(self, "model_")
        return self.model_.predict(self._samples(X, None, present, None), device=self.device)

    @property
    def reference_(self) -> dict[str, Any]:
        """The training data's statistics per modality, by which `robustness_curve` scales its noise."""
        check_is_fitted(self, "model_")
        return self.model_.reference()

    @available_if(_gives_weights)
    def trust(self, X: Any, present: Any = None) -> np.ndarray:
        """How far each modality is trusted for each sample: `[n, modality]`, rows sum to 1 over what is present."""
        samples = self._samples(X, None, present, None)
        weights = self.model_.predict(samples, device=self.device).weights
        assert weights is not None
        there = np.zeros((len(samples), len(self.modalities_)), dtype=bool)
        for column, name in enumerate(self.modalities_):
            if name in samples:
                there[:, column] = samples.present_in(name)
        return like_input(X, trust_from_weights(weights.numpy(), there))

    def save(self, path: str | Path) -> Path:
        """Write a folder of safetensors and JSON, for `consilience.load`."""
        check_is_fitted(self, "model_")
        parameters = self.get_params(deep=False)
        # A validation set and encoders of one's own are no plain values: the first has served, the second are asked
        # for again when loading.
        if isinstance(self.validation, Samples | tuple | list):
            parameters["validation"] = None
        parameters["encoders"] = None
        parameters["columns"] = describe_columns(self.columns)
        if not isinstance(self.random_state, int | np.integer | None):
            parameters["random_state"] = None
        learned = {
            name: np.asarray(getattr(self, name)).tolist()
            for name in ("n_features_in_", "feature_names_in_", "gives_weights_", "n_iter_")
            if hasattr(self, name)
        }
        return self.model_.save(path, {"estimator": type(self).__name__, "parameters": parameters, "learned": learned})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Among several modalities a NaN can be a missing one; in a single block it can only be a mistake.
        tags.input_tags.allow_nan = self.columns is not None
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


class FusionClassifier(ClassifierMixin, _FusionEstimator):
    """Train a fusion method on several modalities, and predict even where some are missing.

    method: a registered name (`consilience.methods.available()`) · settings: of the method · encoders: modality →
    encoder name, settings, or a module of one's own · columns: for one 2-D array or DataFrame, modality → slice,
    positions, names or a glob · kinds: modality → kind, where the shape does not tell · validation: a share of the
    training data for early stopping, None, or a pair (X, y) · class_weight: "balanced" or class → weight ·
    training: any further setting of `consilience.training.Trainer`.

    >>> from consilience import load_data
    >>> data = load_data("digits")
    >>> model = FusionClassifier("late", epochs=5).fit(data.train, data.train.y)
    >>> model.predict_proba(data.test).shape[1]
    10
    >>> model.trust(data.test[:1]).round(2).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    _task_kind = "classification"

    def __init__(
        self,
        method: str = "concat",
        *,
        settings: Mapping[str, Any] | None = None,
        encoders: Mapping[str, EncoderChoice] | None = None,
        columns: Columns | None = None,
        kinds: Mapping[str, Kind] | None = None,
        epochs: int = 100,
        batch_size: int = 64,
        lr: float = 1e-3,
        optimizer: str = "adam",
        weight_decay: float = 0.0,
        patience: int | None = 15,
        validation: Any = 0.1,
        class_weight: Mapping[Any, float] | str | None = None,
        modality_dropout: float = 0.0,
        training: Mapping[str, Any] | None = None,
        device: str = "auto",
        precision: str = "32",
        random_state: Any = 0,
        verbose: int = 0,
    ):
        super().__init__(
            method,
            settings=settings,
            encoders=encoders,
            columns=columns,
            kinds=kinds,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            optimizer=optimizer,
            weight_decay=weight_decay,
            patience=patience,
            validation=validation,
            modality_dropout=modality_dropout,
            training=training,
            device=device,
            precision=precision,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any = None, present: Any = None, sample_weight: Any = None) -> FusionClassifier:
        """Train. X: mapping name → array, `Samples`, or a table; y: `[n]` labels; present: `[n, modality]`."""
        return self._fit(X, y, present, sample_weight, self.class_weight)

    def _check_targets(self, y: np.ndarray) -> np.ndarray:
        return check_labels(column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y)

    def _adopt(self, model: Model, gives_weights: bool) -> Any:
        self.classes_ = model.task.classes
        return super()._adopt(model, gives_weights)

    def predict_proba(self, X: Any, present: Any = None) -> Any:
        """Class probabilities `[n, class]`, columns in the order of `classes_`."""
        logits = self._predict(X, present).output.double()
        return like_input(X, logits.softmax(dim=1).numpy())

    def predict(self, X: Any, present: Any = None) -> np.ndarray:
        """The most probable label of each sample `[n]`."""
        return self.model_task().decode(self._output(X, present))

    def model_task(self) -> Task:
        """The task that was learned."""
        check_is_fitted(self, "model_")
        return self.model_.task


class FusionRegressor(RegressorMixin, _FusionEstimator):
    """Train a fusion method to predict numbers; parameters as for `FusionClassifier`.

    >>> import numpy as np
    >>> a, b = np.random.default_rng(0).normal(size=(2, 200, 3))
    >>> model = FusionRegressor("concat", epochs=20).fit({"a": a, "b": b}, a[:, 0] + b[:, 1])
    >>> model.predict({"a": a[:5], "b": b[:5]}).shape
    (5,)
    """

    _task_kind = "regression"

    def fit(self, X: Any, y: Any = None, present: Any = None, sample_weight: Any = None) -> FusionRegressor:
        """Train. X: mapping name → array, `Samples`, or a table; y: `[n]` or `[n, target]`."""
        return self._fit(X, y, present, sample_weight)

    def _check_targets(self, y: np.ndarray) -> np.ndarray:
        check_numbers(y)
        return y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, present: Any = None) -> Any:
        """Numbers `[n]`, or `[n, target]` if trained on several."""
        output = self._output(X, present)
        return like_input(X, self.model_.task.decode(output))


def load(
    path: str | Path, *, encoders: Mapping[str, EncoderChoice] | None = None
) -> FusionClassifier | FusionRegressor:
    """Read an estimator that `save` wrote; nothing in the folder is executed. Custom encoders are passed again."""
    model, extra = load_model(path, encoders)
    classes: dict[str, Any] = {"FusionClassifier": FusionClassifier, "FusionRegressor": FusionRegressor}
    if extra.get("estimator") not in classes:
        raise SavedModelError(f"{path} holds a model but no estimator; read it with consilience.training.load_model")
    parameters = dict(extra["parameters"])
    parameters["columns"] = restore_columns(parameters["columns"])
    parameters["encoders"] = model.encoders or None
    estimator = classes[extra["estimator"]](**parameters)
    learned = dict(extra["learned"])
    estimator._adopt(model, gives_weights=learned.pop("gives_weights_"))
    for name, value in learned.items():
        setattr(estimator, name, np.array(value, dtype=object) if name == "feature_names_in_" else value)
    return estimator


def hold_out_rows(y: np.ndarray | None, share: float, seed: int, stratified: bool) -> np.ndarray:
    """Which samples to set aside, booleans `[n]`: of every class its share, so that no class leaves training."""
    assert y is not None
    shuffled = np.random.default_rng(seed).permutation(len(y))
    held = np.zeros(len(y), dtype=bool)
    groups = np.unique(y, return_inverse=True)[1].reshape(len(y)) if stratified else np.zeros(len(y), dtype=int)
    for group in range(groups.max() + 1):
        members = shuffled[groups[shuffled] == group]
        # Rounded down: a class of one stays in training.
        held[members[: int(share * len(members) + 0.5) if len(members) > 1 else 0]] = True
    return held


def as_numpy(y: Any) -> np.ndarray:
    """Targets from arrays, tensors, lists, or a column of a table."""
    if hasattr(y, "detach"):
        return y.detach().cpu().numpy()
    return y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)


def like_input(X: Any, values: np.ndarray) -> Any:
    """Tensors if the modalities came as tensors, else numpy."""
    if isinstance(X, Mapping) and X and all(hasattr(one, "detach") for one in X.values()):
        import torch

        return torch.from_numpy(values)
    return values
