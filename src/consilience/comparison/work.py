"""One job: train a method on a set with a seed, then measure it clean and under every corruption and level."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from consilience.comparison.plan import Job, Plan
from consilience.comparison.store import Result, Store, StoreError
from consilience.comparison.tuning import tune
from consilience.corruption import Corruptor
from consilience.corruption.registry import DEFAULT
from consilience.data import DataSet
from consilience.errors import TrainingError
from consilience.evaluation import evaluate, trust_from_weights
from consilience.modalities import Modality
from consilience.samples import Samples


def work(job: Job, plan: Plan, store: Store, threads: int | None = None) -> str:
    """Do one job unless it is done or being done; returns "done", "failed" or "elsewhere"."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with store.claim(job) as mine:
        if not mine:
            return "elsewhere"
        if (known := store.read(job)) is not None and not known.failed:
            return "done"
        try:
            result = measure(job, plan, store)
        except (KeyboardInterrupt, StoreError):
            raise
        except Exception as error:  # whatever a method does wrong is a finding, not the end of the comparison
            result = Result({"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        store.write(job, result)
        return "failed" if result.failed else "done"


def measure(job: Job, plan: Plan, store: Store) -> Result:
    """Train, save, predict, score."""
    from consilience.training import Model, Trainer

    data = _load(plan, job.source).resplit(job.seed)

    def fit(chosen: Mapping[str, Any]) -> Model:
        trainer = Trainer(**{**plan.training, **chosen, "seed": job.seed, "on_interrupt": "raise"})
        return Model.fit(
            job.method,
            data.train,
            data.validation,
            settings=plan.settings.get(job.method),
            encoders={name: choice for name, choice in plan.encoders.items() if name in data.modalities},
            task=data.task,
            trainer=trainer,
        )

    began = time.perf_counter()
    tuned: dict[str, Any] = {}
    if plan.tune:
        model, tuned = tune(fit, _validation_loss, plan.tune, job.seed)
    else:
        model = fit({})
    trained = time.perf_counter()
    result = Result({"set": job.source, "method": job.method, "seed": job.seed, "tuning": tuned})
    result.arrays |= {"y": _as_stored(data.test.y), "index": data.test.index}
    if model.task.classes is not None:
        result.arrays["classes"] = _as_stored(model.task.classes)
    corruptor = Corruptor(data.train)
    conditions = []
    seconds = 0.0
    for part in ("test", "validation"):
        samples: Samples = getattr(data, part)
        for name, corruption, level in conditions_of(plan, data):
            damaged = corruptor.apply(samples, corruption, level, probability=plan.probability, random_state=job.seed)
            started = time.perf_counter()
            prediction = model.predict(damaged, device=plan.training.get("device", "auto"))
            seconds += time.perf_counter() - started if part == "test" else 0.0
            output = prediction.output.double().softmax(dim=1) if model.task.classification else prediction.output
            decided = model.task.decode(output.numpy())
            about = {
                "part": part,
                "corruption": name,
                "level": level,
                "metrics": evaluate(
                    data.task,
                    samples.y,
                    decided,
                    output.numpy() if model.task.classification else None,
                    classes=model.task.classes,
                ),
            }
            if part == "test":
                key = f"{name}@{level:g}"
                result.arrays[f"{key}/output"] = (
                    output.numpy().astype(np.float32) if model.task.classification else decided
                )
                if prediction.weights is not None:
                    trust = trust_from_weights(prediction.weights.numpy(), _present(damaged, model.preparation.raw))
                    result.arrays[f"{key}/trust"] = trust.astype(np.float32)
                    about["trust"] = dict(zip(model.preparation.raw, trust.mean(axis=0).tolist()))
            conditions.append(about)
    tests = sum(one["part"] == "test" for one in conditions)
    result.about |= {
        "conditions": conditions,
        "training_seconds": trained - began,
        "prediction_seconds": seconds / max(1, tests),
        "parameters": sum(one.numel() for one in model.method.parameters()),
        "epochs": sum(len(log.rows) for log in model.logs),
        "log": [row for log in model.logs for row in log.rows],
        "device": str(next(model.method.parameters()).device),
    }
    model.recipe = data.recipe()
    model.save(store.model(job), _as_estimator(model, gives_weights="trust" in conditions[0]))
    return result


def conditions_of(plan: Plan, data: DataSet) -> Iterator[tuple[str, Any, float]]:
    """Every corruption with its label, at every level; the clean set once."""
    yield "clean", None, 0.0
    for corruption in plan.corruptions:
        label = label_of(corruption, data.modalities)
        for level in plan.levels:
            if level > 0:
                yield label, corruption, level


def label_of(corruption: str | Mapping[str, str] | None, modalities: Mapping[str, Modality]) -> str:
    """A corruption's name; of a mapping, or the default by kind, the different names joined.

    >>> label_of(None, {"photo": Modality("photo", "image", (1, 8, 8)), "words": Modality("words", "text", ())})
    'gaussian+blank'
    """
    if isinstance(corruption, str):
        return corruption
    given = corruption or {}
    return "+".join(dict.fromkeys(given.get(one.name, DEFAULT[one.kind]) for one in modalities.values()))


# Sets read by this process, by description: a job is small beside reading a large table again.
_LOADED: dict[str, DataSet] = {}


def _load(plan: Plan, label: str) -> DataSet:
    source = next(source for source in plan.sources if source.label == label)
    key = f"{source!r} {id(source.data)}"
    if key not in _LOADED:
        if len(_LOADED) >= 4:
            _LOADED.clear()
        _LOADED[key] = source.load()
    return _LOADED[key]


def _validation_loss(model: Any) -> float:
    losses = [row["validation_loss"] for log in model.logs for row in log.rows if "validation_loss" in row]
    if not losses:
        raise TrainingError("tuning needs a validation loss, and this method's training reports none")
    return min(losses)


def _present(samples: Samples, names: Mapping[str, Any]) -> np.ndarray:
    return np.stack([samples.present_in(name) for name in names], axis=1)


def _as_stored(values: np.ndarray | None) -> np.ndarray:
    """Labels as an array that needs no pickle."""
    assert values is not None
    return values.astype(str) if values.dtype.kind == "O" else values


def _as_estimator(model: Any, gives_weights: bool) -> dict[str, Any]:
    """What makes the saved model readable by `consilience.load`."""
    kind = "FusionClassifier" if model.task.classification else "FusionRegressor"
    learned = {"gives_weights_": gives_weights, "n_iter_": max(1, sum(len(log.rows) for log in model.logs))}
    parameters = {"method": model.name, "settings": model.settings, "columns": None}
    return {"estimator": kind, "parameters": parameters, "learned": learned}
