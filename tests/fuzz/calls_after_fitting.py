"""More public calls: exports, updates, monitors, balanced and augmented training, each with a valid call."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import consilience as cs
from fuzz.public_calls import LOGITS, PRESENT, QUICK, WEIGHT, Door, Y, fitted, modalities

TWICE = {name: [*values, *values] for name, values in LOGITS.items()}  # a reference has at least twenty rows


@cache
def experts() -> Any:
    """A trained method whose experts are joined by a rule."""
    return cs.FusionClassifier("bayes", **QUICK).fit(modalities(), Y)


@cache
def _monitor() -> Any:
    return cs.Monitor(fitted("bayes"), TWICE)


def monitor() -> Any:
    """A monitor of a fusion of opinions, new for each call."""
    return copy.deepcopy(_monitor())


@cache
def state() -> str:
    """The saved state of a monitor."""
    import tempfile

    return str(_monitor().save(f"{tempfile.mkdtemp(prefix='fuzz-state-')}/monitor.json"))


def _updated(model: Any, X: Any, given: dict[str, Any]) -> Any:
    return copy.deepcopy(model).partial_fit(**given).predict_proba(X)


def _trained(name: str, **valid: Any) -> Door:
    """A training with some settings, and its predictions."""
    method = "concat"
    return Door(
        f"FusionClassifier({name})",
        lambda **given: cs.FusionClassifier(method, **QUICK, **given).fit(modalities(), Y).predict_proba(modalities()),
        lambda: dict(valid),
    )


def _later() -> dict[str, Any]:
    return {"y": Y.copy(), "present": PRESENT.copy(), "sample_weight": WEIGHT.copy(), "old_rows": 5.0}


DOORS: tuple[Door, ...] = (
    Door(
        "classifier.export",
        lambda **given: fitted("classifier").export(**given).name,
        lambda: {"path": "model.pt2", "format": None},
        slow=True,
    ),
    Door(
        "bayes.partial_fit",
        lambda **given: _updated(fitted("bayes"), LOGITS, given),
        lambda: {"X": {name: values.copy() for name, values in LOGITS.items()}, **_later()},
    ),
    Door(
        "classifier(bayes).partial_fit",
        lambda **given: _updated(experts(), modalities(), given),
        lambda: {"X": modalities(), **_later()},
    ),
    *(
        Door(
            f"calibrated {kind}.predict_with_sets",
            lambda kind=kind, **given: fitted(f"calibrated {kind}").predict_with_sets(**given)[0].output,
            lambda: {"X": modalities(), "coverage": 0.5, "present": PRESENT.copy()},
        )
        for kind in ("classifier", "regressor")
    ),
    Door(
        "calibrated classifier.predict_set(lac)",
        lambda **given: fitted("calibrated classifier").predict_set(modalities(), **given),
        lambda: {"coverage": 0.5, "score": "lac", "allow_empty": False},
    ),
    Door(
        "Monitor()",
        lambda **given: cs.Monitor(**given).state.rows,
        lambda: {
            "model": fitted("bayes"),
            "reference": {name: list(values) for name, values in TWICE.items()},
            "present": None,
            "false_alarms": 0.1,
            "window": 5,
            "random_state": 0,
        },
    ),
    Door(
        "Monitor.update",
        lambda **given: monitor().update(**given).rows,
        lambda: {
            "rows": {name: values.copy() for name, values in LOGITS.items()},
            "times": list("abcdefghijkl"),
            "present": PRESENT.copy(),
        },
    ),
    Door("Monitor.reset", lambda **given: monitor().reset(**given), lambda: {"quantity": "absence of a"}),
    Door("Monitor.save", lambda **given: monitor().save(**given).name, lambda: {"path": "monitor.json"}),
    Door(
        "Monitor.load",
        lambda **given: cs.Monitor.load(**given).rows,
        lambda: {"path": state(), "model": fitted("bayes")},
    ),
    _trained("balance", balance="ogm-ge", balance_strength=0.5),
    _trained("augment", augment={"a": ["gaussian:0..1@0.5"], "b": "missing:10@0.2"}),
    _trained("augment by text", augment=["gaussian:0..1", "a=swapped:10@0.1", "b=none"]),
    _trained("impute", impute={"latent": 2}),
)
