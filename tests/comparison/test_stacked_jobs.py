"""A comparison whose seeds are trained side by side finds what it finds one seed after another."""

import numpy as np
import polars as pl
import pytest

from consilience import compare, load
from consilience.comparison import stacked_jobs as together
from consilience.comparison.comparison import read_finished
from consilience.core.errors import TableWarning, TrainingError
from consilience.core.samples import Samples
from consilience.data import DataSet, load_data
from consilience.data.splits import draw_split

ENCODER = {"name": "mlp", "hidden": [4], "dropout": 0.0}
PROTOCOL = {
    "levels": (0,),
    "seeds": 2,
    "reference": "concat",
    "encoders": {"a": ENCODER, "b": ENCODER},
    "settings": {"concat": {"dropout": 0.0, "width": 4}, "concat@wider": {"dropout": 0.0, "width": 6}},
    "training": {"epochs": 2, "device": "cpu"},
    "verbose": 0,
}
METHODS = ["concat", "concat@wider", "unimodal:a"]


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    y = np.arange(120) % 2
    values = {name: random.normal(y[:, None], 1, size=(120, 3)).astype(np.float32) for name in "ab"}
    return DataSet("small", Samples.of(values, y), "classification", *draw_split(y, "classification"))


def results(comparison):
    written = comparison.store.read_plan()
    return {(job.method, job.seed): result for job, result in read_finished(comparison.store, written)}


def test_the_findings_are_the_same(data, tmp_path):
    alone = compare(data, METHODS, **PROTOCOL, out=tmp_path / "alone")
    beside = compare(data, METHODS, **PROTOCOL, out=tmp_path / "beside", side_by_side=True)
    first, second = results(alone), results(beside)
    assert first.keys() == second.keys()
    for key, result in second.items():
        # The expert of one modality has a training of its own: the engine does it.
        assert result.about.get("side_by_side") == (None if key[0] == "unimodal:a" else 2)
        assert (result.about["epochs"], result.about["parameters"]) == (2, first[key].about["parameters"])
        np.testing.assert_allclose(result.arrays["output/0"], first[key].arrays["output/0"], atol=1e-5)
    assert (beside.bests["small"] / "job.key").read_text() == (alone.bests["small"] / "job.key").read_text()


def test_what_is_not_trained_by_gradients_is_trained_as_always(data, tmp_path, caplog):
    names = ["linear", "majority", "boosted"]
    how = {**PROTOCOL, "settings": {}, "reference": "linear"}
    alone = compare(data, names, **how, out=tmp_path / "alone")
    beside = compare(data, names, **how, out=tmp_path / "beside", side_by_side=True)
    first, second = results(alone), results(beside)
    assert first.keys() == second.keys()
    for key, result in second.items():
        assert "side_by_side" not in result.about
        np.testing.assert_array_equal(result.arrays["output/0"], first[key].arrays["output/0"])
    assert caplog.text.count("it is not trained by gradients; its seeds are trained one by one") == 3


def test_class_weights_reach_both(data, tmp_path):
    weighted = {**PROTOCOL, "settings": {"concat": PROTOCOL["settings"]["concat"]}, "class_weight": {"1": 20}}
    weighted["training"] = {"epochs": 20, "device": "cpu"}
    alone = compare(data, ["concat"], **weighted, out=tmp_path / "alone")
    beside = compare(data, ["concat"], **weighted, out=tmp_path / "beside", side_by_side=True)
    for key, result in results(beside).items():
        assert result.about["side_by_side"] == 2
        output = results(alone)[key].arrays["output/0"]
        np.testing.assert_allclose(result.arrays["output/0"], output, atol=1e-5)
    plain = compare(data, ["concat"], **{**weighted, "class_weight": None}, out=tmp_path / "plain")
    shares = [np.mean([r.arrays["output/0"][:, 1].mean() for r in results(run).values()]) for run in (alone, plain)]
    assert shares[0] > shares[1] + 0.05
    again = load(alone.best)
    assert again.get_params()["class_weight"] == {1: 20.0}


def test_what_breaks_is_left_to_the_engine(data, tmp_path, monkeypatch, caplog):
    def fail(*given, **how):
        raise TrainingError("training concat side by side: with seed 1 the loss broke")

    monkeypatch.setattr("consilience.training.stacked_seeds.train_side_by_side", fail)
    found = compare(data, ["concat"], **{**PROTOCOL, "settings": {}}, out=tmp_path / "run", side_by_side=True)
    assert len(results(found)) == 2
    assert "the loss broke; its seeds are trained one by one" in caplog.text


def test_a_method_that_cannot_be_trained_side_by_side_is_named_once(data, tmp_path, caplog):
    compare(data, ["best-unimodal"], **{**PROTOCOL, "settings": {}}, out=tmp_path / "run", side_by_side=True)
    said = [text for text in caplog.messages if "trained one by one" in text]
    assert len(said) == 1
    assert "method 'best-unimodal' cannot be trained side by side: " in said[0]


def test_a_gap_that_only_one_seed_trains_on_does_not_end_the_comparison(tmp_path, caplog):
    random = np.random.default_rng(0)
    table = pl.DataFrame({name: random.normal(size=120) for name in "abcd"} | {"y": np.arange(120) % 2})
    plain = load_data(table, target="y", modalities={"a": ["a", "b"], "b": ["c", "d"]})
    parts = [plain.resplit(seed).split for seed in (0, 1)]
    row = np.flatnonzero((parts[0] == "train") & (parts[1] != "train"))[0]
    gappy = table.with_columns(a=pl.when(pl.int_range(120) == row).then(None).otherwise("a"))
    with pytest.warns(TableWarning, match="1 of modality 'a'"):
        data = load_data(gappy, target="y", modalities={"a": ["a", "b"], "b": ["c", "d"]})
    shapes = [data.resplit(seed).train.modalities["a"].shape for seed in (0, 1)]
    assert shapes == [(3,), (2,)]
    found = compare(data, ["concat"], **{**PROTOCOL, "settings": {}}, out=tmp_path / "run", side_by_side=True)
    assert [result.failed for result in results(found).values()] == [False, False]
    assert "its seeds have modalities of different shapes; its seeds are trained one by one" in caplog.text


def test_a_single_open_seed_is_no_group(data, tmp_path, monkeypatch):
    compare(data, ["concat"], **{**PROTOCOL, "settings": {}, "seeds": 1}, out=tmp_path / "run")
    monkeypatch.setattr(together, "fit", lambda *given: pytest.fail("one seed was trained side by side with itself"))
    found = compare(data, ["concat"], **{**PROTOCOL, "settings": {}}, out=tmp_path / "run", side_by_side=True)
    assert len(results(found)) == 2
