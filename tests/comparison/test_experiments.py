"""Named experiments: their protocols are ones that can be run, and ours stand beside the published figures."""

import inspect

import numpy as np
import polars as pl
import pytest

from consilience import compare, load_data
from consilience.comparison.comparison import applicable
from consilience.comparison.experiments import Experiment, experiments, find_experiment, register_experiment
from consilience.corruption import corruption_names
from consilience.errors import ConsilienceError, UnknownNameError

ALL = [one for one in experiments().values() if isinstance(one, Experiment)]


@pytest.mark.parametrize("experiment", ALL, ids=lambda one: one.name)
def test_protocols_are_arguments_of_compare(experiment):
    allowed = set(inspect.signature(compare).parameters)
    assert "data" in experiment.full
    assert experiment.full.keys() | experiment.quick.keys() <= allowed
    for protocol in (experiment.full, {**experiment.full, **experiment.quick}):
        asked = protocol.get("corruption") or []
        assert {name for name in asked if isinstance(name, str)} <= set(corruption_names())
    smaller = {**experiment.full, **experiment.quick}
    assert smaller["seeds"] < experiment.full["seeds"]


@pytest.mark.parametrize("experiment", [one for one in ALL if one.full["data"] == "digits"], ids=lambda one: one.name)
def test_methods_serve_the_data(experiment):
    run, _ = applicable(experiment.full.get("methods"), "", load_data(experiment.full["data"]))
    assert "late" in run


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=120)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, a=y[:, None] + rng.normal(size=(120, 2)), b=y[:, None] + rng.normal(size=(120, 3)), y=y)
    return path


def test_ours_beside_the_published(small, tmp_path):
    experiment = Experiment(
        name="invented",
        title="An experiment of one's own",
        full={
            "data": small,
            "methods": ["late"],
            "corruption": "gaussian",
            "levels": (5,),
            "seeds": 50,
            "training": {"epochs": 2},
        },
        quick={"seeds": 2},
        published={("late", "gaussian", 5.0): 0.75},
    )
    comparison = experiment.run(quick=True, out=tmp_path / "run", verbose=0)
    beside = experiment.beside_published(comparison)
    values = comparison.findings.values.filter((pl.col("metric") == "accuracy") & (pl.col("level") == 5))
    assert len(values) == 2
    row = beside.filter(pl.col("level") == 5).row(0, named=True)
    assert row["ours"] == pytest.approx(np.mean(values["value"].to_numpy()))
    assert row["std"] == pytest.approx(np.std(values["value"].to_numpy(), ddof=1))
    assert row["difference"] == pytest.approx(row["ours"] - 0.75)
    assert beside.filter(pl.col("level") == 0)["published"].to_list() == [None]


def test_names_are_known_once(monkeypatch):
    known = find_experiment("digits-robustness")
    with pytest.raises(ConsilienceError, match="'digits-robustness' is registered twice"):
        register_experiment(known)
    with pytest.raises(UnknownNameError, match="did you mean 'digits-robustness'"):
        find_experiment("digits-robust")
