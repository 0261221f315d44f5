"""What must not change an answer: order and number of rows, hidden values, copies, threads, order of modalities.

Every registered method is fitted once on a small set that it can read, and so are BayesFusion and MultimodalVAE.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import cloudpickle
import numpy as np

from contracts.batch_sets import HARD_SETS
from fuzz.fuzzers import Fuzzer, register

QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 32, "validation": None, "device": "cpu"}
ESTIMATORS = ("BayesFusion", "BayesFusion with experts", "MultimodalVAE")
KINDS = ("classification", "regression")
TOLERANCE = 1e-5
Answer = dict[str, np.ndarray]


@cache
def samples_of(hard_set: str, kind: str) -> tuple[Any, Any]:
    """Samples to train on and to ask about."""
    from consilience import Samples

    train, test = HARD_SETS[hard_set](np.random.default_rng(0))
    if kind == "regression":
        return tuple(Samples.of(samples, samples.y + 0.5) for samples in (train, test))  # type: ignore[return-value]
    return train, test


@cache
def subjects() -> list[tuple[str, str, str]]:
    """Every method with every set that it can read and every task: (method, task, set); and the other estimators."""
    from consilience import methods
    from contracts.contract import prepared

    found = [(name, "classification", "loud") for name in ESTIMATORS]
    for hard_set in HARD_SETS:
        for kind in KINDS:
            train = samples_of(hard_set, kind)[0]
            preparation, task = prepared(train, kind)
            spec = methods.Spec(preparation.modalities, task)
            known = methods.available(train.names)
            readable = [name for name in known if methods.find(name, train.names)[0].reason_against(spec) is None]
            found += [(name, kind, hard_set) for name in readable]
    return found


@cache
def fitted(name: str, kind: str, hard_set: str) -> Any:
    """A model, fitted once in this process."""
    from sklearn.linear_model import LogisticRegression

    from consilience import BayesFusion, FusionClassifier, FusionRegressor, MultimodalVAE

    train = samples_of(hard_set, kind)[0]
    if name == "MultimodalVAE":
        return MultimodalVAE(latent=2, **QUICK).fit(train)
    if name == "BayesFusion":
        return BayesFusion(reliability="auto").fit(_opinions(train), train.y)
    if name == "BayesFusion with experts":
        return BayesFusion(experts=LogisticRegression()).fit({one: train[one] for one in train.names}, train.y)
    made = FusionClassifier if kind == "classification" else FusionRegressor
    return made(name, **QUICK).fit(train)


def _opinions(samples: Any) -> dict[str, np.ndarray]:
    """Three logits from each modality; one with an outlier is far off, but finite."""
    return {name: np.tanh(np.asarray(samples[name], float)[:, :3]) * 3 for name in samples.names}


def ask(model: Any, samples: Any) -> Answer:
    """Everything that a model says of samples, `[n, …]` each."""
    kind = type(model).__name__
    if kind == "MultimodalVAE":
        mean, variance = model.encode(samples)
        return {"mean": mean, "variance": variance}
    if kind == "BayesFusion":
        values = {name: np.asarray(samples[name], float) for name in samples.names}
        given = values if hasattr(model, "experts_") else _opinions(samples)
        present = {name: samples.present_in(name) for name in samples.names}
        return {
            "probabilities": model.predict_proba(given, present),
            "trust": _by_name(model, model.trust(given, present)),
        }
    answer = {"output": model.predict_proba(samples) if kind == "FusionClassifier" else model.predict(samples)}
    if hasattr(model, "trust"):
        answer["trust"] = _by_name(model, model.trust(samples))
    return answer


def _by_name(model: Any, trust: np.ndarray) -> np.ndarray:
    return trust[:, np.argsort(np.asarray(model.modalities_, dtype=str))]


def check_same(found: Answer, expected: Answer, exact: bool = False) -> None:
    """Check that two answers agree, and are finite: to 1e-5, of numbers beyond 1 to as much of their size."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.isfinite(found[name]).all(), f"{name} is not finite"
        assert found[name].shape == values.shape, f"{name} has shape {found[name].shape}, not {values.shape}"
        away = np.max(np.abs(found[name] - values) / np.maximum(1, np.abs(values)), initial=0)
        assert away <= (0 if exact else TOLERANCE), f"{name} differs by {away:.1e}"


def _rows_of(answer: Answer, rows: np.ndarray) -> Answer:
    return {name: values[rows] for name, values in answer.items()}


def permuted_rows(model: Any, samples: Any, rng: np.random.Generator) -> None:
    order = rng.permutation(len(samples))
    check_same(ask(model, samples[order]), _rows_of(ask(model, samples), order))


def split_batches(model: Any, samples: Any, rng: np.random.Generator) -> None:
    cuts = np.sort(rng.integers(0, len(samples), rng.integers(1, 6)))
    parts = [part for part in np.split(np.arange(len(samples)), cuts) if len(part)]
    answers = [ask(model, samples[part]) for part in parts]
    check_same({name: np.concatenate([part[name] for part in answers]) for name in answers[0]}, ask(model, samples))


