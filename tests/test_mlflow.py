"""The MLflow flavor, read back by MLflow's own readers."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import consilience as cs

mlflow = pytest.importorskip("mlflow")
pandas = pytest.importorskip("pandas")
flavor = pytest.importorskip("consilience.mlflow")

RANDOM = np.random.default_rng(0)
Y = np.array(["leak", "none"])[np.arange(80) % 2]
X = {"vibration": RANDOM.normal(size=(80, 3)) + 2 * (Y == "leak")[:, None], "audio": RANDOM.normal(size=(80, 2))}


@pytest.fixture(scope="module")
def model():
    return cs.FusionClassifier("bayes", epochs=3, device="cpu").fit(X, Y)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow") / "saved"
    flavor.save_model(model, folder)
    return folder


def frame(rows=6):
    return pandas.DataFrame({name: [row.tolist() for row in values[:rows]] for name, values in X.items()})


def test_a_saved_model_predicts_through_pyfunc(model, saved):
    found = mlflow.pyfunc.load_model(str(saved)).predict(frame())
    assert found["prediction"].tolist() == model.predict({name: values[:6] for name, values in X.items()}).tolist()
    expected = model.predict_proba({name: values[:6] for name, values in X.items()})
    np.testing.assert_allclose(found[["probability_leak", "probability_none"]], expected, atol=1e-6)
    trust = found[["trust_vibration", "trust_audio"]].to_numpy()
    np.testing.assert_allclose(trust.sum(axis=1), 1)


def test_an_absent_modality_may_be_a_column_that_is_not_there_or_an_empty_cell(model, saved):
    loaded = mlflow.pyfunc.load_model(str(saved))
    assert {column.name: column.required for column in loaded.metadata.get_input_schema()} == {
        "vibration": False,
        "audio": False,
    }
    alone = model.predict_proba({"vibration": X["vibration"][:6]})
    found = loaded.predict(frame().drop(columns="audio"))
    np.testing.assert_allclose(found[["probability_leak", "probability_none"]], alone, atol=1e-6)
    assert (found["trust_audio"] == 0).all()
    given = frame()
    given.at[0, "audio"] = None
    found = loaded.predict(given)
    np.testing.assert_allclose(found.loc[0, ["probability_leak", "probability_none"]].to_list(), alone[0], atol=1e-6)
    assert found.loc[1, "trust_audio"] > 0


def test_a_wrong_shape_names_row_and_modality(saved):
    given = frame()
    given.at[2, "audio"] = [1.0]
    with pytest.raises(ValueError, match=r"row 2 of modality 'audio' has shape \[1\]"):
        mlflow.pyfunc.load_model(str(saved)).predict(given)


def test_load_model_is_consilience_load(model, saved):
    again = flavor.load_model(str(saved))
    assert type(again) is cs.FusionClassifier
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_fused_opinions(tmp_path):
    logits = {"a": RANDOM.normal(size=(40, 2)), "b": RANDOM.normal(size=(40, 2))}
    fusion = cs.BayesFusion().fit(logits, np.arange(40) % 2)
    flavor.save_model(fusion, tmp_path / "saved")
    rows = pandas.DataFrame({"a": logits["a"].tolist()})
    found = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(rows)
    np.testing.assert_allclose(found[["probability_0", "probability_1"]], fusion.predict_proba({"a": logits["a"]}))


@pytest.mark.filterwarnings("ignore")
def test_runs_are_logged(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address = (tmp_path / "store").as_uri()
    mlflow.set_tracking_uri(address)
    try:
        with mlflow.start_run():
            info = flavor.log_model(model)
        assert type(flavor.load_model(info.model_uri)) is cs.FusionClassifier
    finally:
        mlflow.set_tracking_uri(None)
    data = cs.load_data("digits")
    done = cs.compare(
        data, ["late"], seeds=2, levels=[0, 5], corruption="gaussian", out=tmp_path / "run", verbose=0, refit=False,
        training={"epochs": 1}, encoders=None,
    )  # fmt: skip
    (run,) = flavor.log_comparison(done, "digits", address)
    logged = mlflow.MlflowClient(address).get_run(run).data
    values = done.findings.values.filter(metric="accuracy", corruption="gaussian", level=5.0)["value"].to_numpy()
    assert logged.metrics["gaussian 5/accuracy"] == pytest.approx(values.mean())
    half = 12.706 * values.std(ddof=1) / np.sqrt(2)  # Student's t with one degree of freedom
    assert logged.metrics["gaussian 5/accuracy.low"] == pytest.approx(values.mean() - half, rel=1e-3)
    assert logged.params["method"] == "late"
    assert [each.path for each in mlflow.MlflowClient(address).list_artifacts(run)] == ["report.html"]


@pytest.mark.slow
def test_mlflow_serves_it(model, saved, tmp_path):
    pytest.importorskip("flask", reason="mlflow-skinny cannot serve; the whole of mlflow can")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["models", "serve", "-m", str(saved), "-p", str(port), "--env-manager", "local", "--workers", "1"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words],
            stdout=log,
            stderr=log,
            env=dict(os.environ),
            start_new_session=True,
        )
    try:
        rows = {"dataframe_split": frame(3).drop(columns="audio").to_dict(orient="split")}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", json.dumps(rows).encode(), {"Content-Type": "application/json"}
        )
        for _ in range(120):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # of this machine
                    found = json.load(answer)["predictions"]
                break
            except OSError:
                assert server.poll() is None, Path(tmp_path / "log").read_text()
                time.sleep(1)
        expected = model.predict_proba({"vibration": X["vibration"][:3]})
        np.testing.assert_allclose([row["probability_leak"] for row in found], expected[:, 0], atol=1e-6)
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)
