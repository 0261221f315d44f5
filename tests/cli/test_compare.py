"""`consilience compare` on files of one's own."""

import json

import numpy as np
import polars as pl
import pytest

from cli.conftest import COLUMNS, QUICK
from consilience.comparison import reopen


def test_a_csv_of_ones_own(run, table, finished):
    again = run("compare", table, *COLUMNS, "--methods", "late", "concat", *QUICK, "--out", finished)
    assert again.code == 0
    assert "late · reference" in again.out
    assert "On machines," in again.out
    assert "are too few for any significance" in " ".join(again.out.split())
    assert f"report: {finished / 'report.html'}" in again.out
    assert f"best model: {finished / 'best'}" in again.out
    assert (finished / "report.html").exists()


def test_training_with_corruptions(run, table, tmp_path):
    words = ("compare", table, *COLUMNS, "--methods", "late", "late@noisy", *QUICK, "--out", tmp_path / "run")
    noisy = ("--setting", "late@noisy.augment=gaussian:0..2", "--augment", "drop:0..1", "heat=missing:10@0.5")
    assert run(*words, *noisy).code == 0
    asked = json.loads((tmp_path / "run" / "plan.json").read_text())["asked"]
    assert asked["training"]["augment"] == ["drop:0..1", "heat=missing:10@0.5"]
    assert asked["settings"] == {"late@noisy": {"augment": "gaussian:0..2"}}
    refused = run(*words[:-1], tmp_path / "other", "--setting", "late@noisy.augment=blur:3")
    assert refused.code == 2
    assert "unknown corruption 'blur'" in refused.err


def test_class_weights(run, table, tmp_path):
    words = (*COLUMNS, "--epochs", "2", "--out")
    assert run("train", table, *words, tmp_path / "model", "--method", "linear", "--class-weight", "balanced").code == 0
    refused = run("train", table, *words, tmp_path / "other", "--class-weight", "ok:3")
    assert refused.code == 2
    assert "--class-weight must be balanced, or have the form CLASS=WEIGHT, got 'ok:3'" in refused.err
    unknown = run("compare", table, *words, tmp_path / "run", "--methods", "linear", "--class-weight", "nothing=3")
    assert unknown.code == 2
    assert "unknown class 'nothing'" in unknown.err


def test_an_npz_of_ones_own(run, arrays, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("compare", arrays, "--methods", "late", "--levels", "5", "--seeds", "1", "--epochs", "2")
    assert done.code == 0
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("rig-")
    assert json.loads((folder / "plan.json").read_text())["sets"]["rig"]["samples"] == 240


@pytest.mark.parametrize(("format", "first"), [("markdown", "**machines**"), ("latex", "% needs")])
def test_formats_print_nothing_but_the_table(run, table, finished, format, first):
    words = ("compare", table, *COLUMNS, "--methods", "late", "concat", *QUICK, "--out", finished)
    done = run(*words, "--format", format)
    assert done.out == reopen(finished).table(format)
    assert done.out.startswith(first)
    assert "report" not in done.out


def test_a_narrow_console_gets_narrow_tables(run, finished, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    done = run("report", finished)
    shown = done.out.partition("report: ")[0].splitlines()
    assert max(map(len, shown)) <= 40
    assert any("80" in line or "±" in line for line in shown)
    assert "…" not in done.out, "a cell was cut"


def test_a_config_file_says_the_same_as_options(run, table, finished, tmp_path):
    config = tmp_path / "machines.yaml"
    config.write_text(
        f"""
data: [{table}]
target: fault
modality: ["vibration=vibration_*", "heat=heat_*,shop"]
methods: [late, concat]
levels: [5]
seeds: 2
epochs: 2
out: {finished}
format: markdown
"""
    )
    done = run("compare", "--config", config)
    assert (done.code, done.err) == (0, "")
    assert done.out == reopen(finished).table("markdown")


def test_options_win_over_the_config_file(run, table, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"out: {tmp_path / 'run'}\nseeds: 9\nepochs: 1\nlevels: [1, 2, 3]\n")
    words = ("compare", table, *COLUMNS, "--methods", "late", "--config", config, "--seeds", "1", "--levels", "5")
    assert run(*words).code == 0
    asked = json.loads((tmp_path / "run" / "plan.json").read_text())["asked"]
    assert (asked["seeds"], asked["levels"], asked["training"]) == (1, [0.0, 5.0], {"epochs": 1})


def test_another_setting_on_the_same_folder_is_refused(run, table, finished):
    words = ("compare", table, *COLUMNS, "--methods", "late", "--seeds", "2", "--epochs", "2", "--out", finished)
    done = run(*words, "--levels", "7")
    assert done.code == 2
    assert "made with other settings: levels was [0.0, 5.0], now [0.0, 7.0]" in done.err
    assert done.err.count("\n") == 1


def test_a_class_without_test_samples(run, tmp_path):
    rng = np.random.default_rng(0)
    part = np.repeat(["train", "validation", "test"], [60, 15, 15])
    label = np.resize(["x", "y", "z"], 90)
    label[(part == "test") & (label == "z")] = "x"
    pl.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "label": label, "part": part}).write_csv(
        tmp_path / "lacks.csv"
    )
    words = ("--target", "label", "--split", "part", "--modality", "one=a", "--modality", "two=b")
    out = tmp_path / "run"
    done = run("compare", tmp_path / "lacks.csv", *words, "--methods", "late", "concat", *QUICK, "--out", out)
    assert done.code == 0, done.err
    findings = reopen(out).findings
    assert not len(findings.failed)
    assert np.isfinite(findings.values["value"].to_numpy()).all()