def repeated_rows(model: Any, samples: Any, rng: np.random.Generator) -> None:
    rows = rng.integers(0, len(samples), rng.integers(1, 3 * len(samples)))
    check_same(ask(model, samples[rows]), _rows_of(ask(model, samples), rows))


def hidden_values(model: Any, samples: Any, rng: np.random.Generator) -> None:
    """Values under the mask are other samples' values, or NaN."""
    present = samples.present & (rng.random(samples.present.shape) < rng.random())
    hidden = samples.replaced({}, present=present)
    other = samples[rng.permutation(len(samples))]
    values, lengths = {}, {}
    for name in samples.names:
        there = hidden.present_in(name)
        shape = there.reshape(-1, *[1] * (np.ndim(samples[name]) - 1))
        values[name] = np.where(shape, samples[name], other[name])
        if values[name].dtype.kind == "f" and rng.random() < 0.5:
            values[name] = np.where(shape, values[name], np.nan)
        if name in samples.lengths:
            lengths[name] = np.where(there, samples.lengths[name], other.lengths[name])
    if type(model).__name__ == "BayesFusion":  # takes arrays, in which NaN would be missing by itself
        values = {name: np.nan_to_num(value) for name, value in values.items()}
    check_same(ask(model, samples.replaced(values, present=present, lengths=lengths)), ask(model, hidden))


def missing_for_all(model: Any, samples: Any, rng: np.random.Generator) -> None:
    """A modality that is masked everywhere, and one that is not given."""
    name = str(rng.choice(samples.names))
    present = samples.present.copy()
    present[:, list(samples.names).index(name)] = False
    rest = samples.only([other for other in samples.names if other != name])
    masked, left_out = ask(model, samples.replaced({}, present=present)), None
    if type(model).__name__ != "BayesFusion":  # which asks for every expert by name
        left_out = ask(model, rest)
        check_same(left_out, masked)
    check_same(masked, masked)


def reordered_modalities(model: Any, samples: Any, rng: np.random.Generator) -> None:
    names = [samples.names[place] for place in rng.permutation(len(samples.names))]
    check_same(ask(model, samples.only(names)), ask(model, samples))


def saved_and_loaded(model: Any, samples: Any, rng: np.random.Generator) -> None:
    from consilience import load

    with tempfile.TemporaryDirectory() as folder:
        again = load(model.save(Path(folder) / "model"))
        check_same(ask(again, samples), ask(model, samples), exact=True)
        with_copy = load(again.save(Path(folder) / "copy"))
        check_same(ask(with_copy, samples), ask(model, samples), exact=True)


def copied(model: Any, samples: Any, rng: np.random.Generator) -> None:
    made: tuple[Callable[[Any], Any], ...] = (
        lambda one: pickle.loads(pickle.dumps(one)),
        lambda one: cloudpickle.loads(cloudpickle.dumps(one)),
        copy.deepcopy,
    )
    again = made[rng.integers(len(made))](model)
    check_same(ask(again, samples), ask(model, samples), exact=True)


def eight_threads(model: Any, samples: Any, rng: np.random.Generator) -> None:
    parts = [rng.permutation(len(samples))[: rng.integers(1, len(samples))] for _ in range(16)]
    alone = [ask(model, samples[part]) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda part: ask(model, samples[part]), parts))
    for found, expected in zip(together, alone):
        check_same(found, expected, exact=True)


RELATIONS = {
    relation.__name__: relation
    for relation in (
        permuted_rows,
        split_batches,
        repeated_rows,
        hidden_values,
        missing_for_all,
        reordered_modalities,
        saved_and_loaded,
        copied,
        eight_threads,
    )
}


def draw(random: Random) -> dict[str, Any]:
    """Draw a model and what is done to it."""
    name, kind, hard_set = random.choice(subjects())
    relation = random.choice(list(RELATIONS))
    return {"model": name, "task": kind, "set": hard_set, "relation": relation, "seed": random.randrange(2**16)}


def run(case: dict[str, Any]) -> None:
    """Fit, or take from earlier, and check. All of it is valid, so that nothing may be refused."""
    from consilience.core.errors import ConsilienceError

    test = samples_of(case["set"], case["task"])[1]
    rng = np.random.default_rng(case["seed"])
    asked = test[rng.permutation(len(test))[: rng.integers(2, len(test))]]
    try:
        RELATIONS[case["relation"]](fitted(case["model"], case["task"], case["set"]), asked, rng)
    except ConsilienceError as error:
        raise AssertionError(f"a valid call was refused: {error}") from error


register(Fuzzer("metamorphic", "checks", draw, run, seconds=120, examples=60))


def draw_fusion(random: Random) -> dict[str, Any]:
    """Draw the sizes and settings of opinions, and a seed of their values."""
    return {
        "rows": random.randint(1, 9),
        "experts": random.randint(1, 5),
        "classes": random.randint(2, 5),
        "scale": random.choice((0.0, 1e-3, 1.0, 30.0, 1e4)),
        "given": sorted(random.sample(("present", "weights", "reliability", "prior", "target_prior", "excluded"), 3)),
        "seed": random.randrange(2**16),
    }


