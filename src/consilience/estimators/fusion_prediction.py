"""What a trained fusion model predicts: labels or numbers, probabilities, trust, and what explanations need.

`FusionClassifier` and `FusionRegressor` add fitting and the interface of scikit-learn. `saved_model` has the same
without scikit-learn, whose import takes longer than most predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consilience.core.errors import UnsupportedError
from consilience.core.samples import Samples
from consilience.core.settings import Share, checked
from consilience.estimators.answer_types import like_input
from consilience.estimators.explaining import Explains, MaskedModel, rows_at_once
from consilience.estimators.fusion_calibration import CalibratesFusion
from consilience.estimators.prediction_sets import PredictsSets
from consilience.estimators.torch_data import over_batches
from consilience.evaluation.trust import trust_from_weights
from consilience.methods import Prediction
from consilience.training import Model
from consilience.training.model import check_finite_rows

if TYPE_CHECKING:
    from consilience.estimators.compiled import CompiledModel


class PredictsFusion(Explains, CalibratesFusion):
    """A trained model that predicts samples. Subclasses say how their input is read."""

    gives_weights_: bool
    classes_: np.ndarray

    def _observed(self, X: Any, present: Any) -> Samples:
        """New samples, in which nothing is filled in."""
        raise NotImplementedError

    def _filled(self, samples: Samples) -> Samples:
        """The samples, with missing modalities filled in if there is a model that does."""
        if not hasattr(self, "imputer_"):
            return samples
        from consilience.methods.latent.imputation import fill_missing

        return fill_missing(self.imputer_, samples, self.device)

    def _adopt(self, model: Model, gives_weights: bool) -> Any:
        self.model_ = model
        self.gives_weights_ = gives_weights
        self.modalities_ = tuple(model.preparation.raw)
        if model.task.classes is not None:
            self.classes_ = model.task.classes
        self.n_iter_ = max(1, sum(len(log.rows) for log in model.logs))
        return self

    def _predict(self, X: Any, present: Any) -> tuple[Samples, Prediction]:
        samples = self._filled(self._observed(X, present))
        return samples, self.model_.predict(samples, device=self.device)

    def _decoded(self, X: Any, present: Any) -> np.ndarray:
        output = self._predict(X, present)[1].output.numpy()
        return self.model_.task.decode(output)

    @checked
    def predict(self, X: Any, present: Any = None) -> Any:
        """Return the most probable label of each sample `[n]`; for a regressor numbers `[n]` or `[n, target]`.

        A torch `Dataset` or `DataLoader` is predicted batch by batch, in the order in which it gives its samples.
        """
        return over_batches(X, present, lambda X, present: like_input(X, self._decoded(X, present)))

    def _trust(self, X: Any, present: Any) -> Any:
        return like_input(X, self.trust_of(self.full_prediction(X, present)))

    def trust_of(self, prediction: Prediction) -> np.ndarray:
        """Return the trust `[n, modality]` that belongs to what `full_prediction` returned."""
        assert prediction.weights is not None
        check_finite_rows(f"a weight of method {self.model_.name!r}", prediction.weights)
        return trust_from_weights(prediction.weights.double().numpy(), prediction.extra["present"])

    @checked
    def full_prediction(self, X: Any, present: Any = None) -> Prediction:
        """Return the output, and opinions and weights where the method has them, as CPU tensors.

        `extra["present"]` is `[n, modality]`, and so is `extra["reliability"]` where the method estimates it;
        modalities are in the order of `modalities_`.
        """
        samples, prediction = self._predict(X, present)
        return replace(prediction, extra={**prediction.extra, "present": samples.present_among(self.modalities_)})

    @checked
    def predict_with_sets(
        self, X: Any, coverage: Share | None = 0.9, present: Any = None
    ) -> tuple[Prediction, np.ndarray | None]:
        """Return what `full_prediction` and `predict_set` return, computed together; no sets if coverage is None.

        `extra["observed"]` is `extra["present"]` without modalities that the model has filled in.
        """
        samples = self._observed(X, present)
        filled = self._filled(samples)
        prediction = self.model_.predict(filled, device=self.device)
        there = samples.present_among(self.modalities_)
        sets = None
        if coverage is not None:
            sets = self._sets(self._outputs_of(prediction, filled), there, coverage)
        used = filled.present_among(self.modalities_)
        return replace(prediction, extra={**prediction.extra, "present": used, "observed": there}), sets

    def _masked(self, X: Any, present: Any) -> MaskedModel:
        samples = self._observed(X, present)
        prediction, task = self._predict(samples, None)[1], self.model_.task
        columns = [self.modalities_.index(name) for name in samples.names]

        def outputs(rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
            hidden = samples.select(rows).replaced({}, present=masks[:, columns])
            output = self._predict(hidden, None)[1].output.double()
            if task.classification:
                return output.log_softmax(dim=1).numpy()
            return task.decode(output.numpy()).reshape(len(rows), -1)

        there = samples.present_among(self.modalities_)
        return MaskedModel(self.modalities_, task, there, prediction, outputs, rows_at_once(samples))

    @checked
    def compiled(self) -> CompiledModel:
        """Return the model laid out for predictions of a few rows with little delay, on the CPU.

        It reads a mapping modality → array `[n, *shape]` of vectors and images; what is not checked is said in
        `consilience.estimators.compiled`. Its numbers are those of this model.

        Raises:
            UnsupportedError: A modality is a sequence, tokens or text, or missing modalities are filled in.

        Example:
            >>> from consilience import FusionClassifier, load_data
            >>> data = load_data("digits")
            >>> model = FusionClassifier("late", epochs=2, device="cpu").fit(data.train)
            >>> row = {name: data.test[name][:1] for name in data.test.names}
            >>> bool((model.compiled().predict_proba(row) == model.predict_proba(row)).all())
            True
        """
        from consilience.estimators.compiled import CompiledModel

        self._check_fitted()
        if hasattr(self, "imputer_"):
            raise UnsupportedError("compiled: the model fills in missing modalities (impute=): use the model itself")
        return CompiledModel(self.model_, self.gives_weights_)

    @checked
    def export(self, path: str | Path, format: Literal["onnx", "torch"] | None = None) -> Path:
        """Write the model as one file that runs without this library: ONNX, or an exported program of torch.

        Standardisation, fills and categories are inside. Before the file is written, what it computes is compared with
        this model: with every modality missing in turn, and in batches of several sizes. See docs/export.md for inputs
        and outputs. ONNX needs `pip install 'consilience[onnx]'`.

        Args:
            path: The file; an existing one is replaced.
            format: "onnx" or "torch"; None: by the suffix, `.onnx` or `.pt2`.

        Returns:
            The path.

        Raises:
            UnsupportedError: A part of the model cannot be exported; the message names it.
            OperationError: A number differs by more than 1e-5. Nothing is written.

        Example:
            >>> import tempfile
            >>> from consilience import FusionClassifier, load_data
            >>> data = load_data("digits")
            >>> model = FusionClassifier("late", epochs=2).fit(data.train)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.export(Path(folder) / "model.pt2").name
            'model.pt2'
        """
        from consilience.exporting.export import export_model

        self._check_fitted()
        if hasattr(self, "imputer_"):
            raise UnsupportedError(
                "export: the model fills in missing modalities with a latent model (impute=), which cannot be "
                "exported: fit it without impute="
            )
        known = self._known_encodings() if hasattr(self, "_known_encodings") else {}
        return export_model(
            self.model_, path, gives_weights=self.gives_weights_, encodings=known or None, format=format
        )

    @checked
    def read(self, path: str | Path) -> Samples:
        """Read new samples for `predict` from a file with the layout of the training file."""
        self._check_fitted()
        return self.model_.read(path)


class PredictsClasses(PredictsSets):
    """The probabilities of a classifier, beside its sets."""

    _predict: Callable[[Any, Any], tuple[Samples, Prediction]]

    @checked
    def predict_proba(self, X: Any, present: Any = None) -> Any:
        """Return class probabilities `[n, class]`, columns in the order of `classes_`; input as for `predict`."""

        def of_batch(X: Any, present: Any) -> Any:
            return like_input(X, self._predict(X, present)[1].output.double().softmax(dim=1).numpy())

        return over_batches(X, present, of_batch)
