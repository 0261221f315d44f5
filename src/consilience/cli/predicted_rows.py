"""The rows that `consilience predict` writes: predictions, guarantees, what decided, and the columns that are kept."""

from __future__ import annotations

import io
import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from consilience.core.errors import InputError
from consilience.core.files import atomic_file

if TYPE_CHECKING:
    import polars

    from consilience.core.samples import Samples

Format = Literal["csv", "parquet", "jsonl"]
_ENDINGS: dict[str, Format] = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def predictions(model: Any, samples: Samples) -> polars.DataFrame:
    """Return one row per sample: prediction, probability of each class, trust of each modality."""
    import polars

    found, task = model.full_prediction(samples), model.model_.task
    decided = task.decode(found.output.numpy())
    columns: dict[str, Any] = {}
    if decided.ndim == 1:
        columns["prediction"] = decided
    else:
        columns |= {f"prediction_{target}": column for target, column in enumerate(decided.T)}
    if task.classification:
        for name, column in zip(model.classes_.tolist(), found.output.double().softmax(dim=1).numpy().T):
            columns[f"probability_{name}"] = column
    if model.gives_weights_:
        for name, column in zip(model.modalities_, model.trust_of(found).T):
            columns[f"trust_{name}"] = column
    return polars.DataFrame(columns)


def guarantees(
    model: Any,
    samples: Samples,
    coverage: float | None = None,
    score: str | None = None,
    risk: float | None = None,
    confidence: float | None = None,
    allow_empty: bool = True,
) -> polars.DataFrame:
    """Return columns with a stated guarantee: set, or low and high, if a coverage is given; abstained, if a risk is."""
    import polars

    from consilience.evaluation import set_labels

    columns: dict[str, Any] = {}
    given: dict[str, Any] = {} if score is None else {"score": score}
    if coverage is not None:
        if not allow_empty:
            if not hasattr(model, "classes_"):
                raise InputError("predict: --no-empty-sets is for classes; this model predicts numbers")
            given["allow_empty"] = False
        found = model.predict_set(samples, coverage, **given)
        if hasattr(model, "classes_"):
            columns["set"] = ["|".join(map(str, labels)) for labels in set_labels(found, model.classes_)]
        elif found.ndim == 2:
            columns |= {"low": found[:, 0], "high": found[:, 1]}
        else:
            for target in range(found.shape[1]):
                columns |= {f"low_{target}": found[:, target, 0], f"high_{target}": found[:, target, 1]}
    if risk is not None:
        if not hasattr(model, "abstain"):
            raise InputError("predict: --abstain-risk is for classes; this model predicts numbers")
        columns["abstained"] = model.abstain(
            samples, risk, **({} if confidence is None else {"confidence": confidence})
        )
    return polars.DataFrame(columns)


def reasons(model: Any, samples: Samples) -> polars.DataFrame:
    """Return what each modality contributes to the probability of the prediction, or to the number, and words."""
    import polars

    from consilience.report.explanation_words import say_sample

    several = not hasattr(model, "classes_") and model.model_.task.outputs > 1
    if several:
        raise InputError("predict: --explain is for one target, this model predicts several; use consilience explain")
    found = model.explain(samples)
    columns: dict[str, Any] = {
        f"contribution_{name}": column for name, column in zip(found.modalities, found.contributions.values.T)
    }
    # The first sentence repeats the prediction; the set has columns of its own.
    plain = (replace(sample, prediction_set=None, set_absence="") for sample in found)
    columns["explanation"] = [" ".join(say_sample(sample)[1:]) for sample in plain]
    return polars.DataFrame(columns)


def beside(kept: polars.DataFrame | None, table: polars.DataFrame) -> polars.DataFrame:
    """Return the kept columns before those of the predictions.

    Raises:
        InputError: A kept column has the name of a column of predictions.
    """
    if kept is None:
        return table
    if twice := [name for name in kept.columns if name in table.columns]:
        raise InputError(
            f"predict: --keep {twice[0]}: the predictions have a column of this name too; rename it in the data"
        )
    return kept.hstack(table)


def output_format(path: Path | None, chosen: Format | None) -> Format:
    """Return the format of the output: what was chosen, else what the ending of the file says, else CSV.

    >>> output_format(Path("rows.jsonl"), None), output_format(None, None), output_format(Path("rows.txt"), "csv")
    ('jsonl', 'csv', 'csv')
    """
    if path is None:
        if chosen == "parquet":
            raise InputError("predict: --format parquet needs --out FILE.parquet: it is not text to print")
        return chosen or "csv"
    ending = _ENDINGS.get(path.suffix)
    if chosen is None and ending is None:
        raise InputError(f"predict: --out must end in {', '.join(_ENDINGS)}, or give --format; got {path.name!r}")
    if chosen is not None and ending not in (None, chosen):
        raise InputError(f"predict: --format {chosen} does not fit the ending of --out {path.name!r}")
    return chosen or ending or "csv"


class RowWriter:
    """Writes tables of rows one after another: to standard output at once, to a file that is there when all are.

    Use it as a context manager.
    """

    def __init__(self, path: Path | None, kind: Format):
        self.path, self.kind, self.rows = path, kind, 0
        self._tables: list[polars.DataFrame] = []
        self._opened = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> RowWriter:
        if self.path is not None:
            self._file = self._opened.enter_context(atomic_file(self.path))
        return self

    def __exit__(self, *error: Any) -> Any:
        if error[0] is not None:
            return self._opened.__exit__(*error)
        with self._opened:
            if self.kind == "parquet" and self._tables and self._file is not None:
                import polars

                polars.concat(_of_one_type(self._tables)).write_parquet(self._file)
        return None

    def write(self, table: polars.DataFrame) -> None:
        """Write rows; the first call decides the header of a CSV."""
        if self.kind == "parquet":
            self._tables.append(table)
        elif self.kind == "csv":
            self._put(table.write_csv(include_header=self.rows == 0).encode())  # in UTF-8, as in a file
        else:
            self._put(json_lines(table.iter_rows(named=True)))
        self.rows += len(table)

    def _put(self, content: bytes) -> None:
        if self._file is not None:
            self._file.write(content)
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def _of_one_type(tables: list[polars.DataFrame]) -> list[polars.DataFrame]:
    """Tables whose columns have the same types; a kept column whose type changes along a stream becomes strings."""
    import polars

    schema = tables[0].schema
    mixed = [name for name in schema if any(table.schema[name] != schema[name] for table in tables)]
    return [table.with_columns(polars.col(mixed).cast(polars.String)) for table in tables] if mixed else tables


def json_lines(rows: Any) -> bytes:
    r"""Return one JSON object per line; a number that is not finite, which JSON does not have, becomes null.

    >>> json_lines([{"prediction": "leak", "low": float("-inf")}])
    b'{"prediction": "leak", "low": null}\n'
    """
    text = io.StringIO()
    for row in rows:
        plain = {name: None if isinstance(cell, float) and not isfinite(cell) else cell for name, cell in row.items()}
        text.write(json.dumps(plain, ensure_ascii=False, default=str) + "\n")
    return text.getvalue().encode("utf-8", "backslashreplace")
