"""MLflow: models saved, logged, loaded and served in a flavor of our own, and logged comparisons.

A model of a table is served with the columns of that table, any other model with one column for each modality.

Needs `pip install 'consilience[mlflow]'`; serving needs the whole of `mlflow`.
Import it as `import consilience.mlflow`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, listed
from consilience.data.files.column_encoding import Encoding
from consilience.data.loading import recipe_columns
from consilience.estimators.load_model import load
from consilience.version import __version__

if TYPE_CHECKING:
    from consilience.comparison import Comparison

FLAVOR, DATA = "consilience", "model"
_LOADER = "consilience.mlflow"


def save_model(
    model: Any,
    path: str | Path,
    *,
    mlflow_model: Any = None,
    signature: Any = None,
    pip_requirements: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
    **_: Any,
) -> None:
    """Save a model as a folder that MLflow reads.

    Args:
        model: A fitted `FusionClassifier`, `FusionRegressor` or `BayesFusion`. A table with paths of files is refused.
        path: The folder, which must not exist.
        mlflow_model: The description to complete, where MLflow calls this.
        signature: Of the inputs; by default `signature_of(model)`.
        pip_requirements: What a server must install; by default this version of consilience.
        metadata: For the description.
    """
    mlflow = _import_mlflow()
    from mlflow.models import Model
    from mlflow.utils.environment import _PythonEnv

    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"mlflow: {folder} exists and is not empty; choose another folder")
    _column_types(model)  # a model that cannot be served is refused whatever its signature
    described = Model() if mlflow_model is None else mlflow_model
    described.signature = signature or signature_of(model)
    if metadata is not None:
        described.metadata = metadata
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / DATA)
    described.add_flavor(FLAVOR, consilience_version=__version__, data=DATA)
    environment = {"virtualenv": "python_env.yaml"}
    mlflow.pyfunc.add_to_model(described, loader_module=_LOADER, data=DATA, python_env=environment)
    _PythonEnv.current().to_yaml(str(folder / "python_env.yaml"))
    needed = [f"consilience=={__version__}", "pandas"] if pip_requirements is None else pip_requirements
    (folder / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
    described.save(str(folder / "MLmodel"))


def log_model(model: Any, name: str = "model", **further: Any) -> Any:
    """Log a model to the active run of MLflow, and return what `mlflow.models.Model.log` returns.

    Args:
        model: As for `save_model`.
        name: Of the logged model.
        further: `registered_model_name=` and others of `Model.log`, and those of `save_model`.
    """
    _import_mlflow()
    from mlflow.models import Model

    return Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **further)


def load_model(model_uri: str, dst_path: str | None = None, **given: Any) -> Any:
    """Load a model that `log_model` or `save_model` wrote, as `consilience.load` does.

    Args:
        model_uri: A folder, `runs:/…` or `models:/…`.
        dst_path: Where a model from elsewhere is copied to.
        given: `encoders=`, `trusted=` and others of `consilience.load`.
    """
    _import_mlflow()
    from mlflow.tracking.artifact_utils import _download_artifact_from_uri

    folder = Path(_download_artifact_from_uri(artifact_uri=model_uri, output_path=dst_path))
    return load(folder / DATA, **given)


def signature_of(model: Any) -> Any:
    """Return the signature, in which every input is optional.

    The inputs of a model of a table are the columns that training read: numbers, strings and times, without the target.
    Those of any other model are a column for each modality, with a list of numbers or a text in each row.
    """
    _import_mlflow()
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    types = _column_types(model) or {name: _nested_type(size) for name, size in _dimensions(model).items()}
    inputs: list[Any] = [ColSpec(kind, name, required=False) for name, kind in types.items()]
    outputs: list[Any] = [ColSpec(DataType.string if _has_texts(model) else _number_type(model), "prediction")]
    if hasattr(model, "classes_"):
        outputs += [ColSpec(DataType.double, f"probability_{label}") for label in model.classes_.tolist()]
    outputs += [ColSpec(DataType.double, f"trust_{name}") for name in _trusted(model)]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def log_comparison(
    comparison: Comparison, experiment: str = "consilience", tracking_uri: str | None = None
) -> list[str]:
    """Log a finished comparison to MLflow: a run for each set and method, the report with the chosen one.

    Parameters are the method and its settings. Metrics on test samples are means over seeds, such as `clean/accuracy`
    and `gaussian 5/accuracy`; the ends of their 95 % intervals over seeds have the endings `.low` and `.high`.

    Args:
        comparison: What `compare` returned.
        experiment: Name of the experiment; it is created if it does not exist.
        tracking_uri: Where MLflow keeps its data. None: as MLflow is configured.

    Returns:
        The ids of the runs.
    """
    _import_mlflow()
    from mlflow import MlflowClient

    from consilience.comparison.modality_contributions import mean_and_interval

    client, findings = MlflowClient(tracking_uri), comparison.findings
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment)
    runs = []
    for (data_set, method), rows in findings.values.group_by("set", "method", maintain_order=True):
        choice = findings.choices.get(str(data_set))
        chosen = choice is not None and choice.method == method
        run = client.create_run(place, run_name=f"{data_set} {method}", tags={"chosen": str(chosen)}).info.run_id
        parameters = {"set": data_set, "method": method, "seeds": rows["seed"].n_unique()}
        own = _mapping(findings.settings.get("settings")).get(str(method))
        for name, value in {**parameters, **_mapping(own)}.items():
            client.log_param(run, _key(name), value)
        first = rows["corruption"][0]
        for (corruption, level, metric), each in rows.group_by("corruption", "level", "metric", maintain_order=True):
            if level == 0 and corruption != first:
                continue  # the clean set stands under every corruption
            key = _key(f"clean/{metric}" if level == 0 else f"{corruption} {level:g}/{metric}")
            mean, _, half = mean_and_interval(each["value"], [None] * len(each))
            client.log_metric(run, key, mean)
            if np.isfinite(half):
                client.log_metric(run, f"{key}.low", mean - half)
                client.log_metric(run, f"{key}.high", mean + half)
        if chosen:
            report = comparison.folder / "report.html"
            client.log_artifact(run, str(report if report.is_file() else comparison.report()))
        client.set_terminated(run)
        runs.append(run)
    return runs


def _load_pyfunc(path: str) -> _Predictor:
    """What `mlflow.pyfunc.load_model` calls."""
    return _Predictor(load(path))


class _Predictor:
    """Predicts the rows of a data frame whose columns are those of the table of training, or modalities."""

    def __init__(self, model: Any):
        self.model = model
        self.columns = list(_column_types(model))

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """Return a frame with the prediction, the probability of each class and the trust of each modality."""
        import pandas

        X, present = self._read_table(model_input) if self.columns else self._read(model_input)
        found = self.model.predict(X, present=present)
        columns: dict[str, Any] = {"prediction": found if np.ndim(found) == 1 else list(found)}
        if hasattr(self.model, "classes_"):
            probabilities = self.model.predict_proba(X, present=present)
            for label, values in zip(self.model.classes_.tolist(), probabilities.T):
                columns[f"probability_{label}"] = values
        if names := _trusted(self.model):
            for name, values in zip(names, self.model.trust(X, present=present).T):
                columns[f"trust_{name}"] = values
        return pandas.DataFrame(columns)

    def _read_table(self, frame: Any) -> tuple[Any, None]:
        """The samples of rows of a table, read once for all answers; other columns are ignored."""
        there = [column for column in self.columns if column in frame.columns]
        if not there:
            raise InputError(
                f"predict: the table has none of the columns that training read ({listed(self.columns)}): give "
                "those of at least one modality"
            )
        return self.model._observed(frame[there], None), None

    def _read(self, frame: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Values and presence of each modality; a cell that is None or NaN, or an absent column, is missing."""
        X: dict[str, Any] = {}
        present: dict[str, np.ndarray] = {}
        sizes = _sizes(self.model)
        for name, dimensions in _dimensions(self.model).items():
            cells = list(frame[name]) if name in frame.columns else [None] * len(frame)
            there = np.array([_is_there(cell) for cell in cells], dtype=bool)
            present[name] = there
            if dimensions == 0:
                X[name] = np.array([cell if known else "" for cell, known in zip(cells, there)], dtype=object)
                continue
            shape = sizes[name]
            values = np.zeros((len(cells), *shape))
            for n in np.flatnonzero(there):
                cell = np.array(_nested(cells[n]), dtype=np.float64)
                if cell.shape != shape:
                    raise InputError(
                        f"predict: row {n} of modality {name!r} has shape {list(cell.shape)}, the model was trained on "
                        f"{list(shape)}"
                    )
                values[n] = cell
            X[name] = values
        return X, present


