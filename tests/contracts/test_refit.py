"""Every method can be refitted: without validation samples it trains in the same order, for the given steps."""

import numpy as np
import pytest

from consilience.core.samples import Samples
from consilience.data import DataSet, load_data
from consilience.training import Model, Trainer
from consilience.training.step_counts import found_steps
from consilience.training.training_settings import steps_per_epoch
from contracts.contract import built_in, cases

CASES = cases()
# Their experts and the copies of the folds stop by held-out samples of their own.
IN_LOCKSTEP = ("auto", "bayes", "bayes-robust")
HOW = {"batch_size": 20, "lr": 3e-3, "device": "cpu"}
pytestmark = pytest.mark.filterwarnings("ignore::consilience.core.errors.TrustWarning")


def refit(name, kind, parts, settings=None):
    """Fit with validation, then refit on both parts; returns the steps asked for, those taken, and the model."""
    train, validation = parts.train[:80], parts.validation[:40]
    first = Model.fit(name, train, validation, settings=settings, task=kind, trainer=Trainer(epochs=2, **HOW))
    asked = [[3 * count for count in phases] for phases in found_steps(first.logs)]
    chosen = np.isin(parts.samples.index, [*train.index, *validation.index])
    trainer = Trainer(epochs=1, refit_steps=asked, **HOW)
    again = Model.fit(name, parts.samples.select(chosen), settings=settings, task=kind, trainer=trainer)
    assert again.predict(validation).output.isfinite().all()
    return asked, found_steps(again.logs), again


@pytest.mark.parametrize(("name", "kind", "data"), CASES, ids=[f"{name}-{kind}" for name, kind, _ in CASES])
def test_every_method_is_refitted(name, kind, data):
    asked, taken, _ = refit(name, kind, built_in(data))
    assert [len(phases) for phases in taken] == [len(phases) for phases in asked]
    each = steps_per_epoch(120, HOW["batch_size"])
    if name in IN_LOCKSTEP:
        return
    for found, wanted in zip(taken, asked):  # whole epochs
        assert np.abs(np.subtract(found, wanted)).max() <= each / 2


def test_the_run_that_validation_alone_needs_is_left_out():
    asked, taken, _ = refit("qmf", "classification", load_data("digits"), {"supervision": "held-out", "folds": 2})
    assert (len(asked), len(taken)) == (4, 3)


def test_experts_are_ranked_by_samples_that_they_did_not_learn_from():
    """A modality of noise with many columns is learned by heart: by its training loss it would come first."""
    parts = load_data("digits")
    rng = np.random.default_rng(0)

    values = {"noise": rng.normal(size=(len(parts), 300)), "real": parts.samples["top_left"]}
    data = DataSet("mixed", Samples.of(values, parts.y), "classification", parts.split)
    trainer = Trainer(refit_steps=[[600], [60]], **HOW)
    model = Model.fit("best-unimodal", data.train[:100], trainer=trainer)
    assert model.method.names[int(model.method.ranking[0])] == "real"
    fitted = Model.fit("best-unimodal", data.train[:100], trainer=Trainer(epochs=100, **HOW))
    assert fitted.method.names[int(fitted.method.ranking[0])] == "noise"
