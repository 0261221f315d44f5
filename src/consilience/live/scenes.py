"""The two scenes of the live page: a digit in four quadrants, and a machine with three sensors."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.samples import Samples
from consilience.live.graph_json import Block, graph_json
from consilience.live.shown_samples import shown_samples

METHODS = ("late", "qmf", "bayes", "bayes-robust")
CASES = 10
_SAMPLES, _TRAINED = 40, 700
_STATES = ("normal", "worn bearing", "leak", "overheating")


@dataclass(frozen=True)
class Scene:
    """What is shown, and what the models are trained on.

    Attributes:
        name: Of the tab.
        words: What it shows, in a sentence.
        kind: "quadrants" or "curves".
        labels: Modality → what it is called.
        classes: In the order of the labels of `y`.
        train, test: Samples; those of the page are the first test samples, one of which it shows first.
    """

    name: str
    words: str
    kind: str
    labels: Mapping[str, str]
    classes: tuple[str, ...]
    train: Samples
    test: Samples


def digits() -> Scene:
    """The built-in handwritten digits, seen as four quadrants."""
    from consilience.data import load_data

    data = load_data("digits")
    assert data.train.y is not None
    return Scene(
        "A digit in four quadrants",
        "Each quadrant of a handwritten digit is a modality with an expert of its own, which never sees the others.",
        "quadrants",
        {name: name.replace("_", " ") for name in data.train.names},
        tuple(str(label) for label in np.unique(data.train.y).tolist()),
        data.train[:_TRAINED],
        data.test,
    )


def machine(seed: int = 0) -> Scene:
    """A generated machine with three sensors; each state shows clearly in one or two of them only."""
    rng = np.random.default_rng(seed)
    bands, hours = np.linspace(0, 1, 12), np.linspace(0, 1, 6)

    def bump(places: np.ndarray, centre: float, width: float) -> np.ndarray:
        return np.exp(-0.5 * ((places - centre) / width) ** 2)

    n = _TRAINED + 300
    y = rng.integers(0, len(_STATES), size=n)
    strength = rng.uniform(0.5, 1.5, size=n)

    def shown(of: Mapping[int, float]) -> np.ndarray:
        return strength * np.array([of.get(state, 0.0) for state in range(len(_STATES))])[y]

    load = rng.normal(0, 0.35, size=n)  # of the machine; all sensors feel it
    signals = {
        "vibration": np.outer(shown({1: 1.5}), bump(bands, 0.7, 0.1))
        + np.outer(shown({3: 0.7}), bump(bands, 0.3, 0.15))
        + np.outer(1 + load, 1 - bands),
        "sound": np.outer(shown({2: 1.5}), bump(bands, 0.85, 0.1))
        + np.outer(shown({1: 0.7}), bump(bands, 0.6, 0.12))
        + np.outer(1 + load, bump(bands, 0.2, 0.25)),
        "temperature": np.outer(shown({3: 1.3, 1: 0.4}), hours) + np.outer(1 + load, 0.4 + 0.2 * hours),
    }
    noise = {"vibration": 0.35, "sound": 0.35, "temperature": 0.3}
    X = {name: (x + noise[name] * rng.normal(size=x.shape)).astype(np.float32) for name, x in signals.items()}
    whole = Samples.of(X, np.array(_STATES)[y])
    return Scene(
        "A machine with three sensors",
        "Vibration and sound in twelve frequency bands, and six readings of temperature, of a generated machine. Each "
        "state shows clearly in one or two of the sensors only.",
        "curves",
        {name: name for name in signals},
        tuple(sorted(_STATES)),
        whole[:_TRAINED],
        whole[_TRAINED:],
    )


def scene_json(
    scene: Scene, block: Block, methods: Sequence[str] = METHODS, *, epochs: int = 40, seed: int = 0
) -> dict[str, Any]:
    """Train the methods of a scene, and return everything that the page needs of it as JSON values.

    Args:
        scene: The scene.
        block: Where arrays are stored.
        methods: What is trained; `bayes-robust` is one of them, whose reliabilities the page shows.
        epochs: At most so many for each method.
        seed: Of the training and of the stored cases.

    Returns:
        The scene, its samples, a graph for each method, and stored cases: inputs with what Python returns for them.
    """
    from consilience.estimators import FusionClassifier

    encoders = {name: {"name": "mlp", "hidden": [32]} for name in scene.train.names}
    cases = _cases(scene, seed)
    models, graphs, answers = {}, {}, {}
    for name in methods:
        model = FusionClassifier(name, encoders=encoders, epochs=epochs, random_state=seed).fit(scene.train)
        if [str(label) for label in model.classes_.tolist()] != list(scene.classes):
            raise AssertionError(f"{name} was trained on the classes {model.classes_}")
        models[name] = model
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            model.export(path)
            graphs[name] = graph_json(path, block)
        answers[name] = {
            output: block.tensor(np.asarray(values, dtype=np.float64))
            for output, values in _answers(model, cases).items()
        }
    inputs = {name: block.tensor(np.asarray(cases[name], dtype=np.float32)) for name in cases.names}
    inputs["present"] = block.tensor(np.asarray(cases.present, dtype=bool))
    std = {name: scene.train[name].std(axis=0) for name in scene.train.names}
    return {
        "name": scene.name,
        "words": scene.words,
        "kind": scene.kind,
        "classes": list(scene.classes),
        "modalities": [
            {"name": name, "label": scene.labels[name], "std": _rounded(std[name])} for name in scene.train.names
        ],
        "ranges": {
            name: [float(scene.train[name].min()), float(scene.train[name].max())] for name in scene.train.names
        },
        **shown_samples(scene.test[:_SAMPLES], std, models, seed),
        "graphs": graphs,
        "cases": {"inputs": inputs, "outputs": answers},
    }


def _cases(scene: Scene, seed: int) -> Samples:
    """Test samples as a visitor may leave them: noisy, swapped and incomplete."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(scene.test), size=2 * CASES, replace=False)
    own, other = scene.test[rows[:CASES]], scene.test[rows[CASES:]]
    present = rng.random((CASES, len(own.names))) < 0.8
    present[:2] = True
    X = {}
    for name in own.names:
        level = rng.choice([0, 0.5, 2, 10], size=(CASES, 1))
        swapped = rng.random((CASES, 1)) < 0.2
        swapped[0], level[0] = False, 0
        values = np.where(swapped, other[name], own[name])
        values = values + level * scene.train[name].std(axis=0) * rng.normal(size=values.shape)
        X[name] = values.astype(np.float32)
    return Samples.of(X, own.y, present=present)


def _answers(model: Any, cases: Samples) -> dict[str, Any]:
    found = {"probabilities": model.predict_proba(cases), "trust": model.trust(cases)}
    reliability = model.full_prediction(cases).extra.get("reliability")
    return found if reliability is None else found | {"reliability": reliability}


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 4) for value in np.asarray(values).ravel()]
