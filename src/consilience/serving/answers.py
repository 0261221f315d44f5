"""What the server answers: the predictions of some rows, in plain JSON and as tensors of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.core.errors import unknown_name
from consilience.serving.refusals import Refusal, malformed, read_flag


@dataclass(frozen=True)
class Answer:
    """Predictions of some rows.

    Attributes:
        modalities: Their names.
        decided: Labels `[n]`, or numbers `[n]` or `[n, target]`.
        observed: Which modalities the rows have, `[n, modality]`.
        classes: The labels, in the order of the columns of probabilities; None for numbers.
        probabilities: `[n, class]`, or None for numbers.
        trust: `[n, modality]`, or None if the method does not weigh its modalities.
        sets: Booleans `[n, class]`, or intervals `[n, 2]` or `[n, target, 2]`; None if the model is not calibrated.
        coverage: The probability with which sets and intervals hold the truth.
        warnings: What reading the rows warned of.
    """

    modalities: tuple[str, ...]
    decided: np.ndarray
    observed: np.ndarray
    classes: np.ndarray | None
    probabilities: np.ndarray | None
    trust: np.ndarray | None
    sets: np.ndarray | None
    coverage: float
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.decided)

    def rows(self, start: int, stop: int) -> Answer:
        """Return the answer for some of the rows."""
        part = slice(start, stop)
        cut = {
            name: None if (values := getattr(self, name)) is None else values[part]
            for name in ("decided", "observed", "probabilities", "trust", "sets")
        }
        return replace(self, **cut)  # type: ignore[arg-type]

    def warning(self, said: Sequence[str]) -> Answer:
        """Return the answer with warnings."""
        return replace(self, warnings=tuple(said))

    def as_json(self) -> dict[str, Any]:
        """Return `predictions`, one object for each row, and what holds for all of them."""
        found: dict[str, Any] = {"predictions": [self._row(n) for n in range(len(self))]}
        if self.sets is not None:
            found["coverage"] = self.coverage
        if self.warnings:
            found["warnings"] = list(self.warnings)
        return found

    def _row(self, n: int) -> dict[str, Any]:
        row: dict[str, Any]
        if self.classes is None:
            row = {"value": self.decided[n].tolist()}
        else:
            assert self.probabilities is not None
            names = [str(label) for label in self.classes.tolist()]
            row = {"label": self.decided[n : n + 1].tolist()[0]}
            row["probabilities"] = dict(zip(names, self.probabilities[n].tolist()))
        if self.trust is not None:
            row["trust"] = dict(zip(self.modalities, self.trust[n].tolist()))
        if self.sets is not None:
            if self.classes is None:
                row["interval"] = self.sets[n].tolist()
            else:
                row["set"] = self.classes[self.sets[n]].tolist()
        if absent := [name for name, there in zip(self.modalities, self.observed[n]) if not there]:
            row["missing"] = absent
        return row

    def tensors(self) -> dict[str, np.ndarray]:
        """Return name → tensor, in the order of `output_names`."""
        named: dict[str, np.ndarray | None]
        if self.classes is None:
            named = {"value": self.decided, "trust": self.trust, "interval": self.sets}
        else:
            named = {
                "label": self.decided,
                "probabilities": self.probabilities,
                "trust": self.trust,
                "set": self.sets,
            }
        return {name: values for name, values in named.items() if values is not None}


def chosen_outputs(asked: Any, known: Sequence[str], binary: bool) -> dict[str, bool]:
    """Return the outputs that an inference request asks for → whether as binary data.

    Args:
        asked: `outputs` of the request; None or empty: all of them.
        known: The outputs of the model.
        binary: What holds for an output that does not say.
    """
    if asked is None or asked == []:
        return dict.fromkeys(known, binary)
    if not isinstance(asked, list) or not all(isinstance(each, Mapping) for each in asked):
        raise malformed("outputs must be a list of objects with a name")
    chosen: dict[str, bool] = {}
    for each in asked:
        name, parameters = each.get("name"), each.get("parameters") or {}
        if not isinstance(name, str) or len(name) > 256 or name not in known:
            raise Refusal(400, str(unknown_name("output", name if len(str(name)) <= 256 else "…", known)))
        if name in chosen:
            raise malformed(f"output {name!r} is asked for twice")
        if not isinstance(parameters, Mapping):
            raise malformed(f"output {name!r}: parameters must be an object")
        if parameters.get("classification"):
            raise malformed(f"output {name!r}: the classification extension is not supported: read probabilities")
        chosen[name] = read_flag(f"output {name!r}: ", parameters, "binary_data", binary)
    return chosen