def run_fusion(case: dict[str, Any]) -> None:
    """`fuse` of experts and rows in any order, and `FusionState` with merging and retracting, give one answer."""
    from consilience import FusionState, fuse

    rng, given = np.random.default_rng(case["seed"]), case["given"]
    n, experts, classes = case["rows"], case["experts"], case["classes"]
    z = case["scale"] * rng.normal(size=(n, experts, classes))
    if "excluded" in given:
        z[rng.random(z.shape) < 0.1] = -np.inf
        z[..., 0] = 0
    prior = rng.dirichlet(np.ones(classes), experts) if "prior" in given else None
    of_all = {"target_prior": rng.dirichlet(np.ones(classes))} if "target_prior" in given else {}
    per: dict[str, np.ndarray] = {}
    if "present" in given:
        per["present"] = rng.random((n, experts)) < 0.7
    if "weights" in given:
        per["weights"] = rng.uniform(0, 2, (n, experts))
    if "reliability" in given:
        per["reliability"] = rng.random((n, experts))
    expected = fuse(z, prior, **of_all, **per)
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(np.exp(expected).sum(axis=-1), 1, rtol=1e-9)

    rows, order = rng.permutation(n), rng.permutation(experts)
    turned = {name: values[rows][:, order] for name, values in per.items()}
    found = fuse(z[rows][:, order], None if prior is None else prior[order], **of_all, **turned)
    _near(found, expected[rows], "of experts and rows in another order")
    named = {f"e{place}": z[:, place] for place in order}
    as_mapping = {name: {f"e{place}": values[:, place] for place in range(experts)} for name, values in per.items()}
    if prior is None:
        _near(fuse(named, **of_all, **as_mapping), expected, "of a mapping")

    base = np.full(classes, 1 / classes) if prior is None else prior[0]
    first, second = (FusionState(base, **({"target_prior": base} | of_all)) for _ in range(2))
    arguments = [
        {
            "opinion": z[:, place],
            **({"prior": prior[place]} if prior is not None else {}),
            **{{"weights": "weight"}.get(name, name): values[:, place] for name, values in per.items()},
        }
        for place in range(experts)
    ]
    expected = fuse(
        z, np.tile(base, (experts, 1)) if prior is None else prior, **({"target_prior": base} | of_all), **per
    )
    extra = {"opinion": case["scale"] * rng.normal(size=(n, classes))}
    first.update(**extra)
    for place, argument in enumerate(arguments):
        (first if place % 2 else second).update(**argument)
    second.merge(first)
    second.retract(**extra)
    assert second.count == experts
    _near(second.log_posterior(), expected, "of a state with merging and retracting")


def _near(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Log-posteriors agree as probabilities, and as logarithms relative to their size."""
    np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=1e-7, err_msg=f"fuse {what}")
    assert (np.isneginf(found) == np.isneginf(expected)).all(), f"fuse {what}: other classes are excluded"
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-7, atol=1e-7, err_msg=f"fuse {what}")


register(Fuzzer("fuse", "checks", draw_fusion, run_fusion, examples=150))


def draw_corruption(random: Random) -> dict[str, Any]:
    """Draw a set, a corruption and its level."""
    from consilience.corruption import corruption_names

    return {
        "set": random.choice(list(HARD_SETS)),
        "corruption": random.choice((None, *corruption_names())),
        "level": random.choice((0.0, 0.1, 1.0, 5.0, 10.0)),
        "probability": random.choice((0.0, 0.3, 1.0)),
        "clip": random.random() < 0.3,
        "seed": random.randrange(2**16),
    }


def run_corruption(case: dict[str, Any]) -> None:
    """The noise of a sample is the same whatever the batch, and its input is not changed."""
    from consilience import corrupt

    train, samples = samples_of(case["set"], "classification")
    rng = np.random.default_rng(case["seed"])
    given = {name: case[name] for name in ("corruption", "level", "probability", "clip")}

    def noisy(part: Any) -> Any:
        return corrupt(part, **given, reference=train, random_state=case["seed"])

    before = {name: np.array(samples[name]) for name in samples.names}
    whole = noisy(samples)
    for rows in (rng.permutation(len(samples)), rng.integers(0, len(samples), 7), np.array([3])):
        part = noisy(samples[rows])
        np.testing.assert_array_equal(part.present, whole.present[rows])
        for name in samples.names:
            there = part.present_in(name)
            assert_equal(part[name][there], np.asarray(whole[name])[rows][there], name)
    for name, values in before.items():
        assert_equal(np.asarray(samples[name]), values, name)
        if case["level"] == 0 or case["probability"] == 0:
            assert_equal(np.asarray(whole[name]), values, name)


def assert_equal(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    """Check that two arrays are equal; numbers are finite, and equal to 1e-6 of their size."""
    if found.dtype.kind == "f":
        assert np.isfinite(found).all(), f"{name} is not finite"
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
    else:
        np.testing.assert_array_equal(found, expected, err_msg=name)


register(Fuzzer("corrupt", "checks", draw_corruption, run_corruption, examples=60))
