"""`consilience train`, and `consilience predict` on rows that training has not seen."""

import io
import itertools
import json

import numpy as np
import polars as pl
import pytest

from cli.conftest import COLUMNS, machines
from consilience import load, load_data
from consilience.methods import Method

MODALITIES = {"vibration": ["vibration_*"], "heat": ["heat_*", "shop"]}


@pytest.fixture
def new(tmp_path):
    """Rows without the target: a failed sensor, a category never seen, and a column that nobody asked for."""
    frame = machines(20, seed=1).drop("fault")
    vibration = [pl.when(pl.int_range(20) < 3).then(None).otherwise(pl.col(f"vibration_{n}")) for n in range(3)]
    shop = pl.when(pl.int_range(20) == 4).then(pl.lit("east")).otherwise(pl.col("shop"))
    names = [f"vibration_{n}" for n in range(3)]
    frame = frame.with_columns(*[one.alias(name) for one, name in zip(vibration, names)], shop.alias("shop"))
    path = tmp_path / "new.csv"
    frame.with_columns(pl.lit(7).alias("serial")).write_csv(path)
    return path


def read(text):
    return pl.read_csv(io.StringIO(text))


def test_training_says_how_good_it_is(run, table, tmp_path):
    done = run("train", table, *COLUMNS, "--method", "concat", "--epochs", "2", "--seed", "3", "--out", tmp_path / "m")
    assert done.code == 0
    told = dict(line.split() for line in done.out.splitlines() if line and not line.startswith("model:"))
    model = load(tmp_path / "m")
    data = load_data(table, target="fault", modalities=MODALITIES)
    assert float(told["accuracy"]) == pytest.approx(model.score(data.test), abs=5e-5)
    assert done.out.endswith(f"model: {tmp_path / 'm'}\n")


def test_ctrl_c_in_training_saves_what_there_is_and_is_no_success(run, table, tmp_path, monkeypatch, caplog):
    batches, objective = itertools.count(), Method.objective

    def impatient(self, *given):
        if next(batches) == 8:
            raise KeyboardInterrupt
        return objective(self, *given)

    monkeypatch.setattr(Method, "objective", impatient)
    how = ("--method", "concat", "--epochs", "50", "--batch-size", "64")
    done = run("train", table, *COLUMNS, *how, "--out", tmp_path / "m")
    assert done.code == 130
    assert done.out.endswith(f"model: {tmp_path / 'm'}\n")
    assert load(tmp_path / "m").predict(load_data(table, target="fault", modalities=MODALITIES).test).size
    assert caplog.text.count("was interrupted: keeping the best weights so far") == 1
    assert done.err.splitlines()[-1] == "consilience: stopped"


def test_a_regression_trains_and_predicts(run, tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 120))
    frame = pl.DataFrame({"a": a, "b": b, "wear": a + 0.1 * b + 0.01 * rng.normal(size=120)})
    frame.write_csv(tmp_path / "wear.csv")
    words = ("--target", "wear", "--modality", "one=a", "--modality", "two=b", "--epochs", "3")
    done = run("train", tmp_path / "wear.csv", *words, "--out", tmp_path / "m")
    assert "mse" in done.out
    predicted = read(run("predict", tmp_path / "m", tmp_path / "wear.csv").out)
    assert predicted.columns == ["prediction", "trust_one", "trust_two"]
    assert predicted["prediction"].dtype == pl.Float64


def test_new_rows_without_target(run, model, new):
    done = run("predict", model, new)
    assert done.code == 0
    assert done.err.startswith("consilience: new.csv: column 'shop' of modality 'heat' holds 'east' in row 4, which")
    assert done.err.count("\n") == 1
    predicted = read(done.out)
    probabilities = predicted.select("^probability_.*$")
    assert probabilities.columns == ["probability_bearing", "probability_leak", "probability_none"]
    np.testing.assert_allclose(probabilities.sum_horizontal(), 1, rtol=1e-6)
    most = probabilities.to_numpy().argmax(axis=1)
    assert predicted["prediction"].to_list() == [["bearing", "leak", "none"][one] for one in most]
    failed = machines(20, seed=1)["vibration_0"].is_null() | (pl.Series(range(20)) < 3)
    assert predicted["trust_vibration"].to_list() == [0.0 if gone else 0.5 for gone in failed]


def test_a_sensor_whose_columns_are_gone(run, model, new, tmp_path):
    pl.read_csv(new).drop("vibration_0", "vibration_1", "vibration_2").write_csv(tmp_path / "fewer.csv")
    done = run("predict", model, tmp_path / "fewer.csv")
    assert "has no values of vibration: missing in every row" in done.err
    assert read(done.out)["trust_heat"].to_list() == [1.0] * 20


def test_rows_of_which_nothing_is_there_are_named(run, model, new, tmp_path):
    pl.read_csv(new).with_columns(
        pl.when(pl.int_range(20).is_in([4, 7])).then(None).otherwise(pl.all()).name.keep()
    ).write_csv(tmp_path / "gone.csv")
    done = run("predict", model, tmp_path / "gone.csv")
    assert done.code == 0
    assert "gone.csv has no modality at all in rows 4, 7: these predictions do not depend" in done.err
    assert "nothing of any modality" not in run("predict", model, new).err