def _column_types(model: Any) -> dict[str, Any]:
    """Column → its type in MLflow, of a model of a table with named columns; empty for any other model."""
    types: dict[str, Any] = {}
    for encoding in _encodings(model).values():
        if types.keys() & set(encoding.columns) and not model._recipe():
            return {}  # two DataFrames of a mapping share a name, which one table cannot hold twice
        types |= _types_of(encoding)
    return types


def _encodings(model: Any) -> dict[str, Encoding]:
    """How the columns of a table become modalities; empty unless one table holds all that the model reads."""
    if not hasattr(model, "_known_encodings") or not hasattr(model, "model_"):
        return {}  # BayesFusion reads opinions
    if model._learned_columns() is None and model._recipe():
        return _without_files(recipe_columns(model._recipe()))
    without_names = hasattr(model, "n_features_in_") and not hasattr(model, "feature_names_in_")
    known = model._known_encodings()
    return {} if without_names or known.keys() != set(model.modalities_) else known


def _without_files(learned: Mapping[str, Any]) -> dict[str, Encoding]:
    """The same modalities, of which none is read from files: a server must not open files that its callers name."""
    for name, known in learned.items():
        if not isinstance(known, Encoding):
            raise UnsupportedError(
                f"mlflow: modality {name!r} is read from files that a table names, and a served model opens none for "
                "its callers: train on arrays of their values or without this modality, or use model.save and "
                "`consilience serve`, which takes such values"
            )
    return dict(learned)


