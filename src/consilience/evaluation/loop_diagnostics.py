"""Diagnostics of progressive fusion's loop: how many passes, at which stage feedback joins, what each pass adds.

The analyses of Shankar, Thompson and Fiterau 2022 (Progressive Fusion for Multimodal Integration) as functions that
give tables; `consilience.report.loop_figures` draws them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Samples
from consilience.core.settings import checked
from consilience.data import DataSet
from consilience.evaluation.metrics import Metric, find_metric

if TYPE_CHECKING:
    import polars

    from consilience.encoders import EncoderChoice
    from consilience.training import Model, Trainer

Into = str | Mapping[str, str] | None


@checked
def step_features(
    model: Any, samples: Samples, *, batch_size: int = 512, device: str = "auto"
) -> list[dict[str, np.ndarray]]:
    """Return each modality's features as the fusion receives them, pass by pass: a list of name → `[n, width]`.

    The features of a missing modality are zeros.

    Args:
        model: A trained `Model` or a fitted estimator of a method that joins features; without a loop it has one pass.
        samples: What to encode.
        batch_size, device: Of the encoding.
    """
    import torch

    from consilience.methods import JointMethod
    from consilience.methods.progressive.progressive_method import Progressive
    from consilience.training.batch_loader import BatchLoader
    from consilience.training.devices import moved_to, resolve_device
    from consilience.training.trainer import input_type

    trained: Model = getattr(model, "model_", model)
    method = trained.method
    if not isinstance(method, JointMethod):
        raise UnsupportedError(f"method {trained.name!r} joins no features, so there are none to look at")
    target = resolve_device(device)
    moved_to(method, target).eval()
    parts: list[list[dict[str, np.ndarray]]] = []
    with torch.no_grad():
        for batch in BatchLoader(samples, trained.preparation, target, dtype=input_type(method)).in_order(batch_size):
            if isinstance(method, Progressive):
                passes = [features for features, _ in method.passes(batch)]
            else:
                passes = [method.represent(batch)]
            pooled = ({name: encoded.pooled for name, encoded in features.items()} for features in passes)
            parts.append([{name: each.float().cpu().numpy() for name, each in step.items()} for step in pooled])
    return [
        {name: np.concatenate([part[step][name] for part in parts]) for name in parts[0][step]}
        for step in range(len(parts[0]))
    ]


@checked
def probe_steps(
    model: Any,
    train: Samples,
    test: Samples,
    *,
    penalty: float = 1.0,
    batch_size: int = 512,
    device: str = "auto",
) -> polars.DataFrame:
    """Score a linear probe of each modality's features at every pass (figure 6 and section G of the paper).

    A probe is trained on the standardised features of the training samples that have the modality, and scored on those
    of the test samples: a logistic regression by its accuracy, for a regression ridge by R². If the score grows from
    pass to pass, the modality's encoder uses information from the others.

    Args:
        model: As for `step_features`.
        train, test: Samples with targets.
        penalty: On the probe's squared weights.
        batch_size, device: Of the encoding.

    Returns:
        A row for each modality and pass: `modality`, `step` (from 1), `metric`, `value`, `samples` (test samples).
    """
    import polars
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 < penalty < float("inf"):
        raise InputError(f"penalty must be a number > 0, got {penalty!r}")
    task = getattr(model, "model_", model).task
    for role, samples in (("training", train), ("test", test)):
        if samples.y is None:
            raise InputError(f"a probe needs targets: the {role} samples have no y")
    learned, judged = (step_features(model, samples, batch_size=batch_size, device=device) for samples in (train, test))
    rows = []
    for step, (inputs, held_out) in enumerate(zip(learned, judged), start=1):
        for name in inputs:
            there, kept = (samples.present_among([name])[:, 0] for samples in (train, test))
            if not there.any() or not kept.any():
                raise InputError(f"a probe of modality {name!r} needs training and test samples that have it")
            probe = make_pipeline(
                StandardScaler(),
                LogisticRegression(C=1 / penalty, max_iter=1000) if task.classification else Ridge(alpha=penalty),
            )
            probe.fit(inputs[name][there], task.encode(train.y[there]))  # type: ignore[index]
            rows.append(
                {
                    "modality": name,
                    "step": step,
                    "metric": "accuracy" if task.classification else "r2",
                    "value": float(probe.score(held_out[name][kept], task.encode(test.y[kept]))),  # type: ignore[index]
                    "samples": int(kept.sum()),
                }
            )
    return polars.DataFrame(rows)


@checked
def depth_curve(
    data: DataSet,
    method: str = "concat",
    *,
    steps: Sequence[int] = (1, 2, 3, 4),
    seeds: int | Iterable[int] = 3,
    settings: Mapping[str, Any] | None = None,
    encoders: Mapping[str, EncoderChoice] | None = None,
    metric: str | Metric | None = None,
    trainer: Trainer | None = None,
) -> polars.DataFrame:
    """Train `pro:METHOD` with growing numbers of passes, and measure score and cost (figure 10b).

    Args:
        data: The set.
        method: The method in the loop.
        steps: Numbers of passes; 1 is the method itself.
        seeds: How many, from 0, or which; a seed decides the initial weights, and the split if the set has none.
        settings: Of the method and of its loop.
        encoders: Modality → encoder.
        metric: Of the test samples; accuracy or mse by default.
        trainer: How to train, except for the seed.

    Returns:
        A row for each number of passes and seed: `method`, `steps`, `seed`, `metric`, `value`, `epoch_seconds` (the
        fastest of training), `prediction_seconds` (the fastest of three), `parameters`.
    """
    runs = [({"steps": count}, {"steps": count}) for count in steps]
    return _measure_all(data, method, runs, seeds, settings, encoders, metric, trainer)


@checked
def joining_curve(
    data: DataSet,
    method: str = "concat",
    *,
    into: Sequence[Into] | None = None,
    steps: int = 2,
    seeds: int | Iterable[int] = 3,
    settings: Mapping[str, Any] | None = None,
    encoders: Mapping[str, EncoderChoice] | None = None,
    metric: str | Metric | None = None,
    trainer: Trainer | None = None,
) -> polars.DataFrame:
    """Train `pro:METHOD` with the feedback joining at each stage of the encoders in turn (figure 10a).

    Args:
        data, method, seeds, settings, encoders, metric, trainer: As for `depth_curve`.
        into: What to try, each as the setting `into`; by default every stage, the first of all encoders together, then
            the second, and so on; an encoder without a further stage stays at its last.
        steps: The number of passes.

    Returns:
        A row for each stage and seed: `method`, `position` (from 0), `stage` in words, and the columns of
        `depth_curve` from `seed` on.
    """
    tried = joining_points(data, method, settings, encoders) if into is None else list(into)
    runs = [
        ({"position": place, "stage": stage}, {"steps": steps, "into": joined})
        for place, (joined, stage) in enumerate(zip(tried, say_stages(tried)))
    ]
    return _measure_all(data, method, runs, seeds, settings, encoders, metric, trainer)


def joining_points(
    data: DataSet,
    method: str,
    settings: Mapping[str, Any] | None = None,
    encoders: Mapping[str, EncoderChoice] | None = None,
) -> list[dict[str, str]]:
    """Where feedback may join the encoders of a method, from their beginnings to their ends: modality → stage, each."""
    from consilience.core.seeding import seeded
    from consilience.core.targets import Task
    from consilience.encoders import own_transforms
    from consilience.methods import Spec, build
    from consilience.methods.progressive.looped_encoder import END
    from consilience.preparation import Preparation

    task = Task.of(data.y, data.task)
    preparation = Preparation.fit(data.train, task, own_transforms(data.modalities, encoders or {}))
    spec = Spec(preparation.modalities, task, dict(encoders or {}))
    with seeded(0):  # whose weights are not used
        looped: Any = build(f"pro:{method}", spec, {**(settings or {}), "steps": 1, "into": None})
    # What is concatenated needs a layer to read it, and after the last stage there is none.
    end = [] if (settings or {}).get("mode") == "concat" else [END]
    stages = {}
    for name, encoder in looped.encoders.items():
        # Token ids are no numbers to be added to: feedback joins at the earliest where they have become vectors.
        ids = preparation.modalities[name].kind == "tokens"
        stages[name] = [*encoder.stages, *end][int(ids) :]
        if not stages[name]:
            raise UnsupportedError(
                f"the encoder of modality {name!r} in method {method!r} has no layer that could read a context beside "
                "its input: mode='concat' joins nowhere, use mode='add'"
            )
    return step_through(stages)


def step_through(stages: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """The first stage of every encoder together, then the second, …; one that has no further stays with its last.

    >>> step_through({"image": ["conv1", "end"], "audio": ["conv1", "conv2", "end"]})[1:]
    [{'image': 'end', 'audio': 'conv2'}, {'image': 'end', 'audio': 'end'}]
    """
    longest = max(map(len, stages.values()))
    return [{name: each[min(place, len(each) - 1)] for name, each in stages.items()} for place in range(longest)]


def say_stages(tried: Sequence[Into]) -> list[str]:
    """Return where feedback joins, in words, without the modalities whose stage is always the same.

    >>> say_stages([{"image": "conv1", "audio": "conv1"}, {"image": "conv2", "audio": "end"}, None])
    ['conv1', 'image conv2, audio end', 'input']
    >>> say_stages([{"image": "conv1", "text": "end"}, {"image": "conv2", "text": "end"}])
    ['conv1', 'conv2']
    """
    mappings = [into for into in tried if isinstance(into, Mapping)]
    names = {name for into in mappings for name in into} if len(mappings) > 1 else set()
    fixed = {name for name in names if len({str(into.get(name)) for into in mappings}) == 1}
    words = []
    for into in tried:
        if not isinstance(into, Mapping):
            words.append(into or "input")
            continue
        stages = {name: stage for name, stage in into.items() if name not in fixed} or into
        same = len(set(stages.values())) == 1
        words.append(
            next(iter(stages.values())) if same else ", ".join(f"{name} {stage}" for name, stage in stages.items())
        )
    return words


def _measure_all(
    data: DataSet,
    method: str,
    runs: Sequence[tuple[dict[str, Any], dict[str, Any]]],
    seeds: int | Iterable[int],
    settings: Mapping[str, Any] | None,
    encoders: Mapping[str, EncoderChoice] | None,
    metric: str | Metric | None,
    trainer: Trainer | None,
) -> polars.DataFrame:
    """runs: what names a row, and the settings of the loop."""
    import polars

    from consilience.training import Trainer

    chosen = find_metric(metric or ("accuracy" if data.task == "classification" else "mse"), data.task)
    numbers = list(range(seeds) if isinstance(seeds, int) else seeds)
    if not runs or not numbers:
        raise InputError(f"nothing to measure: {len(runs)} settings of the loop and {len(numbers)} seeds were given")
    rows = []
    for seed in numbers:
        split = data.resplit(seed)
        how = replace(trainer or Trainer(), seed=seed, logs=[])
        for about, loop in runs:
            measured = _measure(split, f"pro:{method}", {**(settings or {}), **loop}, encoders, chosen, how)
            rows.append({"method": method, **about, "seed": seed, "metric": chosen.name, **measured})
    return polars.DataFrame(rows)


def _measure(
    data: DataSet,
    name: str,
    settings: Mapping[str, Any],
    encoders: Mapping[str, EncoderChoice] | None,
    metric: Metric,
    trainer: Trainer,
) -> dict[str, Any]:
    """What a method scores and costs: the columns of `depth_curve` from `value` on.

    Test samples that lie on the device are prepared before the time is taken.
    """
    from consilience.training import Model
    from consilience.training.batch_loader import BatchLoader
    from consilience.training.devices import resolve_device
    from consilience.training.trainer import input_type, predict

    model = Model.fit(
        name, data.train, data.validation, settings=settings, encoders=encoders, task=data.task, trainer=trainer
    )
    test, target = data.test, resolve_device(trainer.device)
    feed = BatchLoader(test, model.preparation, target, trainer.resident, input_type(model.method))
    method = model.method.to(target)
    waits = []
    for _ in range(3):
        began = time.perf_counter()
        output = predict(method, feed, 512).output  # on the CPU, so that a device has come to its end
        waits.append(time.perf_counter() - began)
    decided = model.task.decode(output.numpy())
    probabilities = output.double().softmax(dim=1).numpy() if model.task.classification else None
    return {
        "value": metric(test.y, decided, probabilities, classes=model.task.classes),
        "epoch_seconds": min(row["seconds"] for row in model.logs[-1].rows),  # a busy machine only ever adds
        "prediction_seconds": min(waits),
        "parameters": sum(parameter.numel() for parameter in model.method.parameters()),
    }
