"""Plain JSON: rows with missing cells and modalities give what the estimator predicts for the same table."""

import numpy as np
import polars as pl
import pytest
from PIL import Image

import consilience as cs
from serving.conftest import QUICK, ROW, machines


def as_rows(table):
    return [{name: cell for name, cell in row.items() if cell is not None} for row in table.iter_rows(named=True)]


def test_answers_are_those_of_the_estimator(serve, models):
    table = machines(20, seed=7).drop("hours", "state")
    holes = [None if n % 3 == 0 else value for n, value in enumerate(table["temp_0"])]
    table = table.with_columns(pl.Series("temp_0", holes), pl.Series("note", [None, *table["note"][1:]]))
    model = cs.load(models / "machines")
    response = serve().rows(as_rows(table))
    assert response.status_code == 200, response.text
    answer = response.json()
    rows = answer["predictions"]
    assert [row["label"] for row in rows] == model.predict(table).tolist()
    expected = model.predict_proba(table)
    np.testing.assert_allclose([list(row["probabilities"].values()) for row in rows], expected, atol=1e-6)
    assert list(rows[0]["probabilities"]) == ["leak", "ok", "worn"]
    np.testing.assert_allclose([list(row["trust"].values()) for row in rows], model.trust(table), atol=1e-6)
    sets = model.predict_set(table, 0.9)
    assert [row["set"] for row in rows] == [model.classes_[row].tolist() for row in sets]
    assert answer["coverage"] == 0.9
    assert rows[0]["missing"] == ["note"]
    assert "missing" not in rows[1]


def test_a_number_has_an_interval(serve, models):
    table = machines(5, seed=3).drop("hours", "state")
    model = cs.load(models / "hours")
    rows = serve("hours", coverage=0.8).rows(as_rows(table), "hours").json()["predictions"]
    np.testing.assert_allclose([row["value"] for row in rows], model.predict(table), rtol=1e-5)
    np.testing.assert_allclose([row["interval"] for row in rows], model.predict_interval(table, 0.8), rtol=1e-5)


def test_the_version_is_that_of_the_folder(serve, models):
    client = serve()
    answer = client.rows([ROW]).json()
    version = client.get("/v2/models/machines").json()["versions"][0]
    assert (answer["model"], answer["version"]) == ("machines", version)
    body = {"rows": [ROW]}
    assert client.post(f"/v1/models/machines/versions/{version}/predict", json=body).status_code == 200
    assert client.post("/v1/models/machines/versions/1/predict", json=body).status_code == 404


def test_a_modality_that_no_row_has_is_missing(serve, models):
    rows = [{"vibration_0": 1.0, "vibration_1": 2.0}]
    row = serve().rows(rows).json()["predictions"][0]
    assert row["missing"] == ["temp", "note"]
    assert row["trust"] == {"vibration": 1.0, "temp": 0.0, "note": 0.0}
    expected = cs.load(models / "machines").predict_proba(pl.DataFrame(rows))[0]
    np.testing.assert_allclose(list(row["probabilities"].values()), expected, atol=1e-6)


def test_null_is_an_empty_cell_and_the_target_is_ignored(serve):
    client = serve()
    without = client.rows([{"vibration_0": 1.0, "note": "oil leaks"}]).json()["predictions"]
    named = {"vibration_0": 1, "vibration_1": None, "note": "oil leaks", "mode": None, "state": "ok"}
    assert client.rows([named]).json()["predictions"] == without


def test_a_category_that_training_did_not_have_is_told(serve):
    client = serve()
    answer = client.rows([ROW, {**ROW, "mode": "party"}]).json()
    assert len(answer["warnings"]) == 1
    assert "'party'" in answer["warnings"][0]
    assert "row 1" in answer["warnings"][0]
    assert "warnings" not in client.rows([ROW]).json()


