"""Exported files give our numbers in a process that does not have this library, or are not written at all."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import consilience as cs
from consilience.core.errors import InputError, OperationError, UnsupportedError
from consilience.exporting import export as exporting

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'consilience[onnx]'")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install 'consilience[onnx]'")

FOREIGN = """
import sys
import numpy as np, onnxruntime
onnxruntime.set_default_logger_severity(3)
session = onnxruntime.InferenceSession(sys.argv[1])
rows = np.load(sys.argv[2], allow_pickle=True)
np.save(sys.argv[3], session.run(["probabilities"], {name: rows[name] for name in rows.files})[0])
assert "consilience" not in sys.modules and "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def table():
    """Numbers, categories and times with gaps; some rows lack a whole modality."""
    rng = np.random.default_rng(0)
    n = 120
    y = rng.integers(2, size=n)
    columns = {
        "vitals_pulse": 60 + 9 * y + rng.normal(0, 5, n),
        "vitals_sound": rng.normal(size=n) - y,
        "ward_name": np.array(["A", "B", "C"], dtype=object)[(y + rng.integers(0, 2, n)) % 3],
        "ward_age": rng.normal(40, 9, n),
        "ward_when": [f"2024-{1 + k % 12:02d}-{1 + k % 28:02d} {k % 24:02d}:30" for k in range(n)],
    }
    frame = pl.DataFrame(columns | {"y": np.array(["no", "yes"])[y]})
    for place, name in enumerate(columns):
        gaps = (rng.random(n) < 0.1) | ((np.arange(n) % 9 == 0) & (place > 1))
        frame = frame.with_columns(pl.when(pl.Series(gaps)).then(None).otherwise(pl.col(name)).alias(name))
    return frame


@pytest.fixture(scope="module")
def fitted(table):
    modalities = {"vitals": "vitals_*", "ward": "ward_*"}
    data = cs.load_data(table, target="y", modalities=modalities, kinds={"ward_when": "calendar"})
    return cs.FusionClassifier("late", epochs=2, device="cpu", calibration=None).fit(data.train)


@pytest.mark.filterwarnings("ignore::consilience.core.errors.TableWarning")
def test_a_table_with_gaps_and_categories_without_this_library(table, fitted, tmp_path):
    path = fitted.export(tmp_path / "model.onnx")
    empty = table.with_columns(ward_when=pl.lit(None, dtype=pl.String))  # a column of all rows may be empty too
    for number, frame in enumerate((table, empty)):
        when = frame["ward_when"].str.to_datetime("%Y-%m-%d %H:%M").dt.epoch("s").cast(pl.Float64).to_numpy()
        np.savez(
            tmp_path / "rows.npz",
            **{
                "vitals": frame.select("vitals_pulse", "vitals_sound").to_numpy().astype(np.float32),
                "ward": frame.select("ward_age").to_numpy().astype(np.float32),
                "ward times": when.astype(np.float64)[:, None],
                "ward_name": np.array(frame["ward_name"].fill_null("").to_list(), dtype=object),
            },
        )
        out = tmp_path / f"found{number}.npy"
        subprocess.run([sys.executable, "-c", FOREIGN, path, tmp_path / "rows.npz", out], check=True)
        samples = fitted.read(_written(frame, tmp_path))
        np.testing.assert_allclose(np.load(out), fitted.predict_proba(samples), atol=1e-5)


def _written(frame, folder):
    frame.drop("y").write_csv(folder / "new.csv")
    return folder / "new.csv"


def test_a_file_says_what_it_reads(fitted, tmp_path):
    session = onnxruntime.InferenceSession(str(fitted.export(tmp_path / "model.onnx")))
    described = json.loads(session.get_modelmeta().custom_metadata_map["consilience"])
    assert described["classes"] == ["no", "yes"]
    assert described["modalities"] == ["vitals", "ward"]
    assert [own["name"] for own in described["inputs"]] == ["vitals", "ward", "ward times", "ward_name"]
    assert described["inputs"][3]["categories"] == [["A", "B", "C"]]
    assert session.get_inputs() == []
    types = {
        "tensor(float)": "float32",
        "tensor(double)": "float64",
        "tensor(string)": "string",
        "tensor(bool)": "bool",
    }
    taken = {own.name: types[own.type] for own in session.get_overridable_initializers() if own.name != "present"}
    assert {own["name"]: own["type"] for own in described["inputs"]} == taken
    assert described["version"] == cs.__version__


