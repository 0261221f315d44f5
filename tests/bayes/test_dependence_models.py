"""Models of dependence: the form for a number of classes, and their tensors."""

import numpy as np
import pytest
import torch

from consilience.bayes import dependence_models as models
from consilience.bayes.few_sample_gaussians import FewSampleGaussian
from consilience.bayes.low_rank_gaussians import LowRankGaussian
from consilience.core.errors import InputError


def draw(n=120, classes=4):
    rng = np.random.default_rng(0)
    y = torch.arange(n) % classes
    return torch.from_numpy(rng.normal(size=(n, 6)) + 2 * y[:, None].numpy()), y, torch.ones(n, 2, dtype=torch.bool)


@pytest.mark.parametrize(("kappa", "limit"), [("gaussian", 2**27), ("copula", 2**27), ("gaussian", 0)])
def test_a_model_is_its_tensors(kappa, limit, monkeypatch):
    monkeypatch.setattr(models, "_MAX_ENTRIES", limit)
    x, y, present = draw()
    model = models.fit_dependence(kappa, x, y, 4, (3, 3), present)
    tensors = models.tensors_of(model)
    assert set(tensors) == set(models.initial_tensors(kappa, 2, 4))
    again = models.model_of(tensors, (3, 3))
    assert type(again) is type(model)
    for found, expected in zip(models.estimate(again, x, present), models.estimate(model, x, present), strict=True):
        assert (found is None and expected is None) or torch.equal(found, expected)


def test_the_form_follows_from_the_sizes(monkeypatch):
    assert [models.has_low_rank("gaussian", 4, classes) for classes in (2, 200, 300, 1000)] == [0, 0, 1, 1]
    with pytest.raises(InputError, match="kappa='copula' needs a covariance of 3996 features for each of 1000"):
        models.has_low_rank("copula", 4, 1000)
    x, y, present = draw(8)
    assert isinstance(models.fit_for_one_use("gaussian", x, y, 4, (3, 3), present), FewSampleGaussian)
    monkeypatch.setattr(models, "_MAX_ENTRIES", 0)
    assert isinstance(models.fit_for_one_use("gaussian", x, y, 4, (3, 3), present), LowRankGaussian)
