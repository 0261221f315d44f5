"""What goes on after fitting: `partial_fit`, prediction sets and abstaining, and monitors of streams.

An update counts rows in any order alike, and a row of weight two like two; saved and loaded it goes on alike; a
prediction in another thread is of the model before or after it. A set grows with its coverage and is that of the row
alone. A monitor knows the same after the rows at once, in pieces, and saved and loaded between them.
"""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.fuzzers import Fuzzer, register
from fuzz.mutations import damage, draw_damage, draw_edits, edited

N = 90
QUICK: dict[str, Any] = {"epochs": 1, "device": "cpu", "verbose": 0, "random_state": 0, "calibration": None}
TOLERANCE = 1e-5
CLASSES = np.array(["no", "perhaps", "yes"])


def stream(seed: int, rows: int, gain: float = 1.0, missing: float = 0.1) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Two modalities `[rows, 3]` of numbers that may be taken as opinions, some missing, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=rows)
    X = {name: gain * (2 * np.eye(3)[y] + rng.normal(size=(rows, 3))) for name in ("a", "b")}
    for values in X.values():
        values[rng.random(rows) < missing] = np.nan
    return X, CLASSES[y]


def present(X: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([~np.isnan(values).all(axis=1) for values in X.values()], axis=1)


MODELS: dict[str, Callable[[], Any]] = {}


def _fusion(**settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        from consilience import BayesFusion

        X, y = stream(0, N)
        return BayesFusion(**settings).fit(_filled(X), y, present(X))

    return make


def _trained(method: str) -> Callable[[], Any]:
    def make() -> Any:
        from consilience import FusionClassifier

        return FusionClassifier(method, **QUICK).fit(*stream(0, N))

    return make


MODELS = {
    **{f"opinions {name}": _fusion(calibration=name) for name in ("auto", "temperature", "robust", "bias")},
    "opinions none": _fusion(calibration=None, kappa="copula"),
    "opinions em": _fusion(target_prior="em", kappa="none"),
    "opinions graded": _fusion(reliability="graded"),
    "bayes": _trained("bayes"),
    "bayes-robust": _trained("bayes-robust"),
    "auto": _trained("auto"),
}
UNEQUAL = ("opinions em",)  # what depends on all rows that are predicted together


@cache
def fitted(name: str) -> Any:
    """A model, fitted and calibrated once in this process."""
    model = MODELS[name]()
    X, y = stream(1, N)
    return model.calibrate(*_asked(model, X)[:1], y, _asked(model, X)[1])


def _filled(X: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.nan_to_num(values) for name, values in X.items()}


def _asked(model: Any, X: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows as a model takes them: opinions hold no NaN."""
    return (_filled(X) if type(model).__name__ == "BayesFusion" else X), present(X)


def proba(model: Any, X: dict[str, np.ndarray]) -> np.ndarray:
    """Probabilities, which must be finite and sum to 1."""
    found = model.predict_proba(*_asked(model, X))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    return found


def updated(model: Any, X: dict[str, np.ndarray], y: np.ndarray, **given: Any) -> Any:
    """A copy of a model after `partial_fit`."""
    asked, there = _asked(model, X)
    return copy.deepcopy(model).partial_fit(asked, y, there, **given)


def of_rows(X: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in X.items()}


def in_any_order(model: Any, case: dict[str, Any], rng: np.random.Generator) -> None:
    (X, y), (test, _) = _new(case), stream(case["seed"] + 1, 20)
    order = rng.permutation(len(y))
    near(
        proba(updated(model, of_rows(X, order), y[order], **case["given"]), test),
        proba(updated(model, X, y, **case["given"]), test),
        case["given"].get("old_rows"),
    )


def weighed(model: Any, case: dict[str, Any], rng: np.random.Generator) -> None:
    """Whole weights, 0 among them, count like so many rows."""
    (X, y), (test, _) = _new(case), stream(case["seed"] + 1, 20)
    weight = rng.integers(0, 4, len(y))
    weight[0] = 1
    rows = np.repeat(np.arange(len(y)), weight)
    given = {"old_rows": 50.0} | case["given"]
    near(
        proba(updated(model, X, y, sample_weight=weight.astype(float), **given), test),
        proba(updated(model, of_rows(X, rows), y[rows], **given), test),
        given["old_rows"],
    )


def saved_between(model: Any, case: dict[str, Any], rng: np.random.Generator) -> None:
    import consilience as cs

    (X, y), (test, _) = _new(case), stream(case["seed"] + 1, 20)
    once = updated(model, X, y, **case["given"])
    with tempfile.TemporaryDirectory() as folder:
        again = cs.load(once.save(Path(folder) / "model"))
    assert again.evidence_ == once.evidence_
    near(proba(updated(again, X, y), test), proba(updated(once, X, y), test))


def beside_predictions(model: Any, case: dict[str, Any], rng: np.random.Generator) -> None:
    """Predictions of four threads are of the model before, or of one after."""
    (X, y), (test, _) = _new(case), stream(case["seed"] + 1, 20)
    live = copy.deepcopy(model)
    asked, there = _asked(live, X)
    states = [copy.deepcopy(live)]
    for _ in range(3):
        states.append(copy.deepcopy(states[-1]).partial_fit(asked, y, there, **case["given"]))
    allowed = [proba(state, test) for state in states]
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(proba, live, test) for _ in range(12)]
        for _ in range(3):
            live.partial_fit(asked, y, there, **case["given"])
            found += [pool.submit(proba, live, test) for _ in range(12)]
    for each in found:
        assert any(np.allclose(each.result(), one, atol=1e-9) for one in allowed), "a prediction is of no model"


def changed_back(model: Any, case: dict[str, Any], rng: np.random.Generator) -> None:
    """Old evidence of a great many rows outweighs what is new."""
    (X, y), (test, _) = _new(case), stream(case["seed"] + 1, 20)
    np.testing.assert_allclose(proba(updated(model, X, y, old_rows=1e12), test), proba(model, test), atol=0.02)


def _new(case: dict[str, Any]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    X, y = stream(case["seed"], case["rows"], case["gain"], case["missing"])
    return X, np.full(len(y), y[0]) if case["one class"] else y


RELATIONS = {each.__name__: each for each in (in_any_order, weighed, saved_between, beside_predictions, changed_back)}


def near(found: np.ndarray, expected: np.ndarray, old_rows: float | None = None) -> None:
    """Temperatures are found by a search, so that answers agree to a few digits.

    They agree to fewer where few new rows decide alone: their loss is flat far away from its start.
    """
    np.testing.assert_allclose(found, expected, atol=2e-3 if old_rows is None or old_rows >= 1 else 0.05)


def draw(random: Random) -> dict[str, Any]:
    """Draw a model, later rows, and what must hold of them."""
    return {
        "model": random.choice(list(MODELS)),
        "relation": random.choice(list(RELATIONS)),
        "rows": random.choice((1, 2, 5, 40, 200)),
        "gain": random.choice((1.0, 0.0, 5.0, 1e-3, 300.0)),
        "missing": random.choice((0.0, 0.2, 1.0)),
        "one class": random.random() < 0.2,
        "given": random.choice(({}, {}, {"old_rows": 0}, {"old_rows": 1e-9}, {"old_rows": 10}, {"old_rows": 1e9})),
        "seed": random.randrange(2, 2**16),
    }


def run(case: dict[str, Any]) -> None:
    """Check one relation."""
    RELATIONS[case["relation"]](fitted(case["model"]), case, np.random.default_rng(case["seed"]))


register(Fuzzer("partial_fit", "checks", draw, run, seconds=120, examples=40))


def draw_sets(random: Random) -> dict[str, Any]:
    """Draw a model, shares, and rows."""
    return {
        "model": random.choice([name for name in MODELS if name not in UNEQUAL]),
        "coverage": random.choice((1e-9, 0.3, 0.8, 0.95, 1 - 1e-12, random.random() * 0.98 + 0.01)),
        "wider": random.choice((1.0, 1.01, 1.2)),
        "score": random.choice(("aps", "raps", "lac")),
        "allow_empty": random.random() < 0.5,
        "rows": random.choice((1, 2, 30)),
        "missing": random.choice((0.0, 0.3, 1.0)),
        "risk": random.choice((1e-9, 0.05, 0.3, 0.9)),
        "seed": random.randrange(2, 2**16),
    }


def run_sets(case: dict[str, Any]) -> None:
    """Sets of all rows are those of each alone, grow with the coverage, and hold a class where they must."""
    model = fitted(case["model"])
    X, _ = stream(case["seed"], case["rows"], missing=case["missing"])
    asked, there = _asked(model, X)
    given = {"score": case["score"], "allow_empty": case["allow_empty"]}
    wide = min(case["coverage"] * case["wider"], 1 - 1e-15)
    sets = model.predict_set(asked, case["coverage"], present=there, **given)
    assert sets.dtype == bool
    assert sets.shape == (case["rows"], 3)
    # More coverage may need calibration samples of another group, whose thresholds cannot be compared.
    some = np.flatnonzero(there.any(axis=1))
    groups = zip(*(model.calibration_.groups(there[some], share) for share in (case["coverage"], wide)), strict=True)
    same = some[[np.array_equal(one.rows, other.rows) and one.rule == other.rule for one, other in groups]]
    wider = model.predict_set(asked, wide, present=there, **given)
    assert (sets[same] <= wider[same]).all(), "a set shrinks with more coverage"
    assert case["allow_empty"] or sets.any(axis=1).all()
    assert sets[~there.any(axis=1)].all(), "without any modality, the set has all classes"
    for row in range(min(case["rows"], 4)):
        one = np.array([row])
        alone = model.predict_set(of_rows(asked, one), case["coverage"], present=there[one], **given)
        assert (alone == sets[one]).all(), "a set depends on the other rows"
    decided = model.abstain(asked, case["risk"], present=there)
    assert len(decided) == case["rows"]


register(Fuzzer("prediction sets", "checks", draw_sets, run_sets, seconds=120, examples=40))


@cache
def _numbers() -> Any:
    from consilience import FusionRegressor

    X, y = stream(0, N)
    numbers = np.searchsorted(CLASSES, y) + 0.5
    return FusionRegressor("late", **QUICK).fit(X, numbers)


def watched(name: str) -> Any:
    return _numbers() if name == "numbers" else fitted(name)


def draw_streams(random: Random) -> dict[str, Any]:
    """Draw a model, a stream with a change, where it is cut, and what is changed in a saved state."""
    case: dict[str, Any] = {
        "model": random.choice([*(name for name in MODELS if name not in UNEQUAL), "numbers"]),
        "gain": random.choice((1.0, 0.0, 10.0, 1e6)),
        "missing": random.choice((0.0, 0.5, 1.0)),
        "cuts": sorted(random.randrange(1, 60) for _ in range(random.choice((0, 1, 3)))),
        "reset": random.random() < 0.3,
        "seed": random.randrange(2, 2**16),
        "false_alarms": random.choice((0.01, 0.5, 1e-12, 0.999)),
        "window": random.choice((1, 7, 200)),
    }
    if random.random() < 0.5:
        case |= {"edits": draw_edits(random)} if random.random() < 0.8 else {"damage": draw_damage(random)}
    return case


def run_streams(case: dict[str, Any]) -> None:
    """Watch a stream at once and in pieces; a changed state is refused, or goes on with finite numbers."""
    from consilience import Monitor

    model = watched(case["model"])
    reference, before, after = (stream(case["seed"] + n, 30) for n in range(3))
    after = stream(case["seed"] + 3, 30, case["gain"], case["missing"])
    X = {name: np.concatenate([before[0][name], after[0][name]]) for name in before[0]}
    made = {"false_alarms": case["false_alarms"], "window": case["window"]}
    asked, there = _asked(model, reference[0])
    whole, pieces = (Monitor(model, asked, present=there, **made) for _ in range(2))
    asked, there = _asked(model, X)
    times = [f"t{n}" for n in range(60)]
    state = whole.update(asked, times=times, present=there)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        for rows in np.split(np.arange(60), case["cuts"]):
            if len(rows):
                pieces.update(of_rows(asked, rows), times=[times[row] for row in rows], present=there[rows])
                pieces = Monitor.load(pieces.save(path), model)
        assert _words(pieces.alarms) == _words(whole.alarms), "the pieces of a stream have other alarms"
        _check_state(state)
        _check_state(pieces.state)
        for one, other in zip(pieces.state.quantities, whole.state.quantities, strict=True):
            assert math.isclose(one.evidence, other.evidence, rel_tol=1e-6, abs_tol=1e-6), one
        if case["reset"]:
            whole.reset()
            assert not any(each.alarm for each in whole.state.quantities)
        content = path.read_bytes()
        if "edits" in case:
            path.write_text(json.dumps(edited(json.loads(content), case["edits"])))
        elif "damage" in case:
            path.write_bytes(damage(content, case["damage"]))
        else:
            return
        found = Monitor.load(path, model)
        _check_state(found.update(asked, present=there))
        found.class_shares()
        found.save(path)


def _words(alarms: list[Any]) -> list[Any]:
    return [(alarm.quantity, alarm.row, alarm.since, alarm.time, alarm.describe()) for alarm in alarms]


def _check_state(state: Any) -> None:
    """Evidence is a number; means are numbers, or unknown."""
    for each in state.quantities:
        assert math.isfinite(each.evidence), each
        assert not math.isinf(each.recent), each
    for alarm in state.alarms:
        assert "\n" not in alarm.describe()


register(Fuzzer("monitors", "streams", draw_streams, run_streams, seconds=120, examples=30))
