"""A prediction does not depend on the batch: not on its size, its order, its padding or the other samples."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from consilience import methods
from consilience.core.samples import Samples
from consilience.training import Model, load_model
from contracts.batch_sets import HARD_SETS
from contracts.contract import fit, member, prepared

TOLERANCE = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore::consilience.core.errors.TrustWarning")


@cache
def hard(name: str, kind: str) -> tuple[Samples, Samples]:
    """Training and test samples of a hard set; a regression predicts the numbers of the classes."""
    train, test = HARD_SETS[name](np.random.default_rng(0))
    if kind == "regression":
        return tuple(Samples.of(samples, samples.y + 0.5) for samples in (train, test))  # type: ignore[return-value]
    return train, test


def cases() -> Iterator[tuple[str, str, str]]:
    """Every method on every hard set that it can read, with every task that it serves."""
    for hard_set in HARD_SETS:
        for kind in ("classification", "regression"):
            preparation, task = prepared(hard(hard_set, kind)[0], kind)
            spec = methods.Spec(preparation.modalities, task)
            for name, cls in methods.registry().items():
                if cls.reason_against(spec) is None:
                    yield member(name, hard(hard_set, kind)[0].names), kind, hard_set


CASES = list(cases())


@pytest.mark.parametrize(("name", "kind", "hard_set"), CASES, ids=["-".join(case) for case in CASES])
def test_a_sample_alone_and_among_others(name, kind, hard_set):
    train, test = hard(hard_set, kind)
    model = fit(name, kind, train)
    with tempfile.TemporaryDirectory() as folder:
        loaded, _ = load_model(model.save(Path(folder) / "model"))
    expected = everything(model, test)
    assert expected
    order = np.random.default_rng(1).permutation(len(test))
    for parts in (
        [order],
        np.array_split(order, [1, 3, 8, 9, 50]),
        np.array_split(np.arange(len(test)), len(test)),
    ):
        found = [everything(loaded, test[rows]) for rows in parts]
        place = np.argsort(np.concatenate(parts))
        for key, values in expected.items():
            assert_close(key, torch.cat([part[key] for part in found])[place], values)


def everything(model: Model, samples: Samples) -> dict[str, Tensor]:
    """Every tensor of a prediction that has a row for each sample; logits of classes also as probabilities."""
    model.method.eval()
    batch = model.preparation.batch(samples)
    with torch.no_grad():
        prediction = model.method(batch)
    found = dict(tensors_in(vars(prediction), len(samples)))
    if model.task.classification:
        found["probabilities"] = prediction.output.double().softmax(dim=1)
    return {key: values.double() for key, values in found.items()}


def tensors_in(value: Any, n: int, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors `[n, …]` of fixed size in nested mappings and lists; those over padded time vary with the batch."""
    if isinstance(value, Tensor):
        if value.ndim and len(value) == n and ".sequence" not in path and ".mask" not in path:
            yield path, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from tensors_in(part, n, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from tensors_in(part, n, f"{path}.{number}")
    elif hasattr(value, "pooled"):
        yield from tensors_in(vars(value), n, path)


def assert_close(key: str, found: Tensor, expected: Tensor) -> None:
    """Equal to 1e-5; numbers beyond 1 to as much of their size."""
    assert found.isfinite().all(), key
    size = 1.0 if key == "probabilities" else expected.abs().clamp(min=1)
    away = ((found - expected).abs() / size).max().item()
    assert away < TOLERANCE, f"{key} differs by {away:.1e}"
