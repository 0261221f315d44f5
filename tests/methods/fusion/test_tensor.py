"""Tensor fusion: every product, by loops."""

import itertools

import pytest
import torch

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.core.targets import Task
from consilience.methods import Spec, build
from consilience.methods.fusion.tensor import outer_product


def test_outer_product_holds_every_product_once():
    parts = [torch.randn(3, size, dtype=torch.float64) for size in (2, 3, 1)]
    got = outer_product(parts)
    assert got.shape == (3, 3 * 4 * 2)
    for row in range(3):
        entries = [[*part[row].tolist(), 1.0] for part in parts]
        expected = [a * b * c for a, b, c in itertools.product(*entries)]
        torch.testing.assert_close(got[row], torch.tensor(expected, dtype=torch.float64))


def test_a_tensor_too_large_is_refused_with_its_size():
    modalities = {name: Modality(name, "vector", (3,)) for name in "abcdef"}
    spec = Spec(modalities, Task.of_labels(torch.arange(3).numpy()))
    with pytest.raises(InputError, match=r"17\^6|24137569.*lowrank"):
        build("tensor", spec, {"size": 16})
