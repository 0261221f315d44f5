"""`consilience explain`: words, tables, and files that hold what `explain` gives in Python."""

import json

import numpy as np
import pytest

from cli.conftest import machines
from consilience import BayesFusion, load
from consilience.evaluation import permutation_importance


@pytest.fixture
def new(tmp_path):
    path = tmp_path / "new.csv"
    machines(30, seed=1).drop("fault").write_csv(path)
    return path


def test_words_and_a_table_of_one_row(run, model, new):
    done = run("explain", model, new, "--row", "17")
    assert done.code == 0, done.err
    trained = load(model)
    expected = trained.explain(trained.read(new))
    sentences = done.out.split("\n\n")[0].splitlines()
    assert sentences[0].startswith("Row 17: the decision is ")
    assert sentences[0] == expected.text(17).splitlines()[0]
    for part in expected[17].parts:
        assert part.name in done.out
        if part.present:
            assert f"{abs(part.contribution):.3f}" in done.out


def test_several_rows_as_json(run, model, new, tmp_path):
    done = run("explain", model, new, "--row", "3", "17", "--out", tmp_path / "why.json")
    assert done.code == 0, done.err
    written = json.loads((tmp_path / "why.json").read_text())
    assert [row["row"] for row in written["rows"]] == [3, 17]
    assert written["mean"] is None
    trained = load(model)
    found = trained.explain(trained.read(new))
    for row in written["rows"]:
        values = [part["contribution"] for part in row["parts"]]
        np.testing.assert_allclose(values, found.contributions.values[row["row"]], atol=1e-6)
        assert sum(values) == pytest.approx(row["all"] - row["none"], abs=1e-6)


def test_without_rows_the_mean_contribution_to_the_accuracy(run, model, table, tmp_path):
    done = run("explain", model, table, "--out", tmp_path / "mean.json")
    assert done.code == 0, done.err
    assert "the mean accuracy is" in done.out
    written = json.loads((tmp_path / "mean.json").read_text())
    trained = load(model)
    samples = trained.read(table)
    assert written["value"] == "accuracy"
    assert written["rows"] == []
    assert written["mean"]["all"] == pytest.approx(trained.score(samples))
    expected = trained.explain(samples, value="accuracy").mean()
    np.testing.assert_allclose(written["mean"]["values"], expected.values, atol=1e-6)


def test_without_targets_the_mean_is_of_the_probability(run, model, new):
    done = run("explain", model, new, "--samples", "10")
    assert done.code == 0, done.err
    assert "Over 10 samples, the mean probability of the predicted class is" in done.out


@pytest.mark.parametrize(
    ("words", "ending", "beginning"),
    [
        (("--row", "3", "17"), "html", b"<!doctype html>"),
        ((), "html", b"<!doctype html>"),
        (("--row", "3"), "png", b"\x89PNG"),
        (("--row", "3", "--value", "log-probability", "--of", "leak"), "svg", b"<svg"),
        ((), "png", b"\x89PNG"),
    ],
)
def test_pages_and_pictures(run, model, new, tmp_path, words, ending, beginning):
    out = tmp_path / f"why.{ending}"
    done = run("explain", model, new, *words, "--out", out)
    assert done.code == 0, done.err
    assert done.out.endswith(f"written: {out}\n")
    content = out.read_bytes()
    assert content.startswith(beginning)
    if ending == "html" and words:
        assert b'<section id="row-17">' in content
        assert content.count(b"<figure ") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--row", "30"), "--row 30: {new} has 30 rows, from 0 to 29"),
        (("--row", "-1"), "--row must be a whole number ≥ 0, got -1"),
        (("--row", "1", "2", "--out", "why.png"), "a picture shows one row"),
        (("--row", "1", "--out", "why.pdf"), "--out must end in .html, .png, .svg, .json, got 'why.pdf'"),
        (("--row", "1", "--of", "leek"), "unknown class 'leek': did you mean 'leak'?"),
        (("--row", "1", "--value", "mse"), "value='mse' is not for classification"),
        (("--row", "1", "--value", "accuracy"), "value='accuracy' compares with the true targets: give y"),
        (("--row", "1", "--coverage", "1.5"), "--coverage must be a number > 0 and < 1, got 1.5"),
    ],
)
def test_errors_are_one_line(run, model, new, words, message):
    done = run("explain", model, new, *words)
    assert done.code == 2
    assert message.format(new=new) in done.err
    assert done.err.count("\n") == 1


def test_the_data_are_not_overwritten(run, model, tmp_path):
    path = tmp_path / "new.json"
    path.write_text("{}")
    done = run("explain", model, path, "--out", path)
    assert done.code == 2
    assert "would overwrite an input file" in done.err


def test_a_fusion_of_opinions_is_for_python(run, new, tmp_path):
    rng = np.random.default_rng(0)
    folder = (
        BayesFusion(kappa="none").fit(rng.normal(size=(40, 2, 2)), rng.integers(2, size=40)).save(tmp_path / "bayes")
    )
    done = run("explain", folder, new, "--row", "1")
    assert done.code == 2
    assert "is a BayesFusion" in done.err


def test_permutation_importance(run, model, table, new, tmp_path):
    done = run("explain", model, table, "--permute", "--repeats", "3", "--out", tmp_path / "importance.json")
    assert done.code == 0, done.err
    assert "how much worse with a group shuffled" in " ".join(done.out.split())
    written = json.loads((tmp_path / "importance.json").read_text())
    trained = load(model)
    samples = trained.read(table)
    expected = permutation_importance(trained, samples, repeats=3)
    assert written["groups"] == list(expected.groups)
    np.testing.assert_allclose(written["importance"], expected.values)
    every = ",".join(expected.groups)
    grouped = run("explain", model, table, "--permute", f"everything={every}", "--metric", "nll")
    assert grouped.code == 0, grouped.err
    assert "everything" in grouped.out
    for words, message in (
        ((table, "--permute", "--row", "3"), "--permute shuffles all rows"),
        ((table, "--permute", "--out", tmp_path / "x.png"), "--permute writes .json only"),
        ((new, "--permute"), "lacks the target column"),
        ((table, "--permute", "g=nothing"), "unknown modality 'nothing'"),
        ((table, "--metric", "nll"), "--metric is that of --permute"),
    ):
        refused = run("explain", model, *words)
        assert refused.code == 2
        assert message in refused.err
