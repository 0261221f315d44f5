"""Does an exported model give our numbers? On random rows, with any modality absent, in batches of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from consilience.core.errors import OperationError
from consilience.core.samples import Samples
from consilience.evaluation.trust import trust_from_weights
from consilience.exporting.example_rows import Rows
from consilience.training import Model

# The largest difference in a probability or a trust; of numbers it counts in standard deviations of the targets.
TOLERANCE = 1e-5
_BATCHES = (1, 2, 7)
Outputs = Mapping[str, np.ndarray]


def our_outputs(model: Model, samples: Samples, gives_weights: bool) -> dict[str, np.ndarray]:
    """What a model predicts, under the names of the outputs of an exported one."""
    prediction = model.predict(samples, device="cpu")
    task, output = model.task, prediction.output.double()
    found: dict[str, np.ndarray] = {}
    if task.classification:
        found["probabilities"] = output.softmax(dim=1).numpy()
    else:
        found["numbers"] = task.decode(output.numpy()).reshape(output.shape)
        if "variance" in prediction.extra:
            assert task.scale is not None
            found["variance"] = prediction.extra["variance"].double().numpy() * np.square(task.scale)
    if gives_weights:
        assert prediction.weights is not None
        present = samples.present_among(tuple(model.preparation.raw))
        found["trust"] = trust_from_weights(prediction.weights.double().numpy(), present)
    if "reliability" in prediction.extra:
        found["reliability"] = prediction.extra["reliability"].double().numpy()
    return found


def check(
    name: str,
    run: Callable[[Rows], Outputs],
    rows: Rows,
    expected: Outputs,
    units: Mapping[str, np.ndarray],
    judge: str,
) -> float:
    """Compare what an exported model returns for all rows, and for batches of a few, with what is expected.

    Args:
        name: Of the method, for messages.
        run: Runs the exported model.
        rows: What it reads.
        expected: Our outputs for these rows.
        units: Output → what a difference of 1 is measured in, for those that are not shares.
        judge: What runs the exported model.

    Returns:
        The largest difference.

    Raises:
        OperationError: If a difference is larger than 1e-5.
    """
    largest = 0.0
    starts = [(0, len(rows))]
    for size in _BATCHES:
        starts += [(at, min(at + size, len(rows))) for at in range(0, min(len(rows), 3 * size), size)]
    for start, stop in starts:
        part = rows.part(start, stop)
        found = run(part)
        for output, wanted in expected.items():
            given = np.asarray(found[output], dtype=np.float64)
            away = np.abs(given - wanted[start:stop]) / units.get(output, 1.0)
            worst = float(np.where(np.isfinite(given), away, np.inf).max(initial=0.0))
            largest = max(largest, worst)
            if worst > TOLERANCE:
                row = int(np.argmax(away.max(axis=1)))
                raise OperationError(
                    f"export: the exported {name!r} differs from the model by {worst:.2g} in {output} in a batch of "
                    f"{stop - start} rows, with the modalities {_named(part.present[row])} of a row present ({judge}); "
                    f"at most {TOLERANCE:g} is allowed, so nothing was written"
                )
    return largest


def _named(present: np.ndarray) -> str:
    return "".join("1" if there else "0" for there in present)