def test_rows_that_the_model_refuses_are_nan(tmp_path):
    data = cs.load_data("digits")
    model = cs.FusionClassifier("late", epochs=1, device="cpu", calibration=None).fit(data.train[:60])
    session = onnxruntime.InferenceSession(str(model.export(tmp_path / "model.onnx")))
    rows = {name: data.test[name][:3].astype(np.float32) for name in data.test.names}
    rows[data.test.names[0]][1, 2] = np.inf
    [probabilities] = session.run(["probabilities"], rows)
    assert np.isnan(probabilities).all(axis=1).tolist() == [False, True, False]


def test_a_sensor_far_outside_is_answered_as_here(tmp_path):
    import onnxruntime

    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    X = {"a": y[:, None] + rng.normal(size=(200, 4)), "b": y[:, None] + rng.normal(size=(200, 3))}
    X["c"] = y[:, None] + rng.normal(size=(200, 2))
    model = cs.FusionClassifier("bayes-robust", epochs=3, random_state=0, device="cpu").fit(X, y)
    session = onnxruntime.InferenceSession(str(model.export(tmp_path / "model.onnx")))
    for factor in (1e2, 1e3, 1e4, 1e6):
        rows = {name: np.float32(values[:20]) for name, values in X.items()}
        rows["a"] *= np.float32(factor)
        (given,) = session.run(["probabilities"], rows)
        np.testing.assert_allclose(given, model.predict_proba(rows), atol=1e-5)


def test_an_exported_program_of_torch(fitted, tmp_path):
    path = fitted.export(tmp_path / "model.pt2")
    files = {"consilience.json": ""}
    program = torch.export.load(path, extra_files=files)
    described = json.loads(files["consilience.json"])
    inputs = {
        "vitals": torch.tensor([[70.0, 0.5]]),
        "ward": torch.tensor([[41.0]]),
        "ward times": torch.tensor([[float("nan")]], dtype=torch.float64),
        "ward categories": torch.tensor([[1]]),
    }
    found = dict(zip(described["outputs"], program.module()(inputs, torch.tensor([[True, True]]))))
    row = {"vitals_pulse": 70.0, "vitals_sound": 0.5, "ward_age": 41.0, "ward_name": "B", "ward_when": None}
    ours = fitted.predict_proba(row)
    np.testing.assert_allclose(found["probabilities"].numpy(), ours, atol=1e-5)


def test_a_difference_writes_nothing(fitted, tmp_path, monkeypatch):
    ours = exporting.our_outputs

    def other(*given):
        found = ours(*given)
        return found | {"trust": found["trust"] + 2e-5}

    monkeypatch.setattr(exporting, "our_outputs", other)
    with pytest.raises(OperationError, match="differs from the model by 2e-05 in trust"):
        fitted.export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


class Hidden(nn.Module):
    """An encoder that looks at values, which a graph cannot."""

    width = 2

    def forward(self, x):
        return x[:, :2] if float(x.sum()) > 0 else -x[:, :2]


def test_a_refusal_names_the_encoder_or_the_part(tmp_path):
    data = cs.load_data("digits")
    name = data.train.names[0]
    own = cs.FusionClassifier("late", encoders={name: Hidden()}, epochs=1, device="cpu", calibration=None)
    with pytest.raises(UnsupportedError, match=f"of modality '{name}' cannot be exported"):
        own.fit(data.train[:60]).export(tmp_path / "model.onnx")
    precise = cs.FusionClassifier("late", precision="64", epochs=1, device="cpu", calibration=None).fit(data.train[:60])
    with pytest.raises(UnsupportedError, match="64 bits"):
        precise.export(tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"must end in \.onnx or \.pt2"):
        precise.export(tmp_path / "model.bin")
    assert not list(tmp_path.iterdir())
