"""One job: train a method on a set with a seed, then measure it clean and under every corruption and level."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.comparison.plan import Job, Plan, registered_name
from consilience.comparison.store import Result, Store, StoreError, writing
from consilience.comparison.tuning import tune
from consilience.core.errors import TrainingError, TrustWarning
from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.corruption.corruptions import DEFAULT
from consilience.data import DataSet
from consilience.evaluation import METRICS, TrustDiagnostics, evaluate, trust_from_weights
from consilience.evaluation.diagnostics import diagnose
from consilience.evaluation.expert_records import ExpertRecord, record_prediction, who_is_there

if TYPE_CHECKING:
    from consilience.training import Model

# How a job is done, given what it belongs to and where its models lie.
Measure = Callable[[Job, Any, Store], Result]


def work(job: Job, plan: Any, store: Store, threads: int | None = None, measuring: Measure | None = None) -> str:
    """Do one job unless it is done or being done; returns "done", "failed" or "elsewhere".

    measuring: does it, given the job, the plan and the store; by default `measure`, for a job of a comparison.
    """
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with store.claim(job) as mine:
        if not mine:
            return "elsewhere"
        if (known := store.read(job)) is not None and not known.failed:
            return "done"
        try:
            result = (measuring or measure)(job, plan, store)
        except (KeyboardInterrupt, StoreError):
            raise
        except Exception as error:  # whatever a method does wrong is a finding, not the end of the comparison
            result = Result({"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        store.write(job, result)
        return "failed" if result.failed else "done"


def measure(job: Job, plan: Plan, store: Store) -> Result:
    """Train, save, predict, score."""
    data = load(plan, job).resplit(job.seed)
    import_training(job.method)
    began = time.perf_counter()
    model, tuned = train(job, plan, data)
    return examine(job, plan, store, data, model, time.perf_counter() - began, tuned)


def import_training(method: str) -> None:
    """Import what training needs, which would else be counted as a part of the first training of a process."""
    import lightning_fabric  # noqa: F401

    import consilience.training  # noqa: F401
    from consilience.methods import find

    find(registered_name(method))


def examine(
    job: Job, plan: Plan, store: Store, data: DataSet, model: Model, seconds: float, tuned: Mapping[str, Any]
) -> Result:
    """What a job's trained model is worth, and the model saved. seconds: that training took; tuned: what was chosen."""
    from consilience.training.devices import device_name

    result = Result({"set": job.source, "method": job.method, "seed": job.seed, "tuning": tuned, "conditions": []})
    y = data.y[data.split == "test"]
    result.arrays |= {"y": model.task.encode(y) if model.task.classification else y, "index": data.test.index}
    corruptor = Corruptor(data.train)
    waits = []
    for part in ("test", "validation"):
        samples: Samples = getattr(data, part)
        for name, corruption, level in conditions_of(plan, data):
            started = time.perf_counter()
            output, trust, heard = judge(model, corruptor, samples, corruption, level, job.seed, plan)
            waits.append((time.perf_counter() - started) * len(samples) / len(output))  # of one repeat
            about: dict[str, Any] = {
                "part": part,
                "corruption": name,
                "level": level,
                "array": len(result.about["conditions"]),
            }
            about["metrics"] = score(data, model, samples, output)
            if trust is not None:
                about["trust"] = dict(zip(model.preparation.raw, trust.mean(axis=0).tolist()))
            if part == "test":
                kept = output.astype(np.float32) if model.task.classification else model.task.decode(output)
                result.arrays[f"output/{about['array']}"] = kept
                if trust is not None:
                    result.arrays[f"trust/{about['array']}"] = trust.astype(np.float32)
                if heard is not None and heard[0].present.any():
                    about["diagnostics"] = mean_of([kept_of(diagnose(one)) for one in heard])
            result.about["conditions"].append(about)
    result.about |= {
        "training_seconds": seconds,
        "prediction_seconds": float(np.mean(waits)),
        "parameters": sum(one.numel() for one in model.method.parameters()),
        "epochs": sum(len(log.rows) for log in model.logs),
        "log": [row for log in model.logs for row in log.rows],
        "misplaced_trust": {name: one.r for name, one in model.misplaced_trust.items()},
        "device": device_name(next(model.method.parameters()).device),
    }
    model.recipe = data.recipe()
    with writing(store.folder):
        model.save(store.model(job), _as_estimator(model, plan, gives_weights=trust is not None))
    return result


def train(job: Job, plan: Plan, data: DataSet) -> tuple[Model, dict[str, Any]]:
    """The method trained with the job's seed, after a search for its learning rate if the plan asks for one."""
    from consilience.training import Model, Trainer

    def fit(chosen: Mapping[str, Any]) -> Model:
        trainer = Trainer(**{**plan.training, **chosen, "seed": job.seed, "on_interrupt": "raise"})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrustWarning)  # the report says it, once for all seeds
            return Model.fit(
                registered_name(job.method),
                data.train,
                data.validation,
                settings=plan.settings.get(job.method),
                encoders={name: choice for name, choice in plan.encoders.items() if name in data.modalities},
                task=data.task,
                trainer=trainer,
            )

    return tune(fit, _validation_loss, plan.tune, job.seed) if plan.tune else (fit({}), {})


