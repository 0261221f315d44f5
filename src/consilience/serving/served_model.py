"""A saved model as the server uses it: which rows and tensors it reads, what it predicts, and its version."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, SavedModelError, listed, show, unknown_name
from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.encoders import EncoderChoice
from consilience.estimators import FusionClassifier, FusionRegressor, load
from consilience.serving.answers import Answer
from consilience.serving.joined_samples import join_samples
from consilience.serving.json_rows import RowLayout, check_row_count
from consilience.serving.refusals import Refusal, malformed
from consilience.serving.row_warnings import collecting
from consilience.serving.tensors import datatype_of
from consilience.training.model_folder import DESCRIPTION, published_model

# A sequence may be so many times as long as the longest of training: more could exhaust the memory.
TIMES_AS_LONG = 4
_LENGTHS = ".lengths"


class ServedModel:
    """A loaded `FusionClassifier` or `FusionRegressor`.

    Args:
        name: By which clients ask for it.
        path: Its folder, or the run folder of a comparison.
        coverage: Of sets and intervals.
        encoders: As for `consilience.load`.

    Attributes:
        version: A digest of the folder: of its description, which holds the digests of weights and experts.
        without_sets: Why it gives no sets or intervals; "" if it does.

    Raises:
        SavedModelError: The folder holds no such model, or changed while it was read.
    """

    def __init__(
        self, name: str, path: Path, coverage: float, encoders: Mapping[str, EncoderChoice] | None = None
    ) -> None:
        self.name, self.path, self.coverage = name, path, coverage
        self.version = version_of(path)
        model: Any = load(path, encoders=encoders)
        if not isinstance(model, FusionClassifier | FusionRegressor):
            raise SavedModelError(
                f"serve: {path} is a {type(model).__name__}; a FusionClassifier or FusionRegressor is served"
            )
        if version_of(path) != self.version:
            raise SavedModelError(f"serve: {path} changed while it was read: load it again")
        self.model = model
        self.known: Mapping[str, Modality] = model.model_.preparation.raw
        self.layout = RowLayout.of(model)
        self.classes: np.ndarray | None = getattr(model, "classes_", None)
        self.without_sets = self._why_without_sets()

    @property
    def calibrated(self) -> bool:
        """Whether it gives sets or intervals."""
        return not self.without_sets

    def _why_without_sets(self) -> str:
        """Why there are no sets or intervals; "" if there are."""
        if not hasattr(self.model, "calibration_"):
            return "the model has no calibration samples"
        score = "absolute" if self.classes is None else "aps"
        try:
            self.model.calibration_.quantiles(score, np.ones((1, len(self.known)), dtype=bool), self.coverage)
        except InputError as error:
            return str(error)
        return ""

    def read_rows(self, rows: list[dict[str, Any]]) -> tuple[Samples, tuple[str, ...]]:
        """Return the samples of rows that the layout has read, and what reading them warned of."""
        with collecting() as said:
            samples = self._check(self.model._observed(rows, None))
        return samples, tuple(said)

    def check_tensors(self, tensors: Mapping[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
        """Return named tensors as `read_tensors` takes them.

        Raises:
            Refusal: A name is unknown, a type or shape is not that of the modality, or there are too many rows.
        """
        checked: dict[str, np.ndarray] = {}
        for name, tensor in tensors.items():
            of = name.removesuffix(_LENGTHS)
            if name not in self.known and of in self.known and self.known[of].timed:
                if of not in tensors:
                    raise malformed(f"input {name!r} is given without {of!r}")
                checked[name] = tensor.reshape(-1)
            elif name not in self.known:
                raise Refusal(400, str(unknown_name("modality", name, self.known)))
            else:
                checked[name] = self._of_kind(self.known[name], tensor)
            check_row_count(len(checked[name]), most)
        if not checked:
            raise malformed(f"there are no inputs: give at least one of {', '.join(self.known)}")
        return checked

    def read_tensors(self, tensors: Mapping[str, np.ndarray]) -> Samples:
        """Return the samples of named tensors; a modality that is left out, or a row of NaN, is missing."""
        values = {name: tensor for name, tensor in tensors.items() if name in self.known}
        lengths = {name.removesuffix(_LENGTHS): tensor for name, tensor in tensors.items() if name not in self.known}
        kinds = {name: self.known[name].kind for name in values}
        return self._check(Samples.of(values, kinds=kinds, lengths=lengths or None))

    def _of_kind(self, modality: Modality, tensor: np.ndarray) -> np.ndarray:
        if modality.kind == "text":
            if tensor.dtype != object:
                raise malformed(f"modality {modality.name!r} is text: its datatype must be BYTES")
            if tensor.size != len(tensor):
                raise malformed(f"modality {modality.name!r} is text, of shape [n], got {list(tensor.shape)}")
            return np.array([text or None for text in tensor.ravel()], dtype=object)
        numbers = "iu" if modality.kind == "tokens" else "iuf"
        if tensor.dtype.kind not in numbers:
            allowed = "whole numbers" if modality.kind == "tokens" else "numbers"
            got = "BYTES" if tensor.dtype == object else datatype_of(tensor)
            raise malformed(f"modality {modality.name!r} holds {allowed}: its datatype cannot be {got}")
        if tensor.ndim != len(modality.shape) + 1:
            raise malformed(
                f"modality {modality.describe()} needs the shape {self._shape(modality)}, got {list(tensor.shape)}"
            )
        return tensor.astype(np.float32) if tensor.dtype == np.float16 else tensor

    def _shape(self, modality: Modality) -> list[int]:
        return [-1, *([-1, *modality.shape[1:]] if modality.timed else modality.shape)]

    def _check(self, samples: Samples) -> Samples:
        for name, modality in samples.modalities.items():
            known = self.known[name]
            fixed, wanted = (shape[1:] if known.timed else shape for shape in (modality.shape, known.shape))
            if modality.kind != known.kind or fixed != wanted:
                raise malformed(f"modality {known.describe()} is expected, got {modality.describe()}")
            if known.timed and modality.shape[0] > TIMES_AS_LONG * known.shape[0]:
                raise malformed(
                    f"modality {name!r} has {modality.shape[0]} time steps; at most {TIMES_AS_LONG * known.shape[0]}, "
                    f"{TIMES_AS_LONG} times those of training, are served"
                )
        self.model.model_.preparation.check(samples)
        return samples

    def predict(self, samples: Samples) -> Answer:
        """Return the predictions of samples that `read_rows` and `read_tensors` made."""
        prediction, sets = self.model.predict_with_sets(samples, self.coverage if self.calibrated else None)
        task = self.model.model_.task
        output = prediction.output
        trust = self.model.trust_of(prediction) if self.model.gives_weights_ else None
        return Answer(
            self.model.modalities_,
            task.decode(output.numpy()),
            prediction.extra["observed"],
            self.classes,
            output.double().softmax(dim=1).numpy() if task.classification else None,
            trust,
            sets,
            self.coverage,
        )

    def predict_together(self, parts: Sequence[Samples]) -> list[Answer | Exception]:
        """Return the answers to several requests, predicted as one batch; an error is that of its own request."""
        if len(parts) > 1:
            with suppress(Exception):  # some rows cannot be predicted: find out below which requests they are of
                joined = self.predict(join_samples(parts))
                ends = np.cumsum([len(part) for part in parts]).tolist()
                return [joined.rows(end - len(part), end) for part, end in zip(parts, ends)]
        answers: list[Answer | Exception] = []
        for part in parts:
            try:
                answers.append(self.predict(part))
            except Exception as error:
                answers.append(error)
        return answers

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the protocol: names, types and shapes of inputs and outputs."""
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": "consilience",
            "inputs": [
                {
                    "name": modality.name,
                    "datatype": {"text": "BYTES", "tokens": "INT64"}.get(modality.kind, "FP64"),
                    "shape": self._shape(modality),
                    "parameters": {"optional": True, "kind": modality.kind},
                }
                for modality in self.known.values()
            ],
            "outputs": self._outputs(),
            "parameters": {"columns": {name: list(columns) for name, columns in self.layout.columns.items()}}
            | ({} if self.classes is None else {"classes": self.classes.tolist()})
            | ({"coverage": self.coverage} if self.calibrated else {}),
        }

    @property
    def output_names(self) -> list[str]:
        """The outputs of an inference request."""
        return [each["name"] for each in self._outputs()]

    def _outputs(self) -> list[dict[str, Any]]:
        count, several = len(self.known), []
        if self.classes is None:
            targets = self.model.model_.task.outputs
            several = [] if self.model.model_.task.flat else [targets]
            named = {"value": ("FP64", several)}
        else:
            classes = len(self.classes)
            named = {"label": (datatype_of(self.classes), []), "probabilities": ("FP64", [classes])}
        if self.model.gives_weights_:
            named["trust"] = ("FP64", [count])
        if self.calibrated:
            named |= {"interval": ("FP64", [*several, 2])} if self.classes is None else {"set": ("BOOL", [classes])}
        return [{"name": name, "datatype": kind, "shape": [-1, *shape]} for name, (kind, shape) in named.items()]


def version_of(path: Path) -> str:
    """Return the version of the model in a folder: 12 hexadecimal digits of the digest of its description.

    Raises:
        SavedModelError: There is no model.
    """
    folder = published_model(path)
    try:
        return hashlib.sha256((folder / DESCRIPTION).read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise SavedModelError(f"serve: {path} is no saved model: {error.strerror or error}") from error


def check_version(model: ServedModel, version: str | None) -> None:
    """Raise a refusal if a version is asked for that is not the one that is served."""
    if version is not None and version != model.version:
        raise Refusal(404, f"model {model.name!r} has version {model.version}, not {show(version, 40)}")


def unknown_model(name: str, known: Sequence[str]) -> Refusal:
    """Return the refusal of a model that is not served."""
    if len(name) > 256:
        return Refusal(404, f"there is no such model; served: {listed(list(known))}")
    return Refusal(404, str(unknown_name("model", name, known)))
