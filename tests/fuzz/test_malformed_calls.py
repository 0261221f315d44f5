"""A seeded sample of malformed calls, and those that were once answered by an exception of another library."""

import numpy as np
import polars
import pytest

import consilience as cs
from consilience.core.errors import ConsilienceError, InputError, OperationError, RowError, WrongTypeError
from fuzz.malformed_calls import DOORS, calls, judge, sample
from fuzz.public_calls import HALF, QUICK, Y, fitted, modalities, samples


def test_malformed_calls_are_refused_or_right():
    wrong = {str(call): outcome for call in sample(2200, seed=0) if not (outcome := judge(call)).allowed}
    assert not wrong


@pytest.mark.parametrize(
    "door", [door for door in DOORS if not (door.slow or door.never_right)], ids=lambda door: door.name
)
def test_the_valid_calls_are_right(door):
    assert judge(next(iter(calls([door])))).kind == "right"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cs.Samples.of(modalities(), kinds=5), "Samples.of: kinds must be a mapping or None, got 5"),
        (lambda: cs.Samples.of(modalities(), lengths=5), "Samples.of: lengths must be a mapping or None, got 5"),
        (lambda: samples()[99], "there is no row 99: the 12 samples are rows 0 … 11"),
        (lambda: samples().only([["a"]]), "Samples.only: names must be a list, each a string"),
        (lambda: cs.fuse([[1], [1, 2]]), "opinions: rows of different lengths"),
        (lambda: cs.fuse({"a": np.zeros((0, 0, 0, 0, 1))}), "at least two classes"),
        (lambda: cs.robustness_curve(fitted("classifier"), modalities(), Y, levels="x"), "levels must be a list"),
        (lambda: cs.corrupt(modalities(), reference=5), "reference must be a Samples, a mapping or None, got 5"),
        (
            lambda: cs.FusionClassifier(**QUICK | {"verbose": "x"}).fit(modalities(), Y),
            "verbose must be a whole number",
        ),
        (lambda: cs.FusionClassifier(**QUICK | {"device": 5}).fit(modalities(), Y), "device must be a string"),
        (lambda: cs.FusionClassifier(**QUICK, devices="x").fit(modalities(), Y), "devices must be a whole number"),
        (
            lambda: cs.FusionClassifier(**QUICK, training={"checkpoint": 5}).fit(modalities(), Y),
            "checkpoint must be a string, a Path or None, got 5",
        ),
        (lambda: cs.FusionClassifier(**QUICK, random_state="x").fit(modalities(), Y), "random_state must be a whole"),
        (lambda: fitted("latent").generate(given=modalities(), samples=0), "samples must be a whole number ≥ 1"),
        (
            lambda: cs.Samples.of({"a": polars.Series([2**100] * 3, dtype=polars.Int128)}),
            "modality 'a': a Series cannot be read as an array: .*128",
        ),
        (lambda: cs.Samples.of({"a": [2**70, "x", 1]}), "modality 'a'"),
    ],
)
def test_what_once_ended_in_a_foreign_exception(call, message):
    with pytest.raises(ConsilienceError, match=message):
        call()


def test_a_state_without_rows_answers_without_rows():
    assert cs.FusionState(HALF).update(np.zeros((0, 2))).log_posterior().shape == (0, 2)


def test_errors_of_others_keep_their_type_and_are_the_cause():
    class Broken:
        classes_ = np.array([0, 1])

        def predict(self, X):
            raise KeyError("weights")

    with pytest.raises(OperationError, match=r"robustness_curve: 'weights' \(KeyError\)") as raised:
        cs.robustness_curve(Broken(), modalities(), Y)
    assert isinstance(raised.value.__cause__, KeyError)
    assert issubclass(WrongTypeError, TypeError)
    assert issubclass(WrongTypeError, InputError)
    assert issubclass(RowError, IndexError)


def test_errors_of_the_users_own_classes_pass():
    class Pruned(Exception):
        pass

    class Stops:
        classes_ = np.array([0, 1])

        def predict(self, X):
            raise Pruned

    with pytest.raises(Pruned):
        cs.robustness_curve(Stops(), modalities(), Y)


@pytest.mark.parametrize("head", ["joint", "after"])
def test_m2vae_trains_in_bf16_true(head):
    settings = {"latent": 2, "head": head}
    model = cs.FusionClassifier("m2vae", settings=settings, precision="bf16-true", **QUICK).fit(modalities(), Y)
    assert np.isfinite(model.predict_proba(modalities())).all()
