"""One job: train a method on a set with a seed, then measure it clean and under every corruption and level."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.comparison.hit_trust import trust_when_hit
from consilience.comparison.job_scores import score, score_samples
from consilience.comparison.metric_by_modalities import Scores
from consilience.comparison.modality_contributions import measure_contributions
from consilience.comparison.modality_costs import measure_costs
from consilience.comparison.plan import Job, Plan, Refit, registered_name
from consilience.comparison.store import Result, Store, store_error, writing
from consilience.comparison.tuning import tune, validation_loss
from consilience.core.errors import SplitWarning, TableWarning, TrustWarning, WriteError
from consilience.core.files import full_disk
from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.corruption.corruptions import DEFAULT
from consilience.data import DataSet
from consilience.data.split_rules import blocks_for_bootstrap
from consilience.evaluation import TrustDiagnostics, trust_from_weights
from consilience.evaluation.diagnostics import diagnose
from consilience.evaluation.trust import ExpertRecord, record_prediction

if TYPE_CHECKING:
    from consilience.training import Model

# What runs a job, given its plan and its store.
Measure = Callable[[Job, Any, Store], Result]


def work(job: Job, plan: Any, store: Store, threads: int | None = None, measuring: Measure | None = None) -> str:
    """Do one job unless it is done or being done; returns "done", "failed" or "elsewhere".

    `measuring` is called with the job, the plan and the store; by default `measure`, for a job of a comparison.
    """
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    with store.claim(job) as mine:
        if not mine:
            return "elsewhere"
        if store.done(job):
            return "done"
        try:
            result = (measuring or measure)(job, plan, store)
        except WriteError:
            raise
        except Exception as error:  # a method that fails is a result, not the end of the comparison
            if (number := full_disk(error)) is not None:  # every other job would fail as well
                raise store_error(store.folder, number) from error
            result = Result({"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        store.write(job, result)
        return "failed" if result.failed else "done"


def measure(job: Job, plan: Plan, store: Store) -> Result:
    """Train, save, predict, score."""
    if isinstance(job, Refit):
        from consilience.comparison.refit import refit

        return refit(job, plan, store)
    data = load(plan, job).resplit(job.seed)
    import_training(job.method, plan.training_of(job.method, data.modalities))
    from consilience.training.shared_training import sharing

    with sharing((job.data, job.seed)) as shared:
        began = time.perf_counter()
        model, tuned = train(job, plan, data)
        # As long as it takes alone, also if another method has trained some of its experts.
        seconds = time.perf_counter() - began + shared.saved_seconds
    return examine(job, plan, store, data, model, seconds, tuned)


def import_training(method: str, training: Mapping[str, Any]) -> None:
    """Import what training needs, so that it does not count as training time of a process's first job.

    Args:
        method: Its name.
        training: Settings of its training.
    """
    import torch._dynamo  # noqa: F401 - which torch imports with the first optimizer

    import consilience.training.model  # noqa: F401
    from consilience.methods import find
    from consilience.training.devices import needs_fabric
    from consilience.training.training_settings import TrainingSettings

    if needs_fabric(TrainingSettings(**training)):
        import lightning_fabric  # noqa: F401
    find(registered_name(method))


def examine(
    job: Job, plan: Plan, store: Store, data: DataSet, model: Model, seconds: float, tuned: Mapping[str, Any]
) -> Result:
    """Test a job's trained model and save it; `seconds` is its training time, `tuned` what tuning chose."""
    from consilience.training.devices import device_name
    from consilience.training.step_counts import found_steps

    result = Result({"set": job.source, "method": job.method, "seed": job.seed, "tuning": tuned, "conditions": []})
    y = data.y[data.split == "test"]
    result.arrays |= {"y": model.task.encode(y) if model.task.classification else y, "index": data.test.index}
    result.arrays["validation_index"] = data.validation.index
    if data.rule is not None and (units := blocks_for_bootstrap(data.rule)) is not None:
        result.arrays |= {"unit": units[data.split == "test"], "validation_unit": units[data.split == "validation"]}
    device, unit = plan.training.get("device", "auto"), result.arrays.get("unit")
    corruptor = Corruptor(data.train)
    waits = []
    for part in ("test", "validation"):
        samples: Samples = getattr(data, part)
        for name, corruption, level in conditions_of(plan, data):
            started = time.perf_counter()
            output, trust, records = judge(model, corruptor, samples, corruption, level, job.seed, plan)
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
                    if level > 0:
                        draws = [job.seed + repeat * _MOST_SEEDS for repeat in range(plan.repeats)]
                        hits = [
                            corruptor.hits(samples, corruption, probability=plan.probability, random_state=draw)
                            for draw in draws
                        ]
                        about["hit_trust"] = trust_when_hit(trust, samples, tuple(model.preparation.raw), hits)
                if records is not None and records[0].present.any():
                    about["diagnostics"] = mean_of([kept_of(diagnose(record)) for record in records])
            else:
                terms = score_samples(data, model, samples, output)
                result.arrays |= {f"validation/{about['array']}/{name}": each for name, each in terms.items()}
            result.about["conditions"].append(about)
    result.about |= {
        "training_seconds": seconds,
        "prediction_seconds": float(np.mean(waits)),
        "parameters": sum(parameter.numel() for parameter in model.method.parameters()),
        "epochs": sum(len(log.rows) for log in model.logs),
        "log": [row for log in model.logs for row in log.rows],
        "steps": found_steps(model.logs),
        "contributions": measure_contributions(
            model, data.test, device, unit, Scores(partial(score, data, model), partial(score_samples, data, model))
        ),
        "costs": measure_costs(
            model,
            corruptor,
            data.test,
            partial(score, data, model),
            partial(score_samples, data, model),
            level=plan.levels[-1],
            seed=job.seed,
            device=device,
            units=unit,
        ),
        "misplaced_trust": {name: found.r for name, found in model.misplaced_trust.items()},
        # Trees have no parameters.
        "device": device_name(next(chain(model.method.parameters(), model.method.buffers())).device),
    }
    trained_on = describe_training(job, ("train",), data.train, result.about["steps"], refitted=False)
    save_model(job, plan, store, data, model, trained_on, gives_weights=trust is not None)
    return result


