"""Fits in several threads: each as if it were alone, and torch's global random state as it was."""

import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from consilience import FusionClassifier, MultimodalVAE, compare, load, methods
from consilience.core.errors import TrustWarning
from consilience.methods import Method, Prediction, Spec, register
from consilience.training import Callback

METHODS = ("concat", "late", "m2vae", "mfm", "pro:concat", "wide:concat", "bayes-robust", "gradient-blend", "noisy")
TRAINING = ({}, {"precision": "64"}, {"precision": "bf16-true"}, {"resident": False})
pytestmark = pytest.mark.filterwarnings("ignore::consilience.core.errors.TrustWarning")


def _numpy_state():
    return np.random.get_state()[1].tolist()  # noqa: NPY002 -- to see that nothing uses it


@pytest.fixture(autouse=True)
def global_states_stay():
    """Nothing here uses or changes the random numbers of others."""
    torch.manual_seed(11)
    before = torch.get_rng_state(), _numpy_state(), random.getstate()
    yield
    assert torch.equal(torch.get_rng_state(), before[0])
    assert _numpy_state() == before[1]
    assert random.getstate() == before[2]
    assert torch.get_default_dtype() == torch.float32


@pytest.fixture(scope="module", autouse=True)
def noisy():
    """A method as another package may write it: initial weights, dropout and noise from torch's generator."""
    with methods.METHODS.restored():

        @register("noisy")
        class Noisy(Method):
            def __init__(self, spec: Spec):
                super().__init__(spec)
                width = sum(modality.shape[0] for modality in spec.modalities.values())
                self.layers = nn.Sequential(nn.Linear(width, 16), nn.Dropout(0.5), nn.Linear(16, spec.task.outputs))

            def forward(self, batch):
                x = torch.cat([batch[name] for name in batch.names], dim=1)
                return Prediction(self.layers(x + torch.randn_like(x) if self.training else x))

        yield


def fit(toy, method, seed, training, **given):
    model = FusionClassifier(
        method, epochs=2, batch_size=16, device="cpu", random_state=seed, training=training, **given
    )
    return model.fit(toy.X, toy.y)


def test_fits_in_threads_equal_fits_one_after_another(toy):
    jobs = [
        (method, number % 3, TRAINING[number % len(TRAINING)])
        for number, method in enumerate((*METHODS, "noisy", "concat", "noisy"))
    ]
    jobs = [job for job in jobs if job[0] != "m2vae" or "precision" not in job[2]]

    def run(job):
        return fit(toy, *job).predict_proba(toy.X)

    alone = [run(job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(run, jobs))
    for job, expected, found in zip(jobs, alone, together):
        assert np.array_equal(expected, found), job


def test_latent_models_in_threads(toy):
    def run(seed):
        model = MultimodalVAE(latent=2, epochs=2, device="cpu", random_state=seed).fit(toy.X)
        return model.sample(5)["image"]

    alone = [run(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, range(4)))
    assert all(np.array_equal(expected, found) for expected, found in zip(alone, together))


def test_loading_and_predicting_while_another_thread_trains(toy, tmp_path):
    model = FusionClassifier("lf-transformer", epochs=1, device="cpu")
    X = {"speech": np.random.default_rng(0).normal(size=(80, 6, 3)).astype(np.float32), **toy.X}
    model.fit(X, toy.y)
    model.save(tmp_path / "model")
    expected = model.predict_proba(X)
    began, enough = threading.Event(), threading.Event()

    class UntilEnough(Callback):
        def on_epoch_start(self, run):
            began.set()
            if enough.is_set():
                raise KeyboardInterrupt

    training = {"precision": "bf16-true"}  # in which torch's default dtype is bf16, for all threads
    long = threading.Thread(
        target=lambda: FusionClassifier(
            "concat", epochs=100_000, device="cpu", validation=None, training=training, callbacks=[UntilEnough()]
        ).fit(toy.X, toy.y)
    )
    long.start()
    try:
        assert began.wait(60)
        for _ in range(5):
            assert np.array_equal(load(tmp_path / "model").predict_proba(X), expected)
        assert long.is_alive()
    finally:
        enough.set()
        long.join(60)


class Stop(Callback):
    """Raises an error in the second step."""

    def __init__(self, error):
        self.error, self.steps = error, 0

    def on_step_end(self, run):
        self.steps += 1
        if self.steps == 2:
            raise self.error


@pytest.mark.parametrize("error", [ValueError("stop"), KeyboardInterrupt("stop")])
def test_a_fit_that_fails_leaves_the_random_state(toy, error):
    training = {"on_interrupt": "raise"}
    with pytest.raises(type(error)):
        fit(toy, "noisy", 0, training, callbacks=[Stop(error)])
    with ThreadPoolExecutor(1) as pool:  # and its turn
        pool.submit(fit, toy, "noisy", 0, {}).result(timeout=60)


def test_an_interrupted_fit_that_keeps_its_weights(toy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        fit(toy, "noisy", 0, {}, callbacks=[Stop(KeyboardInterrupt())])


def test_predicting_comparing_and_loading_leave_the_random_state(toy, tmp_path):
    model = fit(toy, "m2vae", 0, {})
    model.predict_proba(toy.X)
    model.save(tmp_path / "model")
    load(tmp_path / "model").predict(toy.X)
    np.savez(tmp_path / "toy.npz", **toy.X, y=toy.y)
    compare(
        tmp_path / "toy.npz",
        ["noisy", "m2vae"],
        seeds=2,
        levels=(1,),
        training={"epochs": 1},
        out=tmp_path / "run",
        verbose=0,
    )
