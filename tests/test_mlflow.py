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
from consilience.core.errors import InputError, UnsupportedError

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


def machines(rows=90):
    """A table with numbers, a column of categories and one of texts; some single cells are empty."""
    random = np.random.default_rng(1)
    broken = random.integers(2, size=rows).astype(bool)
    table = pandas.DataFrame({f"vibration_{n}": random.normal(size=rows) + 2 * broken for n in range(3)})
    table["state"] = np.where(broken, "idle", np.array(["idle", "full"])[random.integers(2, size=rows)])
    table["load"] = random.normal(size=rows)
    table["remark"] = np.where(broken, "a loud noise", "all is quiet")
    table["fault"] = np.where(broken, "leak", "none")
    table.loc[[3, 4], "load"] = np.nan
    table.loc[5, "state"] = None
    return table


@pytest.fixture(scope="module")
def of_table(tmp_path_factory):
    """A model of `load_data`, and what MLflow loads of it."""
    folder = tmp_path_factory.mktemp("machines")
    machines().to_csv(folder / "machines.csv", index=False)
    data = cs.load_data(
        folder / "machines.csv",
        target="fault",
        modalities={"vibration": "vibration_*", "use": ["state", "load"], "remark": "remark"},
        kinds={"remark": "text"},
    )
    trained = cs.FusionClassifier("late", epochs=3, device="cpu").fit(data.train)
    flavor.save_model(trained, folder / "saved")
    return trained, mlflow.pyfunc.load_model(str(folder / "saved"))


def probabilities(loaded, table):
    return loaded.predict(table)[["probability_leak", "probability_none"]].to_numpy()


def test_the_signature_of_a_model_of_a_table_has_its_columns_without_the_target(of_table):
    types = {column.name: column.type.name for column in of_table[1].metadata.get_input_schema()}
    numbers = dict.fromkeys(["vibration_0", "vibration_1", "vibration_2", "load"], "double")
    assert types == numbers | {"state": "string", "remark": "string"}
    assert not any(column.required for column in of_table[1].metadata.get_input_schema())


def without_vibration(table):
    return table.drop(columns=[f"vibration_{n}" for n in range(3)])


def with_empty_cells(table):
    table.loc[2, ["vibration_1", "remark"]] = [np.nan, None]
    table.loc[3, ["state", "load"]] = [None, np.nan]  # all that the modality has
    return table


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table,
        lambda table: table[table.columns[::-1]],
        without_vibration,
        lambda table: table.drop(columns="remark"),
        with_empty_cells,
        lambda table: table[:1],
    ],
    ids=["the same", "another order", "no vibration", "no remark", "empty cells", "one row"],
)
@pytest.mark.filterwarnings("ignore:the table has no columns of")
def test_a_table_is_predicted_as_the_model_predicts_it(of_table, change):
    model, loaded = of_table
    table = change(machines(20).drop(columns="fault"))
    found = loaded.predict(table)
    assert found["prediction"].tolist() == model.predict(table).tolist()
    np.testing.assert_allclose(probabilities(loaded, table), model.predict_proba(table), atol=1e-6)


def test_every_modality_of_a_table_is_used(of_table):
    table = machines(20).drop(columns="fault")
    for columns in (["vibration_0"], ["state"], ["remark"]):
        changed = table.copy()
        changed[columns] = changed[columns].iloc[::-1].to_numpy()
        assert not np.allclose(probabilities(of_table[1], changed), probabilities(of_table[1], table))


def test_other_columns_of_a_table_are_ignored_and_a_lacking_one_is_named(of_table):
    model, loaded = of_table
    table = machines(20)
    expected = model.predict_proba(table)
    np.testing.assert_allclose(probabilities(loaded, table.assign(day="Monday")), expected, atol=1e-6)
    with pytest.raises(ValueError, match="lacks columns that training read: 'vibration_1' of modality 'vibration'"):
        loaded.predict(table.rename(columns={"vibration_1": "vibratoin_1"}))
    with pytest.raises(InputError, match="none of the columns that training read"):
        loaded.predict(table[["fault"]])
    with pytest.raises(mlflow.MlflowException, match="Incompatible input types for column load"):
        loaded.predict(table.assign(load="high"))


def test_mlflow_refuses_whole_numbers_and_columns_of_nan_until_they_are_converted(of_table):
    model, loaded = of_table
    table = machines(20).drop(columns="fault").assign(load=np.arange(20), state=np.nan)
    for column in ("load", "state"):
        with pytest.raises(mlflow.MlflowException, match=f"Incompatible input types for column {column}"):
            loaded.predict(table[["load", "state"]].assign(**{"load": 0.5, "state": "idle", column: table[column]}))
    converted = table.astype({"load": float, "state": object})
    np.testing.assert_allclose(probabilities(loaded, converted), model.predict_proba(converted), atol=1e-6)


@pytest.mark.filterwarnings("ignore:the table has no columns of")
def test_a_model_of_a_data_frame_and_of_several(tmp_path):
    table = machines()
    columns = {"vibration": "vibration_*", "use": ["state", "load"]}
    groups = {"vibration": table[[f"vibration_{n}" for n in range(3)]], "use": table[["state", "load"]]}
    one = cs.FusionClassifier("late", columns=columns, epochs=2, device="cpu").fit(table, table["fault"])
    several = cs.FusionClassifier("late", epochs=2, device="cpu").fit(groups, table["fault"])
    for name, model in {"one": one, "several": several}.items():
        flavor.save_model(model, tmp_path / name)
        loaded = mlflow.pyfunc.load_model(str(tmp_path / name))
        for given in (table[table.columns[::-1]], without_vibration(table)):
            np.testing.assert_allclose(probabilities(loaded, given), model.predict_proba(given), atol=1e-6)


def test_times_are_strings_or_times_as_in_training():
    table = machines()
    table["day"] = [f"2024-{1 + n % 12:02}-01" for n in range(len(table))]
    table["hour"] = pandas.to_datetime(table["day"])
    options = {"target": "fault", "modalities": {"when": ["day", "hour"], "vibration": "vibration_*"}}
    data = cs.load_data(table, kinds={"day": "calendar", "hour": "calendar"}, **options)
    model = cs.FusionClassifier("late", epochs=1, device="cpu").fit(data.train)
    types = {column.name: column.type.name for column in flavor.signature_of(model).inputs}
    assert (types["day"], types["hour"]) == ("string", "datetime")
    found = flavor._Predictor(model).predict(table)
    assert found["prediction"].tolist() == model.predict(table).tolist()


def test_a_model_of_files_that_a_table_names_is_refused(tmp_path):
    image = pytest.importorskip("PIL.Image")
    table = machines(40)
    table["picture"] = [str(tmp_path / f"{n}.png") for n in range(len(table))]
    for n, path in enumerate(table["picture"]):
        image.fromarray(np.full((8, 8), 5 * n, dtype=np.uint8)).save(path)
    modalities = {"picture": "picture", "vibration": "vibration_*"}
    data = cs.load_data(table, target="fault", modalities=modalities, kinds={"picture": "image"})
    model = cs.FusionClassifier("late", epochs=1, device="cpu").fit(data.train)
    with pytest.raises(UnsupportedError, match="modality 'picture' is read from files"):
        flavor.save_model(model, tmp_path / "saved", signature=object())
    assert not (tmp_path / "saved").exists()


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
