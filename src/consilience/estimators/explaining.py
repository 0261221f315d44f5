"""How estimators explain: the model predicts again with modalities hidden, which gives their contributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.bayes.fuse import fuse
from consilience.core.errors import ConsilienceError, InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt, PositiveInt, Share, checked
from consilience.core.targets import Task
from consilience.estimators.explanation import Explanation
from consilience.evaluation.contributions import explain_values
from consilience.evaluation.explained_sample import OF_TARGETS, Value, choose_value, opinion_conflict, sample_values
from consilience.evaluation.metric_inputs import as_array
from consilience.evaluation.trust import trust_from_weights
from consilience.methods import Prediction

# Memory for the copies of samples that are predicted at once with different masks.
_MEMORY = 64 * 2**20
_MOST_AT_ONCE = 8192


@dataclass(frozen=True)
class MaskedModel:
    """A trained model with its samples, which predicts any of them with any of their modalities.

    Attributes:
        names: Modalities, in the order of the columns.
        task: Classes or numbers.
        present: What the samples have `[n, modality]`.
        prediction: For all samples as they are: opinions, weights, and `extra["reliability"]` if there is one.
        outputs: Rows `[k]` and masks `[k, modality]` → log-probabilities `[k, class]` or numbers `[k, target]`.
        at_once: How many rows `outputs` should get in one call.
    """

    names: tuple[str, ...]
    task: Task
    present: np.ndarray
    prediction: Prediction
    outputs: Callable[[np.ndarray, np.ndarray], np.ndarray]
    at_once: int = _MOST_AT_ONCE


def rows_at_once(samples: Samples) -> int:
    """Return how many samples can be copied within the memory that explanations may take."""
    return int(np.clip(_MEMORY // max(1, samples.nbytes // max(1, len(samples))), 1, _MOST_AT_ONCE))


class Explains:
    """An estimator that explains its predictions."""

    def _masked(self, X: Any, present: Any) -> MaskedModel:
        raise NotImplementedError

    @checked
    def explain(
        self,
        X: Any,
        y: Any = None,
        *,
        present: Any = None,
        value: Value | None = None,
        of: Any = None,
        coverage: Share = 0.9,
        permutations: PositiveInt = 128,
        random_state: NonNegativeInt = 0,
    ) -> Explanation:
        """Explain predictions: what each modality contributes, and what its expert says.

        Contributions are Shapley values over presence masks: the model predicts each sample with every subset of its
        modalities. They sum to the value with all modalities minus the value with none. With more than 10 modalities
        they are estimated from random orders and have intervals.

        Args:
            X: As for `predict`.
            y: True targets `[n]`, for the values "accuracy", "nll" and "mse"; None: those of the `Samples`.
            present: Booleans `[n, modality]`; False: missing.
            value: What is explained. Of a classifier: "probability" (default) or "log-probability" of a class, or a
                sample's share in a metric: "accuracy" or "nll". Of a regressor: "output" (default) or "mse". A positive
                contribution to "nll" or "mse" lowers this loss.
            of: The class whose probability is explained, one label or labels `[n]`; None: the predicted class. Of a
                regressor with several targets: the number of the target.
            coverage: Of the conformal set, if the model has calibration samples.
            permutations: Number of random orders with more than 10 modalities.
            random_state: Seed of the orders.

        Returns:
            Arrays with one row for each sample, in NumPy.

        Example:
            >>> from consilience import FusionClassifier, load_data
            >>> data = load_data("digits")
            >>> model = FusionClassifier("late", epochs=5).fit(data.train)
            >>> found = model.explain(data.test[:3])
            >>> sample = found[0]
            >>> abs(sum(part.contribution for part in sample.parts) - (sample.all - sample.none)) < 1e-6
            True
        """
        model = self._masked(X, present)
        if not len(model.present):
            raise InputError("explain: there are no rows: give at least one sample")
        return explain_model(
            model,
            X.y if y is None and isinstance(X, Samples) else y,
            choose_value(value, model.task.kind),
            of,
            permutations,
            random_state,
            *_prediction_sets(self, X, present, coverage),
            coverage,
        )


def explain_model(
    model: MaskedModel,
    y: Any,
    value: Value,
    of: Any,
    permutations: int,
    random_state: int,
    sets: np.ndarray | None,
    set_absence: str,
    coverage: float,
) -> Explanation:
    """Explain the predictions of a model; arguments as in `Explains.explain`."""
    task, present = model.task, model.present
    rows = np.arange(len(present))
    output = _in_pieces(model, rows, present)
    decided = task.classification and output.argmax(axis=1)
    target = _explained_target(task, value, of, y, decided, len(rows))
    found = explain_values(
        lambda chosen, masks: sample_values(value, model.outputs(chosen, masks), target[chosen]),
        present,
        permutations=permutations,
        random_state=random_state,
        at_once=model.at_once,
    )
    without = _outputs_without(model, output)
    column = target if target.ndim == 1 else np.zeros(len(rows), dtype=np.int64)
    shown = np.take_along_axis(without, column[:, None, None], axis=2)[:, :, 0]
    n, modalities, width = without.shape
    decoded = _decode(task, without.reshape(n * modalities, width))
    return Explanation(
        modalities=model.names,
        classes=task.classes,
        value=value,
        of=column if task.classes is None else task.classes[column],
        present=present,
        decision=_decode(task, output),
        probabilities=np.exp(output) if task.classification else None,
        contributions=found,
        without=decoded.reshape(n, modalities, *decoded.shape[1:]),
        without_probability=np.exp(without.max(axis=2)) if task.classification else None,
        without_value=np.exp(shown) if task.classification else shown,
        **_experts(model, column),
        sets=sets if sets is None or sets.ndim == 2 else sets[rows, column],  # of one of several targets
        coverage=coverage,
        set_absence=set_absence,
    )


def _explained_target(task: Task, value: Value, of: Any, y: Any, decided: Any, n: int) -> np.ndarray:
    """The column that is explained `[n]`, or for "mse" the true numbers `[n, target]`."""
    if value in OF_TARGETS:
        if y is None:
            raise InputError(f"explain: value={value!r} compares with the true targets: give y")
        if of is not None:
            raise InputError(f"explain: value={value!r} is about the true target; leave of= out")
        true = np.asarray(y)
        if len(true) != n:
            raise InputError(f"explain: y has {len(true)} targets, the samples are {n}")
        if task.classification:
            return task.encode(true)
        assert task.mean is not None
        assert task.scale is not None
        return task.encode(true) * task.scale + task.mean
    if not task.classification:
        if of is None and task.outputs > 1:
            raise InputError(
                f"explain: the model predicts {task.outputs} targets; give of=, from 0 to {task.outputs - 1}"
            )
        place = 0 if of is None else of
        if not isinstance(place, int | np.integer) or not 0 <= place < task.outputs:
            raise InputError(f"explain: of must be the number of a target from 0 to {task.outputs - 1}, got {of!r}")
        return np.full(n, int(place))
    if of is None:
        return decided
    labels = np.asarray(of)
    if labels.shape not in ((), (n,)):
        raise InputError(f"explain: of must be one label, or labels [n] = [{n}], got shape {list(labels.shape)}")
    assert task.classes is not None
    known = task.classes.tolist()
    for label in np.unique(labels).tolist():
        if label not in known:
            raise unknown_name("class", label, map(str, known), "It was given to explain as of")
    return task.encode(np.broadcast_to(labels, (n,)))


def _in_pieces(model: MaskedModel, rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Outputs `[k, output]` in float64, computed for as many rows at once as memory allows."""
    starts = range(0, len(rows), model.at_once)
    pieces = [model.outputs(rows[at : at + model.at_once], masks[at : at + model.at_once]) for at in starts]
    return np.concatenate(pieces).astype(np.float64)


