"""`m2vae` as a method, and `impute=`: what the shared contract does not ask."""

import numpy as np
import pytest
import torch

from consilience import FusionClassifier, Samples, load
from consilience.core.batches import Batch
from consilience.core.errors import InputError, UnknownNameError
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.methods import Spec, Step
from consilience.methods.latent.latent_method import LatentFusion

MODALITIES = {name: Modality(name, "vector", (3,)) for name in "abc"}


def method(**settings):
    torch.manual_seed(0)
    return LatentFusion(Spec(MODALITIES, Task.of_labels(np.array([0, 1]))), latent=4, **settings)


def batch(n=12):
    torch.manual_seed(1)
    present = torch.rand(n, 3) > 0.4
    return Batch(
        {name: torch.randn(n, 3) * present[:, [place]] for place, name in enumerate("abc")},
        present,
        index=torch.arange(n),
        weight=torch.ones(n),
        y=torch.arange(n) % 2,
    )


def test_the_head_reads_the_posterior_of_what_is_present():
    one, given = method(), batch()
    one(given)  # in training, so that the encoders count as trained
    one.eval()
    posterior = one.latent_model.posterior(given)
    torch.testing.assert_close(one(given).output, one.head(posterior.mean))
    assert (one.latent_model.posterior(given, []).mean == 0).all()


def test_strength_and_subset_loss_weigh_their_terms():
    losses = {}
    for strength, subset_loss in ((1.0, 1.0), (2.0, 3.0), (0.0, 0.0)):
        one, given = method(strength=strength, subset_loss=subset_loss).train(), batch()
        torch.manual_seed(2)
        losses[strength] = {name: value.item() for name, value in one.objective(one(given), given, Step()).items()}
    assert losses[1.0].keys() == {"task", "subsets", "reconstruction", "prior", "mutual"}
    for name, factor in (("task", 1), ("subsets", 3), ("reconstruction", 2), ("prior", 2), ("mutual", 2)):
        assert losses[2.0][name] == pytest.approx(factor * losses[1.0][name], rel=1e-5)
    assert "subsets" not in losses[0.0]
    assert losses[0.0]["reconstruction"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "before"}, "unknown head 'before'"),
        ({"strength": -1}, "strength must be a number ≥ 0, got -1"),
        ({"objective": "mvae", "bound": "tight"}, "unknown setting 'bound'"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(InputError, match=message):
        method(**settings)


@pytest.fixture(scope="module")
def toy():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 2))
    X = {name: z @ rng.normal(size=(2, 4)) + 0.2 * rng.normal(size=(300, 4)) for name in "ab"}
    return Samples.of(X, (z[:, 0] > 0).astype(int))


QUICK = {"epochs": 15, "lr": 0.01, "batch_size": 32, "device": "cpu", "validation": None}


def test_a_head_after_the_latent_model_leaves_it_as_it_was(toy):
    settings = {"head": "after", "latent": 4}
    model = FusionClassifier("m2vae", settings=settings, **QUICK).fit(toy)
    assert model.score(toy) > 0.85
    latent, head = model.model_.logs
    assert "reconstruction" in latent.rows[0]
    assert set(head.rows[0]) >= {"task", "subsets"}
    assert "reconstruction" not in head.rows[0]


def test_missing_modalities_are_filled_before_the_classifier_sees_them(toy, tmp_path):
    model = FusionClassifier("concat", impute={"objective": "m2vae", "latent": 4, "epochs": 20}, **QUICK).fit(toy)
    alone = toy.only(["a"])
    filled = model.full_prediction(alone)
    assert filled.extra["present"].all()
    assert model.score(alone) > 0.75
    again = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(alone), model.predict_proba(alone))
    complete = FusionClassifier("concat", **QUICK).fit(toy)
    np.testing.assert_array_equal(model.predict_proba(toy), complete.predict_proba(toy))  # nothing to fill


@pytest.mark.parametrize("impute", [{"latnt": 3}, {"kinds": {}}])
def test_impute_takes_parameters_of_the_latent_model(toy, impute):
    with pytest.raises(UnknownNameError, match="It was given in impute"):
        FusionClassifier("concat", impute=impute, **QUICK).fit(toy)


def test_impute_is_a_name_or_a_mapping(toy):
    with pytest.raises(InputError, match="impute must be an objective"):
        FusionClassifier("concat", impute=3, **QUICK).fit(toy)