def test_arrays_are_given_by_the_names_of_modalities(serve, models):
    rng = np.random.default_rng(5)
    motion, level = rng.normal(size=(2, 5, 2)), rng.normal(size=(2, 3))
    rows = [{"motion": motion[0].tolist(), "level": level[0].tolist()}, {"level": level[1].tolist(), "motion": None}]
    answer = serve("arrays").rows(rows, "arrays")
    assert answer.status_code == 200, answer.text
    found = answer.json()["predictions"]
    present = {"motion": [True, False]}
    expected = cs.load(models / "arrays").predict_proba({"motion": motion, "level": level}, present=present)
    np.testing.assert_allclose([list(row["probabilities"].values()) for row in found], expected, atol=1e-6)
    assert found[1]["missing"] == ["motion"]
    assert isinstance(found[0]["label"], int)
    assert "trust" not in found[0], "concat does not weigh its modalities"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "the request has no body"),
        (b"{", 400, "the request is not JSON"),
        (b"\xff\xfe", 400, "not text in UTF-8"),
        (b"[1]", 400, "must be a JSON object"),
        (b'{"rows": []}', 400, "at least one row"),
        (b'{"rows": {}}', 400, "rows must be a list"),
        (b'{"rows": [1]}', 400, "row 0 must be an object"),
        (b'{"rows": [{}]}', 400, "no row has a value"),
        (b'{"rows": [{"vibration_0": null}]}', 400, "no row has a value"),
        (b'{"row": []}', 400, "has the key rows alone, got 'row'"),
        (b'{"inputs": []}', 400, "is for /v2/models/machines/infer"),
        (b'{"rows": [{"vibration_0": 1}], "rows": []}', 400, "'rows' is given twice"),
        (b'{"rows": [{"vibration_0": 1, "vibration_0": 2}]}', 400, "'vibration_0' is given twice"),
        (b'{"rows": [{"vibration_0": NaN}]}', 400, "NaN is not a number in JSON"),
        (b'{"rows": [{"vibration_0": -Infinity}]}', 400, "-Infinity is not a number in JSON"),
        (b'{"rows": [{"vibration_0": 1e999}]}', 400, "too large for a 64-bit float"),
        (b'{"rows": [{"vibration_0": 1' + b"0" * 5000 + b"}]}", 400, "too many digits"),
        (b'{"rows": [{"vibration_0": 1' + b"0" * 400 + b"}]}", 400, "vibration_0"),
        (b'{"rows": [{"vibration_0": 0.5}, {"vibration_0": 1' + b"0" * 400 + b"}]}", 400, "vibration_0"),
        (
            b'{"rows": [{"vibration_0": 1e300}]}',
            400,
            "'vibration_0' holds 1e+300 in row 0, which is too large for 32-bit",
        ),
        (b'{"rows": [{"vibration_0": "high"}]}', 400, "vibration_0"),
        (b'{"rows": [{"vibration_0": [1]}]}', 400, "must be one number, string, true, false or null"),
        (b'{"rows": [{"vibraton_0": 1}]}', 400, "did you mean 'vibration_0'?"),
        (b'{"rows": [{"' + b"a" * 300 + b'": 1}]}', 400, "a name of 300 characters"),
        (b'{"rows": ' + b"[" * 100_000, 400, "nested too deeply"),
        (b'{"rows": [{"vibration_0": ' + b"[" * 900 + b"]" * 900 + b"}]}", 400, "must be one number"),
        (b'{"rows": [{"note": "\\ud800"}]}', 400, ""),
        (b'{"rows": [' + b",".join([b'{"vibration_0":1}'] * 41) + b"]}", 413, "may have 40 rows, got 41"),
    ],
)
def test_bad_input_has_a_status_and_one_line_and_the_server_goes_on(serve, body, status, reason):
    client = serve(max_rows=40)
    response = client.post("/v1/models/machines/predict", content=body)
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    assert reason in response.json()["error"]
    assert "\n" not in response.json()["error"]
    assert client.rows([ROW]).status_code == 200


def test_files_of_the_server_are_not_opened_for_a_client(tmp_path, serve, models):
    rng = np.random.default_rng(0)
    for n in range(40):
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(tmp_path / f"{n}.png")
    table = pl.DataFrame({"photo": [f"{n}.png" for n in range(40)], "x": rng.normal(size=40), "y": ["a", "b"] * 20})
    table.write_csv(tmp_path / "photos.csv")
    data = cs.load_data(tmp_path / "photos.csv", target="y", modalities={"photo": ["photo"], "x": ["x"]})
    cs.FusionClassifier("late", **QUICK).fit(data.train).save(models / "photos")
    client = serve("photos")
    for named in (str(tmp_path / "0.png"), "/etc/passwd"):
        response = client.rows([{"photo": named, "x": 1.0}], "photos")
        assert response.status_code == 400
        assert "a server opens none for its clients" in response.json()["error"]
    assert client.rows([{"x": 1.0}], "photos").json()["predictions"][0]["missing"] == ["photo"]
    pixels = {"name": "photo", "shape": [1, *data.train["photo"].shape[1:]], "datatype": "FP32"}
    tensors = {"inputs": [pixels | {"data": [0.5] * int(np.prod(pixels["shape"]))}]}
    assert client.post("/v2/models/photos/infer", json=tensors).status_code == 200