def test_settings_and_encoders_reach_the_methods(run, arrays, tmp_path):
    out = tmp_path / "run"
    words = ("--setting", "concat.width=7", "--encoder", "heat=mlp", "--batch-size", "32", "--levels", "5")
    more = ("--methods", "concat", "--seeds", "1", "--epochs", "1", "--out", out)
    done = run("compare", arrays, *words, *more)
    assert done.code == 0, done.err
    saved = json.loads((out / "best" / "model.json").read_text())
    assert saved["settings"] == {"width": 7}
    assert saved["encoders"] == {"heat": "mlp"}


def test_one_modality_is_enough(run, table, tmp_path):
    words = ("--target", "fault", "--modality", "heat=heat_*")
    done = run("compare", table, *words, "--methods", "late", *QUICK, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "late alone has results" in done.out


@pytest.mark.slow
def test_twenty_thousand_columns(run, tmp_path):
    rng = np.random.default_rng(0)
    label = np.arange(40) % 2
    values = rng.normal(size=(40, 20_000)).astype(np.float32) + 0.1 * label[:, None]
    names = [f"{'a' if place < 10_000 else 'b'}_{place}" for place in range(20_000)]
    frame = pl.DataFrame(values, schema=names).with_columns(pl.Series("label", np.where(label, "ill", "well")))
    frame.write_parquet(tmp_path / "wide.parquet")
    words = ("--target", "label", "--modality", "left=a_*", "--modality", "right=b_*", "--methods", "late")
    more = ("--levels", "5", "--seeds", "1", "--epochs", "1", "--out", tmp_path / "run")
    done = run("compare", tmp_path / "wide.parquet", *words, *more)
    assert done.code == 0, done.err
    assert "late" in done.out
    predicted = run("predict", tmp_path / "run" / "best", tmp_path / "wide.parquet")
    assert len(predicted.out.splitlines()) == 41


def test_the_choice_is_said_and_can_be_made_by_another_metric(run, table, tmp_path):
    words = ("compare", table, *COLUMNS, "--methods", "late", "concat", *QUICK, "--out", tmp_path / "run")
    said = " ".join(run(*words).out.split())
    assert "best/ holds" in said
    assert "was chosen by its negative log-likelihood on validation samples, clean and corrupted" in said
    assert "too few for any significance; --seeds 6 in the same folder would do" in said
    assert said.index("Deploy ") < said.index("On small") if "On small" in said else said.index("Deploy ") > 0
    other = run(*words, "--choose-by", "accuracy", "--no-refit")
    assert "was chosen by its accuracy on validation samples" in " ".join(other.out.split())
    asked = json.loads((tmp_path / "run" / "plan.json").read_text())["asked"]
    assert (asked["choose_by"], asked["refit"], asked["metric"]) == ("accuracy", False, None)
    told = json.loads((tmp_path / "run" / "best" / "model.json").read_text())["extra"]["trained_on"]
    assert not told["refitted"]
    assert "did you mean 'accuracy'" in run(*words, "--choose-by", "acuracy").err