def _outputs_without(model: MaskedModel, output: np.ndarray) -> np.ndarray:
    """The outputs without each modality `[n, modality, output]`; where it is missing anyway, those with all."""
    rows, places = np.nonzero(model.present)
    without = np.repeat(output[:, None], len(model.names), axis=1)
    if len(rows):
        masks = model.present[rows]
        masks[np.arange(len(rows)), places] = False
        without[rows, places] = _in_pieces(model, rows, masks)
    return without


def _decode(task: Task, output: np.ndarray) -> np.ndarray:
    """Labels `[n]`; numbers are decoded already, `[n]` or `[n, target]`."""
    if task.classification:
        return task.decode(output)
    return output[:, 0] if task.flat else output


def _experts(model: MaskedModel, column: np.ndarray) -> dict[str, Any]:
    """What the experts of each modality say: opinions, conflict, reliability and trust, where there are any."""
    found: dict[str, Any] = {}
    prediction, present, task = model.prediction, model.present, model.task
    if prediction.opinions is not None:
        opinions = prediction.opinions.double()
        if task.classification:
            probabilities = opinions.softmax(dim=2).numpy()
            found["conflict"] = opinion_conflict(probabilities, present)
            found["excluded"] = fuse(opinions.numpy(), present=present, return_conflict=True)[1]
            shown = probabilities
        else:
            known = np.where(present[:, :, None], opinions.numpy(), 0)
            decoded = [task.decode(known[:, place]).reshape(len(known), -1) for place in range(known.shape[1])]
            numbers = np.stack(decoded, axis=1)
            shown = np.take_along_axis(numbers, column[:, None, None], axis=2)[:, :, 0]
        there = present if shown.ndim == 2 else present[:, :, None]
        found["opinions"] = np.where(there, shown, np.nan)
    if prediction.weights is not None:
        found["trust"] = trust_from_weights(prediction.weights.double().numpy(), present)
    if (reliability := prediction.extra.get("reliability")) is not None:
        found["reliability"] = reliability.double().numpy()
    return found


def _prediction_sets(estimator: Any, X: Any, present: Any, coverage: float) -> tuple[np.ndarray | None, str]:
    """The conformal sets of a calibrated model; else None, and the reason if it cannot make them."""
    if not hasattr(estimator, "calibration_"):
        return None, ""
    given = {} if present is None else {"present": present}
    try:
        return as_array(estimator.predict_set(X, coverage=coverage, **given)), ""
    except ConsilienceError as error:  # such as too few calibration samples; the explanation says why
        return None, str(error)
