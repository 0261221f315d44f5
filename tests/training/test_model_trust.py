import warnings

import numpy as np
import pytest
import torch

from consilience.core.correlation import Correlation
from consilience.core.errors import TrustWarning
from consilience.core.samples import Samples
from consilience.methods import ExpertMethod, Prediction, Spec
from consilience.training import Model, Trainer
from consilience.training import model as model_module
from consilience.training.model import misplaced_trust, warn_of_misplaced_trust
from training.toys import make_samples, prepare


def separable(n=200, seed=0):
    """Two vectors that each tell three classes."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    centres = 3 * random.normal(size=(3, 12))
    return Samples.of({"a": centres[y] + random.normal(size=(n, 12)), "b": centres[y] + random.normal(size=(n, 12))}, y)


def fit(method, normalise, samples=None, validation=None, **settings):
    encoders = {name: {"name": "mlp", "hidden": [16], "dropout": 0, "normalise": normalise} for name in "ab"}
    trainer = Trainer(epochs=15, lr=1e-2, device="cpu")
    samples = separable() if samples is None else samples
    return Model.fit(method, samples, validation, settings=settings, encoders=encoders, trainer=trainer)


def test_energy_that_grows_with_the_noise_is_warned_of():
    with pytest.warns(TrustWarning, match=r"qmf trusts a modality more .* a \(r = \+0\.\d\d, .*normalise") as caught:
        model = fit("qmf", normalise=False)
    assert set(model.misplaced_trust) == {"a", "b"}
    assert len(caught) == 1
    assert all(trust.r > trust.low > 0 and trust.n == 200 for trust in model.misplaced_trust.values())


@pytest.mark.parametrize(("method", "normalise"), [("qmf", True), ("late", False), ("concat", False)])
def test_bounded_features_constant_weights_and_no_weights_are_silent(method, normalise):
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrustWarning)
        assert fit(method, normalise=normalise).misplaced_trust == {}


class Given(ExpertMethod):
    """Says and weighs what it is told, sample by sample."""

    def __init__(self, spec, weights, opinions):
        super().__init__(spec)
        self.weights, self.opinions = weights, opinions

    def forward(self, batch):
        rows = batch.index
        return Prediction(torch.zeros(len(rows), 3), opinions=self.opinions[rows], weights=self.weights[rows])


def model_of(weights, opinions, samples):
    preparation = prepare(samples)
    method = Given(Spec(preparation.modalities, preparation.task), weights, opinions)
    return Model("given", {}, {}, method, preparation, [])


def test_correlations_are_those_of_weights_and_own_losses():
    n = 60
    present = np.random.default_rng(1).random((n, 2)) < 0.8
    samples = make_samples(n).replaced({}, present=present)
    opinions = torch.randn(n, 2, 3, generator=torch.Generator().manual_seed(0))
    losses = torch.nn.functional.cross_entropy(
        opinions.transpose(1, 2), torch.tensor(samples.y)[:, None].expand(n, 2), reduction="none"
    )
    noise = torch.randn(n, 2, generator=torch.Generator().manual_seed(1))
    weights = torch.stack([losses[:, 0], -losses[:, 1]], dim=1) + 0.3 * noise
    weights[~torch.tensor(present)] = 0
    found = misplaced_trust(model_of(weights, opinions, samples), samples, device="cpu")
    assert list(found) == ["a"]  # b is trusted less when it is wrong
    rows = present[:, 0]
    assert found["a"].r == pytest.approx(np.corrcoef(weights[rows, 0], losses[rows, 0])[0, 1], abs=1e-5)
    assert found["a"].n == rows.sum()
    weights[3, 0] = float("inf")  # a broken weight spoils nothing
    assert found["a"].n - 1 <= misplaced_trust(model_of(weights, opinions, samples), samples)["a"].n < n


def test_equal_weights_of_what_is_present_are_not_blamed_for_harder_samples():
    n = 60
    present = np.ones((n, 2), bool)
    present[:30, 1] = False
    samples = make_samples(n).replaced({}, present=present)
    opinions = torch.randn(n, 2, 3, generator=torch.Generator().manual_seed(0))
    opinions[torch.arange(30), 0, torch.tensor(samples.y[:30])] -= 5  # a is wrong wherever b is missing
    weights = torch.tensor(present / present.sum(axis=1, keepdims=True), dtype=torch.float32)
    assert misplaced_trust(model_of(weights, opinions, samples), samples) == {}
    weights[59, 0] = 0.49
    assert list(misplaced_trust(model_of(weights, opinions, samples), samples)) == ["a"]


def test_a_large_set_is_looked_at_in_part(monkeypatch):
    monkeypatch.setattr(model_module, "TRUST_SAMPLES", 20)
    samples, spread = make_samples(400), np.unique(np.linspace(0, 399, 20).round().astype(int))
    opinions = torch.randn(20, 2, 3, generator=torch.Generator().manual_seed(0))
    weights = -opinions[torch.arange(20), :, torch.tensor(samples.y[spread])]
    found = misplaced_trust(model_of(weights, opinions, samples), samples)
    assert {name: trust.n for name, trust in found.items()} == {"a": 20, "b": 20}


def test_a_correlation_that_chance_explains_is_no_reason_to_warn():
    samples = make_samples(30)
    draw = torch.Generator().manual_seed(0)
    weights, opinions = torch.rand(30, 2, generator=draw), torch.randn(30, 2, 3, generator=draw)
    assert misplaced_trust(model_of(weights, opinions, samples), samples) == {}


def test_the_validation_set_is_what_is_looked_at():
    with pytest.warns(TrustWarning):
        model = fit("qmf", normalise=False, validation=separable(90, seed=0))
    assert model.misplaced_trust["a"].n == 90


@pytest.mark.parametrize(
    ("method", "others"),
    [("qmf", "late-probs or bayes-robust"), ("bayes-robust", "late-probs"), ("late-probs", "bayes-robust")],
)
def test_no_method_is_recommended_in_place_of_itself(method, others):
    with pytest.warns(TrustWarning, match=f"such as {others}$"):
        warn_of_misplaced_trust(method, {"a": Correlation(0.5, 0.4, 0.6, 100)})


def test_nothing_found_is_nothing_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_misplaced_trust("qmf", {})