def describe_training(
    job: Job,
    parts: Sequence[str],
    samples: Samples,
    steps: Sequence[Sequence[int]],
    *,
    refitted: bool,
    stopped_by: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a saved model says about its training.

    Args:
        job: Its set, method and seed.
        parts: The parts of the set that it learned from.
        samples: The samples of these parts.
        steps: Of the optimizer, for each run and phase.
        refitted: Whether it is the chosen method, trained once more.
        stopped_by: Of a refit, what ended each run, see `ends_of_runs`.
    """
    about = {"set": job.source, "method": job.method, "seed": job.seed, "refitted": refitted}
    about |= {"parts": list(parts), "rows": len(samples), "steps": [list(run) for run in steps]}
    return {**about, "stopped_by": list(stopped_by)} if stopped_by else about


def save_model(
    job: Job,
    plan: Plan,
    store: Store,
    data: DataSet,
    model: Model,
    trained_on: Mapping[str, Any],
    *,
    gives_weights: bool,
    chosen: Mapping[str, Any] | None = None,
) -> None:
    """Save a job's model with how the data were read, for `consilience.load`; chosen: settings found by tuning."""
    model.recipe = data.recipe()
    store.drop_models([job])  # of a folder that was copied in part
    with writing(store.folder):
        training = {**plan.training_of(job.method, data.modalities), **(chosen or {})}
        if (weights := plan.class_weight_of(data.y)) is not None:
            # Pairs, as the estimators save them: JSON would make strings of the labels.
            training["class_weight"] = (
                [[*pair] for pair in weights.items()] if isinstance(weights, Mapping) else weights
            )
        model.save(store.model(job), {**_as_estimator(model, training, gives_weights), "trained_on": dict(trained_on)})


def train(job: Job, plan: Plan, data: DataSet) -> tuple[Model, dict[str, Any]]:
    """Train the method with the job's seed, after tuning if the plan asks for it."""
    fit = partial(fit_model, job, plan, data, data.train, data.validation)
    return tune(fit, validation_loss, plan.tune, job.seed) if plan.tune else (fit({}), {})


def fit_model(
    job: Job, plan: Plan, data: DataSet, samples: Samples, validation: Samples | None, chosen: Mapping[str, Any]
) -> Model:
    """Train the method once with the job's seed; chosen: settings of the trainer beside those of the plan."""
    from consilience.training import Model, Trainer

    training = {**plan.training_of(job.method, data.modalities), **chosen}
    fixed = {"seed": job.seed, "on_interrupt": "raise"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)  # the report has it, once for all seeds
        return Model.fit(
            registered_name(job.method),
            samples,
            validation,
            settings=plan.settings_of(job.method),
            encoders=plan.encoders_of(data.modalities),
            task=data.task,
            class_weight=plan.class_weight_of(data.y),
            trainer=Trainer(**{**training, **fixed}),
        )


def judge(
    model: Model, corruptor: Corruptor, samples: Samples, corruption: Any, level: float, seed: int, plan: Plan
) -> tuple[np.ndarray, np.ndarray | None, list[ExpertRecord] | None]:
    """Predict samples under one corruption, for every draw of the noise.

    Samples on disk are corrupted piece by piece, which gives the same numbers.

    Returns:
        Probabilities `[repeat · n, class]` or raw numbers `[repeat · n, target]`; and where the method has them, trust
        `[repeat · n, modality]` and a record of its experts for every repeat.
    """
    at_once = _ON_DISK_ROWS if samples.on_disk else len(samples)
    names = tuple(model.preparation.raw)
    repeats = plan.repeats if level > 0 else 1  # nothing differs between draws of no noise
    outputs, trusts = [], []
    recorded: list[list[ExpertRecord]] = [[] for _ in range(repeats)]
    for repeat, start in product(range(repeats), range(0, len(samples), at_once)):
        piece = samples[start : start + at_once]
        draw = seed + repeat * _MOST_SEEDS
        damaged = corruptor.apply(piece, corruption, level, probability=plan.probability, random_state=draw)
        made = model.predict(damaged, device=plan.training.get("device", "auto"))
        outputs.append((made.output.double().softmax(dim=1) if model.task.classification else made.output).numpy())
        if made.weights is not None:
            there = damaged.present_among(names)
            trusts.append(trust_from_weights(made.weights.numpy(), there))
            if made.opinions is not None:
                assert damaged.y is not None
                y = model.task.encode(damaged.y)
                recorded[repeat].append(
                    record_prediction(made, y, there, names, model.task.classification, keep_opinions=False)
                )
    trust = np.concatenate(trusts) if trusts else None
    records = [ExpertRecord.concatenate(parts) for parts in recorded] if recorded[0] else None
    return np.concatenate(outputs), trust, records


def kept_of(found: TrustDiagnostics) -> list[dict[str, Any]]:
    """Return what is kept of trust diagnostics in plain values, one entry per modality, nothing per sample."""
    kept = ("modality", "samples", "static", "weight", "trust", "static_trust", "loss")
    return [
        {name: getattr(trust, name) for name in kept}
        # The names of run folders; both are of trust, which every method with weights has.
        | {"covariance": trust.trust_covariance, "gap": trust.trust_gap}
        | {"r": trust.correlation.r if trust.correlation.defined else None}
        for trust in found.modalities
    ]


def mean_of(repeats: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the means of trust diagnostics over repeats of the noise; repeats do not add samples."""
    kept = []
    for draws in zip(*repeats):
        names = [name for name in draws[0] if name != "modality"]
        known = {name: [draw[name] for draw in draws if draw[name] is not None] for name in names}
        means = {name: float(np.mean(values)) if values else None for name, values in known.items()}
        kept.append({"modality": draws[0]["modality"], **means, "samples": round(np.mean(known["samples"]))})
    return kept


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
        return ",".join(f"{name}={chosen}" for name, chosen in corruption.items())
    return "+".join(dict.fromkeys(DEFAULT[modality.kind] for modality in modalities.values()))


# Sets read by this process, by their content: reading a large table again may take longer than a job.
_LOADED: dict[str, DataSet] = {}
_ON_DISK_ROWS = 4096
# The seed of repeat r of the noise is seed + r · this, so that no two seeds share a draw.
_MOST_SEEDS = 1_000_000


def load(plan: Plan, job: Job) -> DataSet:
    """The set of a job, read once by this process."""
    if job.data not in _LOADED:
        if len(_LOADED) >= 4:
            _LOADED.clear()
        source = next(source for source in plan.sources if source.label == job.source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SplitWarning)  # the report has it
            warnings.simplefilter("ignore", TableWarning)  # the plan has said it, once for all jobs
            _LOADED[job.data] = source.load()
    return _LOADED[job.data]


def _as_estimator(model: Model, training: Mapping[str, Any], gives_weights: bool) -> dict[str, Any]:
    """What makes the saved model readable by `consilience.load`."""
    kind = "FusionClassifier" if model.task.classification else "FusionRegressor"
    learned = {"gives_weights_": gives_weights, "n_iter_": max(1, sum(len(log.rows) for log in model.logs))}
    parameters = {"method": model.name, "settings": model.settings, "columns": None, **training}
    return {"estimator": kind, "parameters": parameters, "learned": learned}
