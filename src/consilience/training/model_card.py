"""The card of a saved model, README.md: what it was trained on, what was measured, its limits, and how to use it.

The first lines are metadata as the Hugging Face hub reads them, with a `model-index` of the measured metrics. All of it
is written from the description in `model.json`, and from results that are given; nothing that was not measured is said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.core.files import write_atomically
from consilience.core.plain_text import markdown_escape, one_line

_LISTED = 20  # classes and modalities that are named
# The parameters of estimators that change what is predicted.
_TOLD = (
    *("epochs", "batch_size", "lr", "layer_decay", "freeze", "optimizer", "weight_decay", "patience"),
    *("modality_dropout", "augment", "class_weight"),
    *("precision", "fill", "calibration", "refit", "random_state", "kappa", "reliability", "prior", "target_prior"),
    *("folds", "latent", "bound", "subsets", "subset_encoder"),
)
_NOT_MEASURED = (
    "No metrics were measured when this model was saved. `model.score(X, y)` measures it on samples that it was not "
    "trained on."
)


@dataclass(frozen=True)
class Result:
    """One measured metric. name: as in tables · low, high: the 95 % interval; None where there is none."""

    metric: str
    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Results:
    """Metrics on samples that the model was not trained on.

    Attributes:
        data: The name of the set.
        on: What was measured on what, in words.
        metrics: The metrics.
        sections: Further headings and sentences, in plain text.
    """

    data: str
    on: str
    metrics: tuple[Result, ...]
    sections: tuple[tuple[str, str], ...] = ()


def model_card(described: Mapping[str, Any], results: Results | None = None) -> str:
    """Return the card of a model.

    Args:
        described: What `model.json` says.
        results: What was measured.
    """
    about = _About(described)
    parts = [
        _metadata(about, results),
        f"# {_plain(about.title)}",
        f"A {_plain(about.estimator)} that consilience {_plain(described.get('version', ''))} trained and saved.",
        "## Data",
        *_data(about),
        "## Method",
        *_method(about),
        "## Measured",
        *(_measured(results) if results is not None and results.metrics else [_NOT_MEASURED]),
    ]
    for heading, sentence in () if results is None else results.sections:
        parts += [f"## {_plain(heading)}", _plain(sentence)]
    parts += ["## Limits", "\n".join(f"- {limit}" for limit in _limits(about)), "## Use", *_use(about)]
    return "\n\n".join(parts) + "\n"


def write_card(folder: Path, described: Mapping[str, Any], results: Results) -> bool:
    """Write the card of a saved model with results; returns whether it was another one before.

    A link is left as it is: it could lead out of the folder.
    """
    from consilience.training.model_folder import CARD

    path, text = folder / CARD, model_card(described, results)
    if path.is_symlink() or (path.is_file() and path.read_bytes() == text.encode()):
        return False
    write_atomically(path, text)
    return True


class _About:
    """What a description says, whichever estimator it is of."""

    def __init__(self, described: Mapping[str, Any]):
        extra = _mapping(described.get("extra"))
        parameters = described.get("parameters") or extra.get("parameters")
        self.parameters = _mapping(parameters)
        self.estimator = str(described.get("estimator") or extra.get("estimator") or "model")
        self.method = str(described.get("method") or self.parameters.get("objective") or self.estimator)
        self.settings = _mapping(described.get("settings"))
        self.encoders = _mapping(described.get("encoders"))
        self.recipe = _mapping(described.get("recipe"))
        self.fitted_on = _mapping(described.get("fitted_on"))
        self.trained_on = _mapping(extra.get("trained_on"))
        self.calibration = _mapping(described.get("calibration") or extra.get("calibration"))
        prepared = _mapping(described.get("preparation"))
        self.task = _mapping(prepared.get("task") or described.get("task"))
        listed = prepared.get("modalities")
        self.modalities: dict[str, str] = {
            str(each["modality"]): f"{each['raw']['kind']} {each['raw']['shape']}"
            for each in (listed if isinstance(listed, list) else [])
        } or {str(name): "" for name in described.get("modalities") or ()}
        self.data = str(self.trained_on.get("set") or self.recipe.get("data") or "")

    @property
    def title(self) -> str:
        return f"{self.method} on {self.data}" if self.data else self.method

    @property
    def kind(self) -> str:
        """The task as the hub names it."""
        of = {"classification": "tabular-classification", "regression": "tabular-regression"}
        return of.get(str(self.task.get("kind")), "other")


def _metadata(about: _About, results: Results | None) -> str:
    """YAML between lines of three dashes; strings in double quotes, which JSON writes as YAML reads them."""
    lines = ["---", "library_name: consilience", "tags:", "- multimodal", "- sensor-fusion"]
    lines += [f"- {_quoted(about.method)}"]
    if about.kind != "other":
        lines += [f"pipeline_tag: {about.kind}"]
    if results is not None and results.metrics:
        lines += ["model-index:", f"- name: {_quoted(about.title)}", "  results:"]
        lines += ["  - task:", f"      type: {about.kind}", "    dataset:"]
        lines += [f"      name: {_quoted(results.data)}", f"      type: {_quoted(results.data)}", "    metrics:"]
        for each in results.metrics:
            lines += [f"    - type: {_quoted(each.metric)}", f"      value: {_number(each.value)}"]
            lines += [f"      name: {_quoted(_interval(each.name, each))}"]
    return "\n".join([*lines, "---"])


def _data(about: _About) -> list[str]:
    lines = []
    if about.data:
        lines.append(f"Trained on {_plain(about.data)}.")
    classes = about.task.get("classes")
    if isinstance(classes, list):
        named = ", ".join(_plain(name) for name in classes[:_LISTED])
        more = f" and {len(classes) - _LISTED} more" if len(classes) > _LISTED else ""
        lines.append(f"It predicts one of {len(classes)} classes: {named}{more}.")
    elif about.task:
        count = about.task.get("outputs", 1)
        lines.append("It predicts a number." if count == 1 else f"It predicts {_plain(count)} numbers.")
    rows = about.trained_on.get("rows") or about.fitted_on.get("rows")
    if rows:
        held = about.fitted_on.get("validation")
        lines.append(
            f"It learned from {_plain(rows)} samples"
            + (f"; {_plain(held)} more decided when training stopped." if held else ".")
        )
    else:
        lines.append("The number of training samples was not recorded.")
    missing = _mapping(about.fitted_on.get("missing"))
    table = ["| modality | kind and shape | missing in training |", "|---|---|---|"]
    for name, shape in about.modalities.items():
        share = missing.get(name)
        said = f"{100 * share:.1f} %" if isinstance(share, int | float) else "not recorded"
        table.append(f"| {_plain(name)} | {_plain(shape)} | {said} |")
    return [" ".join(lines), "\n".join(table)]


def _method(about: _About) -> list[str]:
    chosen = {f"{about.method}: {name}": value for name, value in about.settings.items()}
    chosen |= {f"encoder of {name}": value for name, value in about.encoders.items()}
    chosen |= {name: about.parameters[name] for name in _TOLD if about.parameters.get(name) is not None}
    shown = [f"- {_plain(name)}: {_plain(_short(value))}" for name, value in chosen.items()]
    if not shown:
        return [f"Method {_plain(about.method)}."]
    return [f"Method {_plain(about.method)}, with these settings:", "\n".join(shown)]


def _measured(results: Results) -> list[str]:
    table = ["| metric | value | 95 % interval |", "|---|---:|---|"]
    for each in results.metrics:
        ends = "" if each.low is None or each.high is None else f"{each.low:.4g} to {each.high:.4g}"
        table.append(f"| {_plain(each.name)} | {each.value:.4g} | {ends} |")
    return [_plain(results.on), "\n".join(table)]


def _limits(about: _About) -> list[str]:
    limits = [
        "Metrics hold for samples like those it was measured on. Other machines, places or times were not tested.",
        "Training data may have left traces in the file: class names, names of columns, weights.",
    ]
    if about.kind == "tabular-classification":
        source = about.calibration.get("source")
        if source:
            limits.append(f"Prediction sets and abstention use calibration samples from {_plain(source)}.")
        else:
            limits.append("It has no calibration samples: prediction sets need `model.calibrate(X, y)` first.")
    missing = _mapping(about.fitted_on.get("missing"))
    complete = [name for name, share in missing.items() if share == 0]
    if len(missing) > 1 and complete:
        listed = ", ".join(_plain(name) for name in complete[:_LISTED])
        limits.append(
            f"These modalities were never missing in training: {listed}. It predicts without one all the same."
        )
    return limits


def _use(about: _About) -> list[str]:
    call = {
        "FusionClassifier": "model.predict_proba(X)",
        "FusionRegressor": "model.predict(X)",
        "BayesFusion": "model.predict_proba(opinions)",
        "MultimodalVAE": "model.encode(X)",
    }.get(about.estimator)
    if call is None:
        return ['`consilience.load("FOLDER")` loads it.']
    code = ["```python", "import consilience as cs", "", 'model = cs.load("FOLDER")', call, "```"]
    given = "A modality that is missing is left out, or its row is all NaN."
    if about.recipe and about.estimator.startswith("Fusion"):
        given += " `consilience predict FOLDER new.csv` predicts a table with the columns of the training data."
    return ["\n".join(code), given]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _plain(text: Any) -> str:
    return markdown_escape(one_line(text))


def _quoted(text: str) -> str:
    return json.dumps(one_line(text), ensure_ascii=False)


def _number(value: float) -> str:
    """A number as YAML reads it; JSON writes an exponent without a point, which YAML takes for text."""
    text = repr(float(f"{value:.6g}"))
    if not math.isfinite(value):
        return "null"
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


def _interval(name: str, result: Result) -> str:
    if result.low is None or result.high is None:
        return name
    return f"{name} (95 % interval {result.low:.4g} to {result.high:.4g})"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:199]}…"