def test_part_of_a_sensor_is_refused(run, model, new, tmp_path):
    pl.read_csv(new).drop("vibration_1").write_csv(tmp_path / "part.csv")
    done = run("predict", model, tmp_path / "part.csv")
    assert done.code == 2
    assert "vibration_1" in done.err


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_go_to_a_file(run, model, new, tmp_path, ending):
    path = tmp_path / f"predictions.{ending}"
    done = run("predict", model, new, "--out", path)
    assert done.out == f"20 predictions: {path}\n"
    written = pl.read_csv(path) if ending == "csv" else pl.read_parquet(path)
    printed = read(run("predict", model, new).out)
    assert written["prediction"].to_list() == printed["prediction"].to_list()


def test_the_best_model_of_a_comparison_predicts(run, finished, new):
    done = run("predict", finished / "best", new)
    assert done.code == 0
    assert len(done.out.splitlines()) == 21


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "predictions.xls"), "--out must end in .csv, .parquet, .jsonl, .ndjson, or give --format"),
        (("--out", "{file}/predictions.csv"), "is a file"),
        (("--out", "{new}"), "would overwrite an input file"),
    ],
)
def test_where_predictions_cannot_go(run, model, new, tmp_path, words, said):
    (tmp_path / "file").write_text("")
    before = new.read_bytes()
    done = run("predict", model, new, *[word.format(file=tmp_path / "file", new=new) for word in words])
    assert done.code == 2
    assert said in done.err
    assert new.read_bytes() == before


def test_training_is_not_begun_where_the_model_cannot_be_saved(run, table, tmp_path, monkeypatch):
    monkeypatch.setattr("consilience.estimators.FusionClassifier.fit", None)  # whoever trains fails
    (tmp_path / "file").write_text("")
    done = run("train", table, *COLUMNS, "--out", tmp_path / "file" / "model")
    assert done.err == f"consilience: error: cannot write to {tmp_path}/file/model: {tmp_path}/file is a file\n"
    (tmp_path / "notes.txt").write_text("years of work")
    done = run("train", table, *COLUMNS, "--out", tmp_path)
    assert "no part of a model; choose another folder" in done.err
    monkeypatch.setattr("os.access", lambda path, mode: False)
    done = run("train", table, *COLUMNS, "--out", tmp_path / "model")
    assert done.err == f"consilience: error: cannot write to {tmp_path}/model: {tmp_path} is read-only\n"


def test_a_model_is_replaced_only_where_that_is_said(run, table, tmp_path):
    words = ("train", table, *COLUMNS, "--method", "late", "--epochs", "1", "--out", tmp_path / "m")
    assert run(*words).code == 0
    before = (tmp_path / "m" / "weights.safetensors").read_bytes()
    done = run(*words, "--seed", "1")
    assert done.code == 2
    assert f"{tmp_path}/m holds a model: give --overwrite to replace it, or another --out" in done.err
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() == before
    assert run(*words, "--seed", "1", "--overwrite").code == 0
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() != before
    (tmp_path / "m" / "notes.txt").write_text("years of work")
    done = run(*words, "--overwrite")
    assert "'notes.txt', which is no part of a model" in done.err
    assert (tmp_path / "m" / "notes.txt").read_text() == "years of work"


def test_settings_of_another_method_are_refused(run, table, tmp_path):
    done = run("train", table, *COLUMNS, "--method", "late", "--setting", "concat.width=8", "--out", tmp_path / "m")
    assert done.code == 2
    assert "--setting concat.… is not a setting of late" in done.err


def test_a_model_that_is_none(run, new, tmp_path):
    done = run("predict", tmp_path, new)
    assert done.code == 2
    assert "is not a model saved by consilience" in done.err


def test_the_model_remembers_what_it_was_given(model):
    saved = json.loads((model / "model.json").read_text())
    assert saved["method"] == "late"
    assert [one["name"] for one in saved["recipe"]["modalities"]] == ["vibration", "heat"]


LATENT = ("--modality", "vibration=vibration_*", "--modality", "heat=heat_*", "--method", "m2vae", "--epochs", "2")


def test_a_latent_model_is_trained_without_a_target(run, table, tmp_path):
    done = run("train", table, *LATENT, "--setting", "m2vae.latent=3", "--out", tmp_path / "latent")
    assert done.code == 0
    assert done.out.endswith(f"model: {tmp_path / 'latent'}\n")
    model = load(tmp_path / "latent")
    assert model.latent == 3
    data = load_data(table, modalities={"vibration": "vibration_*", "heat": "heat_*"})
    error = model.generation_errors(data.test, ["heat"], ["vibration"])["heat"]
    assert (
        f"error of heat: {model.generation_errors(data.test, ['heat'])['heat']:.4f} given all, {error:.4f}" in done.out
    )
    new = tmp_path / "new.csv"
    machines(7, seed=2).drop("heat_0", "heat_1", strict=False).select(pl.selectors.starts_with("vibration")).write_csv(
        new
    )
    given = ("--given", "vibration", "--of", "heat", "--data", new, "--out", tmp_path / "generated")
    assert run("generate", tmp_path / "latent", *given).code == 0
    assert len(np.load(tmp_path / "generated" / "generated.npz")["heat"]) == 7


@pytest.mark.parametrize("words", [(), ("--method", "concat")])
def test_another_method_without_a_target_is_refused(run, table, tmp_path, words):
    done = run("train", table, *LATENT[:4], *words, "--out", tmp_path / "m")
    assert done.code == 2
    assert "was read without a target: name the column to predict with --target, or train a latent model" in done.err
    assert not (tmp_path / "m").exists()


def test_a_comparison_without_a_target_is_refused(run, table, tmp_path):
    done = run("compare", table, *LATENT[:4], "--methods", "concat", "--out", tmp_path / "runs")
    assert done.code == 2
    assert "name the column to predict with target= (--target); of no modality are" in done.err
    assert "'fault'" in done.err