def judge(
    model: Model, corruptor: Corruptor, samples: Samples, corruption: Any, level: float, seed: int, plan: Plan
) -> tuple[np.ndarray, np.ndarray | None, list[ExpertRecord] | None]:
    """Under one corruption: probabilities `[n, class]` or raw numbers `[n, target]`, and where the method has them,
    trust `[n, modality]` and what its experts said, a record for every repeat; where noise is drawn several times,
    one repeat after the other.

    What lies on disk is corrupted piece by piece, which gives the same numbers.
    """
    at_once = _ON_DISK_ROWS if samples.on_disk else len(samples)
    names = tuple(model.preparation.raw)
    repeats = plan.repeats if level > 0 else 1  # nothing differs between draws of no noise
    outputs, trusts = [], []
    heard: list[list[ExpertRecord]] = [[] for _ in range(repeats)]
    for repeat, start in product(range(repeats), range(0, len(samples), at_once)):
        piece = samples[start : start + at_once]
        draw = seed + repeat * _MOST_SEEDS
        damaged = corruptor.apply(piece, corruption, level, probability=plan.probability, random_state=draw)
        made = model.predict(damaged, device=plan.training.get("device", "auto"))
        outputs.append((made.output.double().softmax(dim=1) if model.task.classification else made.output).numpy())
        if made.weights is not None:
            there = who_is_there(damaged, names)
            trusts.append(trust_from_weights(made.weights.numpy(), there))
            if made.opinions is not None:
                assert damaged.y is not None
                y = model.task.encode(damaged.y)
                heard[repeat].append(record_prediction(made, y, there, names, model.task.classification))
    trust = np.concatenate(trusts) if trusts else None
    records = [ExpertRecord.concatenate(one) for one in heard] if heard[0] else None
    return np.concatenate(outputs), trust, records


def kept_of(found: TrustDiagnostics) -> list[dict[str, Any]]:
    """What is kept of trust diagnostics, one entry a modality; in plain values, nothing per sample."""
    kept = ("modality", "samples", "static", "weight", "trust", "static_trust", "loss", "covariance", "gap")
    return [
        {name: getattr(one, name) for name in kept} | {"r": one.correlation.r if one.correlation.defined else None}
        for one in found.modalities
    ]


def mean_of(repeats: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What is kept of trust diagnostics, each number its mean over repeats: a sample met again is no other sample."""
    kept = []
    for ones in zip(*repeats):
        known = {name: [one[name] for one in ones if one[name] is not None] for name in ones[0] if name != "modality"}
        means = {name: float(np.mean(values)) if values else None for name, values in known.items()}
        kept.append({"modality": ones[0]["modality"], **means, "samples": round(np.mean(known["samples"]))})
    return kept


def score(data: DataSet, model: Model, samples: Samples, output: np.ndarray) -> dict[str, float]:
    """Every metric of the task that can judge as many targets, the mean over repeats."""
    single = model.task.classification or model.task.outputs == 1
    known = [one for one in METRICS.values() if one.task == data.task and (single or not one.one_target)]
    # Not of all repeats at once: of ten times as many samples a calibration error, for one, is smaller.
    found = [
        evaluate(
            data.task,
            samples.y,
            model.task.decode(one),
            one if model.task.classification else None,
            known,
            model.task.classes,
        )
        for one in np.split(output, len(output) // len(samples))
    ]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def conditions_of(plan: Plan, data: DataSet) -> Iterator[tuple[str, Any, float]]:
    """Every corruption with its label, at every level; the clean set once."""
    yield "clean", None, 0.0
    for corruption in plan.corruptions:
        label = label_of(corruption, data.modalities)
        for level in plan.levels:
            if level > 0:
                yield label, corruption, level


def label_of(corruption: str | Mapping[str, str] | None, modalities: Mapping[str, Modality]) -> str:
    """A corruption's name; a mapping spelled out; of the default by kind, the different names joined.

    >>> label_of(None, {"photo": Modality("photo", "image", (1, 8, 8)), "words": Modality("words", "text", ())})
    'gaussian+blank'
    """
    if isinstance(corruption, str):
        return corruption
    if corruption is not None:
        return ",".join(f"{name}={one}" for name, one in corruption.items())
    return "+".join(dict.fromkeys(DEFAULT[one.kind] for one in modalities.values()))


# Sets read by this process, by their content: a job is small beside reading a large table again.
_LOADED: dict[str, DataSet] = {}
_ON_DISK_ROWS = 4096
# Draws of noise have whole numbers: the seed, then this much further for every repeat, so that no two seeds share one.
_MOST_SEEDS = 1_000_000


def load(plan: Plan, job: Job) -> DataSet:
    """The set of a job, read once by this process."""
    if job.data not in _LOADED:
        if len(_LOADED) >= 4:
            _LOADED.clear()
        _LOADED[job.data] = next(source for source in plan.sources if source.label == job.source).load()
    return _LOADED[job.data]


def _validation_loss(model: Model) -> float:
    losses = [row["validation_loss"] for log in model.logs for row in log.rows if "validation_loss" in row]
    if not losses:
        raise TrainingError("tuning needs a validation loss, and this method's training reports none")
    return min(losses)


def _as_estimator(model: Model, plan: Plan, gives_weights: bool) -> dict[str, Any]:
    """What makes the saved model readable by `consilience.load`."""
    kind = "FusionClassifier" if model.task.classification else "FusionRegressor"
    learned = {"gives_weights_": gives_weights, "n_iter_": max(1, sum(len(log.rows) for log in model.logs))}
    parameters = {"method": model.name, "settings": model.settings, "columns": None, **plan.training}
    return {"estimator": kind, "parameters": parameters, "learned": learned}
