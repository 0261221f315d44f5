"""Gaussians of few samples: the densities of the full form, to rounding."""

import numpy as np
import pytest
import torch

from consilience.bayes.class_gaussians import fit_gaussian
from consilience.bayes.few_sample_gaussians import fit_few_sample_gaussian, has_few_samples

WIDTHS = (12, 9, 15)


def draw(y, seed=0):
    rng = np.random.default_rng(seed)
    features = sum(WIDTHS)
    mix = rng.normal(size=(features, features)) * np.geomspace(0.1, 10, features)
    return torch.from_numpy(rng.normal(size=(len(y), features)) @ mix + 3 * np.asarray(y)[:, None])


@pytest.mark.parametrize("case", ["balanced", "unbalanced", "one sample", "two samples", "unseen class", "constant"])
def test_densities_are_those_of_the_full_form(case):
    classes = 6
    y = torch.arange(60) % classes
    if case == "unbalanced":
        y[y == 5] = torch.arange(10) % 3
    elif case in ("one sample", "two samples"):
        y[y == 5] = 0
        y[: 1 if case == "one sample" else 2] = 5
    elif case == "unseen class":
        y[y == 5] = 4
    x = draw(y)
    if case == "constant":
        x[:, 3] = 2.0
    asked = draw(torch.arange(40) % classes, seed=1)
    present = torch.from_numpy(np.random.default_rng(2).random((40, 3)) < 0.7)
    full, fast = fit_gaussian(x, y, classes, WIDTHS), fit_few_sample_gaussian(x, y, classes, WIDTHS)
    for mask in (None, present):
        pairs = zip(full.log_density_and_kappa(asked, mask), fast.log_density_and_kappa(asked, mask), strict=True)
        for expected, found in pairs:
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_it_is_used_where_classes_are_small_and_nothing_is_missing():
    y, present = torch.arange(60) % 6, torch.ones(60, 3, dtype=torch.bool)
    assert has_few_samples(y, 6, 36, present)
    assert not has_few_samples(y, 6, 27, present)
    assert not has_few_samples(torch.zeros_like(y), 6, 36, present)
    present[3, 1] = False
    assert not has_few_samples(y, 6, 36, present)
