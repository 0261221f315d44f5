"""`consilience predict --coverage --abstain-risk`: columns with a stated guarantee."""

import io

import numpy as np
import polars as pl
import pytest

from cli.conftest import machines
from consilience import load
from consilience.evaluation import set_labels


@pytest.fixture
def labelled(tmp_path):
    machines(300, seed=2).write_csv(tmp_path / "labelled.csv")
    return tmp_path / "labelled.csv"


@pytest.fixture
def new(tmp_path):
    machines(30, seed=1).drop("fault").write_csv(tmp_path / "new.csv")
    return tmp_path / "new.csv"


def read(text):
    return pl.read_csv(io.StringIO(text))


def test_sets_and_abstentions(run, model, new, labelled):
    done = run("predict", model, new, "--coverage", "0.9", "--abstain-risk", "0.1", "--calibration", labelled)
    assert done.code == 0
    table, estimator = read(done.out), load(model)
    assert table.columns[-2:] == ["set", "abstained"]
    estimator.calibrate(estimator.read(labelled))
    samples = estimator.read(new)
    sets = set_labels(estimator.predict_set(samples, 0.9), estimator.classes_)
    assert [text or "" for text in table["set"]] == ["|".join(labels) for labels in sets]
    np.testing.assert_array_equal(table["abstained"].to_numpy(), estimator.abstain(samples, 0.1))
    smaller = read(run("predict", model, new, "--coverage", "0.5", "--score", "lac", "--calibration", labelled).out)
    assert "abstained" not in smaller.columns
    assert smaller["set"].fill_null("").str.len_chars().sum() < table["set"].fill_null("").str.len_chars().sum()


def test_the_scores_that_train_saved(run, model, new):
    assert load(model).calibration_.source == "validation"
    assert "set" in read(run("predict", model, new, "--coverage", "0.8").out).columns


def test_a_model_without_calibration_samples(run, finished, new):
    for option in ("--coverage", "--abstain-risk"):
        done = run("predict", finished / "best", new, option, "0.2")
        assert done.code == 2
        assert (
            f"predict: {option} needs calibration samples, and {finished / 'best'} has none: give --calib" in done.err
        )


def test_intervals(run, tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 160))
    pl.DataFrame({"a": a, "b": b, "wear": a + 0.1 * b}).write_csv(tmp_path / "wear.csv")
    words = ("--target", "wear", "--modality", "one=a", "--modality", "two=b", "--epochs", "3")
    run("train", tmp_path / "wear.csv", *words, "--method", "late", "--out", tmp_path / "m")
    table = read(run("predict", tmp_path / "m", tmp_path / "wear.csv", "--coverage", "0.8").out)
    assert table.columns[-2:] == ["low", "high"]
    assert ((table["low"] < table["prediction"]) & (table["prediction"] < table["high"])).all()
    done = run("predict", tmp_path / "m", tmp_path / "wear.csv", "--abstain-risk", "0.1")
    assert done.code == 2
    assert "--abstain-risk is for classes" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--coverage", "1"), "coverage must be a number > 0 and < 1, got 1"),
        (("--coverage", "0.999"), "at least 999 are needed"),
        (("--abstain-risk", "0.001"), "at least 2995 are needed"),
        (("--score", "lac"), "--score is used with --coverage"),
        (("--coverage", "0.9", "--score", "absolute"), "unknown score 'absolute'"),
    ],
)
def test_bad_input_is_one_line(run, model, new, words, message):
    done = run("predict", model, new, *words)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_calibration_needs_targets(run, model, new):
    done = run("predict", model, new, "--coverage", "0.9", "--calibration", new)
    assert done.code == 2
    assert "has no targets" in done.err
