"""What an exported method must do: onnxruntime gives our numbers on real samples, with any modalities missing."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import UnsupportedError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.evaluation.trust import trust_from_weights
from consilience.exporting.export import export_model
from consilience.training import Model
from contracts.contract import fitted, small, some_missing

# Method → a part of the reason why it cannot be exported.
NOT_EXPORTED: dict[str, str] = {}
# Those of the fast tests: opinions, and recurrent networks over images and texts.
FAST = ("late", "lf-lstm")


def exports(name: str, kind: str, data: DataSet) -> None:
    """onnxruntime returns what the model predicts, to 1e-5, or the export is refused with a reason."""
    import onnxruntime

    _, test = small(data)
    test = test[:40]
    model = fitted(name, kind, data)
    weighs = model.predict(test[:1], device="cpu").weights is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if name in NOT_EXPORTED:
            with pytest.raises(UnsupportedError, match=NOT_EXPORTED[name]):
                export_model(model, path, gives_weights=weighs)
            assert not path.exists()
            return
        export_model(model, path, gives_weights=weighs)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    described = json.loads(session.get_modelmeta().custom_metadata_map["consilience"])
    hidden = some_missing(test, share=0.5, seed=3)
    nothing = hidden.present.copy()
    nothing[0] = False
    for samples in (test, hidden.replaced({}, present=nothing), hidden[:1], test.only(test.names[-1:])):
        outputs = session.run(described["outputs"], feed_of(samples, described))
        found = dict(zip(described["outputs"], outputs))
        for output, expected in our_numbers(model, samples).items():
            np.testing.assert_allclose(found[output], expected, rtol=1e-5, atol=1e-5, err_msg=f"{name}: {output}")


def our_numbers(model: Model, samples: Samples) -> dict[str, np.ndarray]:
    prediction = model.predict(samples, device="cpu")
    output = prediction.output.double()
    if model.task.classification:
        numbers = {"probabilities": output.softmax(dim=1).numpy()}
    else:
        numbers = {"numbers": model.task.decode(output.numpy()).reshape(output.shape)}
    if prediction.weights is not None:
        present = samples.present_among(tuple(model.preparation.raw))
        numbers["trust"] = trust_from_weights(prediction.weights.double().numpy(), present)
    if "reliability" in prediction.extra:
        numbers["reliability"] = prediction.extra["reliability"].numpy()
    return numbers


def feed_of(samples: Samples, described: dict[str, Any]) -> dict[str, np.ndarray]:
    """Samples as a user without this library would give them, from what the metadata say; no mask."""
    return {own["name"]: values_of(samples, own) for own in described["inputs"] if own["name"] in samples.names}


def values_of(samples: Samples, own: dict[str, Any]) -> np.ndarray:
    name = own["name"]
    values, there = samples[name], samples.present_in(name)
    steps = next((size for size in own["shape"][1:] if isinstance(size, int)), None)
    if own["holds"] == "token ids":
        rows = values.tolist()
        if "words" in own:
            number = {word: place + own["first id"] for place, word in enumerate(own["words"])}
            split = [re.findall(own["pattern"], (text or "").lower()) for text in rows]
            rows = [[number.get(word, own["unknown id"]) for word in words] for words in split]
        else:
            rows = [row[:length] for row, length in zip(rows, samples.lengths[name])]
        longest = steps or max(map(len, rows))
        return np.array(
            [[*row, *[-1] * (longest - len(row))] if has else [-1] * longest for row, has in zip(rows, there)],
            dtype=np.int64,
        )
    values = np.array(values, dtype=own["type"])
    if name in samples.lengths:
        values[np.arange(values.shape[1]) >= samples.lengths[name][:, None]] = np.nan
        if isinstance(own["shape"][1], int) and own["shape"][1] > values.shape[1]:
            longer = np.full((len(values), own["shape"][1] - values.shape[1], values.shape[2]), np.nan, values.dtype)
            values = np.concatenate([values, longer], axis=1)
    values[~there] = np.nan
    return values