def _types_of(encoding: Encoding) -> dict[str, Any]:
    _import_mlflow()
    from mlflow.types import DataType

    types = dict.fromkeys(encoding.numbers, DataType.double)
    for column, calendar in encoding.calendars.items():
        types[column] = DataType.datetime if calendar.layout is None else DataType.string
    return types | dict.fromkeys(encoding.string_columns, DataType.string)


def _nested_type(dimensions: int) -> Any:
    """The type of a cell that is an array of so many dimensions; a text has none."""
    from mlflow.types import DataType
    from mlflow.types.schema import Array

    nested: Any = DataType.double if dimensions else DataType.string
    for _ in range(dimensions):
        nested = Array(nested)
    return nested


def _sizes(model: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each modality in a row; () for text."""
    if not hasattr(model, "model_"):
        if not hasattr(model, "rule_") or model.experts is not None:
            raise UnsupportedError(
                f"mlflow: a {type(model).__name__} with experts of its own, or without a prediction, cannot be served; "
                "a FusionClassifier, a FusionRegressor and a BayesFusion of given opinions can"
            )
        return dict.fromkeys(model.modalities_, (len(model.classes_),))
    sizes: dict[str, tuple[int, ...]] = {}
    for name, modality in model.model_.preparation.raw.items():
        if modality.kind not in ("vector", "image", "text"):
            raise UnsupportedError(
                f"mlflow: modality {name!r} is of kind {modality.kind}; vectors, images and texts can be columns"
            )
        sizes[name] = () if modality.kind == "text" else tuple(modality.shape)
    return sizes


def _dimensions(model: Any) -> dict[str, int]:
    return {name: len(shape) for name, shape in _sizes(model).items()}


def _trusted(model: Any) -> tuple[str, ...]:
    return tuple(model.modalities_) if getattr(model, "gives_weights_", hasattr(model, "rule_")) else ()


def _has_texts(model: Any) -> bool:
    return hasattr(model, "classes_") and model.classes_.dtype.kind in "UO"


def _number_type(model: Any) -> Any:
    from mlflow.types import DataType
    from mlflow.types.schema import Array

    if not hasattr(model, "classes_"):
        several = model.model_.task.outputs > 1
        return Array(DataType.double) if several else DataType.double
    kinds = {"b": DataType.boolean, "i": DataType.long, "u": DataType.long}
    return kinds.get(model.classes_.dtype.kind, DataType.double)


def _is_there(cell: Any) -> bool:
    if cell is None:
        return False
    values = _nested(cell)
    return not (isinstance(values, float) and np.isnan(values)) and (isinstance(values, str) or np.size(values) > 0)


def _nested(cell: Any) -> Any:
    """A cell as nested lists; arrays of arrays are what a frame makes of nested lists."""
    if isinstance(cell, np.ndarray | list | tuple):
        return [_nested(each) for each in cell]
    return cell


def _key(name: Any) -> str:
    """A name that MLflow takes for a parameter or a metric."""
    return re.sub(r"[^\w\-. :/]", "_", str(name))[:250]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _import_mlflow() -> Any:
    try:
        import mlflow
        import mlflow.pyfunc
    except ImportError as error:
        raise InputError("this needs mlflow, which is not installed: pip install 'consilience[mlflow]'") from error
    return mlflow
