"""Columns side by side, and the samples that baselines learn from."""

import numpy as np
import torch

from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods.baselines.joined_columns import join_columns, training_columns
from consilience.preparation import Preparation
from consilience.training import Trainer


def prepared(**training):
    rng = np.random.default_rng(0)
    present = rng.random((40, 2)) < 0.7
    present[~present.any(axis=1), 0] = True
    values = {"a": rng.normal(3, 2, size=(40, 2)), "b": rng.normal(size=(40, 1))}
    weight = rng.integers(0, 3, 40).astype(float)
    samples = Samples.of(values, np.arange(40) % 2, present=present, weight=weight)
    preparation = Preparation.fit(samples, Task.of(samples.y))
    return samples, Trainer(preparation, device="cpu", **training)


def test_columns_stand_in_the_order_of_the_names():
    samples, trainer = prepared()
    batch = trainer.preparation.batch(samples)
    joined, absent = join_columns(batch, ("b", "a"), missing=torch.nan)
    present = torch.from_numpy(samples.present[:, ::-1].copy())
    assert torch.equal(absent.bool(), ~present)
    assert torch.equal(joined.isnan(), torch.stack([~present[:, 0], ~present[:, 1], ~present[:, 1]], dim=1))
    assert torch.equal(joined[present[:, 1], 1:], batch["a"][present[:, 1]])


def test_samples_of_weight_zero_are_left_out_and_noise_makes_copies():
    samples, trainer = prepared()
    values, absent, y, weight = training_columns(samples, ("a", "b"), trainer, missing=0.0)
    used = samples.weight > 0
    assert len(values) == len(absent) == len(y) == used.sum()
    np.testing.assert_allclose(weight, samples.weight[used] / samples.weight[used].mean())
    _, noisy = prepared(augment="gaussian:1")
    copies = training_columns(samples, ("a", "b"), noisy, missing=0.0)[0]
    assert len(copies) == 2 * used.sum()
    assert not np.allclose(copies[: used.sum()], copies[used.sum() :])
