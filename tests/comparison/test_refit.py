"""`best/` holds the chosen method, trained once more on everything but the test samples."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from consilience import compare, load, load_data
from consilience.comparison import reopen
from consilience.comparison.publishing import read_finished
from consilience.comparison.refit import median_steps
from consilience.comparison.store import Result
from consilience.core.errors import TrainingError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.training import Model
from documents import ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "run_0_2"
PROTOCOL = {"seeds": 3, "levels": (), "training": {"epochs": 4}, "verbose": 0}
# Killed in the refit, when its training has ended and nothing is saved yet.
KILLED = """
import os, signal, sys
from consilience import compare
from consilience.training import Model

fit = Model.fit.__func__

def die(cls, *given, trainer, **settings):
    model = fit(cls, *given, trainer=trainer, **settings)
    if trainer.refit_steps is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return model

Model.fit = classmethod(die)
compare(sys.argv[1], ["late"], seeds=3, levels=(), training={"epochs": 4}, verbose=0, out=sys.argv[2])
"""


def make_samples(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    return Samples.of({name: np.eye(3)[y] + rng.normal(scale=0.6, size=(n, 3)) for name in ("heat", "sound")}, y)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "small.npz"
    samples = make_samples()
    np.savez(path, heat=samples["heat"], sound=samples["sound"], y=samples.y)
    return path


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    return compare(small, ["late", "concat"], out=tmp_path_factory.mktemp("runs") / "run", **PROTOCOL)


@pytest.fixture
def fits(monkeypatch):
    """Every call of `Model.fit`: the rows it learns from and validates on, and its trainer."""
    calls, fit = [], Model.fit.__func__

    def spy(cls, name, train, validation=None, *, trainer, **settings):
        calls.append((train.index, None if validation is None else validation.index, trainer))
        return fit(cls, name, train, validation, trainer=trainer, **settings)

    monkeypatch.setattr(Model, "fit", classmethod(spy))
    return calls


def described(folder):
    return json.loads((folder / "model.json").read_text())["extra"]["trained_on"]


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


def test_the_refit_learns_from_validation_rows_and_never_from_test_rows(small, tmp_path, fits):
    done = compare(small, ["late"], out=tmp_path / "run", **PROTOCOL)
    data = load_data(small).resplit(0)
    *seeds, (rows, validation, trainer) = fits
    assert len(seeds) == 3
    assert all(used.refit_steps is None and held_out is not None for _, held_out, used in seeds)
    assert (trainer.seed, validation) == (0, None)
    assert set(rows) == {*data.train.index, *data.validation.index}
    assert not set(rows) & set(data.test.index)
    assert described(done.best)["rows"] == len(rows) == 102


def test_a_split_of_ones_own_keeps_its_test_rows(tmp_path, fits):
    split = np.array(["test"] * 20 + ["validation"] * 30 + ["train"] * 70)
    data = DataSet("own", make_samples(), "classification", split, official_split=True, drawn_validation=False)
    compare(data, ["late"], out=tmp_path / "run", **PROTOCOL)
    rows, _, trainer = fits[-1]
    assert trainer.refit_steps is not None
    assert sorted(rows) == list(range(20, 120))
    assert all(min(train) >= 50 for train, _, used in fits if used.refit_steps is None)


def test_each_of_two_sets_is_refitted(small, tmp_path, fits):
    other = DataSet("other", make_samples(90, seed=1), "classification", load_data(small).split[:90])
    done = compare([small, other], ["late"], out=tmp_path / "run", **{**PROTOCOL, "seeds": 2})
    assert sum(trainer.refit_steps is not None for *_, trainer in fits) == 2
    assert {name: described(folder)["set"] for name, folder in done.bests.items()} == {
        "small": "small",
        "other": "other",
    }
    assert {choice.published.folder for choice in done.choices.values()} == {"best/small", "best/other"}
    page = (done.folder / "report.html").read_text()
    assert "<code>best/small/</code> holds <code>late</code>, trained once more on all 102 samples" in page


def test_the_steps_are_the_median_over_seeds_at_the_size_of_the_larger_set(finished, small):
    data = load_data(small)
    results = read_finished(finished.store, finished.store.read_plan())
    chosen = [result for job, result in results if job.method == finished.choice.method]
    epochs = [1 + min(result.about["log"], key=lambda row: row["validation_loss"])["epoch"] for result in chosen]
    each = -(-len(data.train) // 64)
    published = finished.choice.published
    assert published.steps == ((round(np.median(epochs) * each),),)
    assert described(finished.best)["steps"] == [list(run) for run in published.steps]


def test_steps_are_the_medians_of_runs_and_phases():
    seeds = [[[10], [4, 6]], [[30], [5, 7]], [[20], [9, 8]], [[1]]]
    assert median_steps([Result({"steps": steps}) for steps in seeds]) == [[20], [5, 7]]
    assert median_steps([Result({}), Result({"steps": [[3]]})]) == [[3]]
    assert median_steps([Result({})]) is None


def test_what_the_model_says_of_itself_is_what_the_comparison_says(finished, small):
    choice, told = finished.choice, described(finished.best)
    assert (told["method"], told["seed"], told["refitted"]) == (choice.method, 0, True)
    assert told["parts"] == ["train", "validation"]
    assert choice.published.method == load(finished.best).method == choice.method
    test = load_data(small).resplit(0).test
    accuracy = float(np.mean(load(finished.best).predict(test) == test.y))
    assert choice.published.values["accuracy"] == pytest.approx(accuracy)
    page = (finished.folder / "report.html").read_text()
    first = page[page.index("<dt>The file</dt>") :].split("<dd>")[1]
    assert first.startswith(
        f"<code>best/</code> holds <code>{choice.method}</code>, trained once more on all 102 samples"
    )
    assert f"which it has not seen, is {100 * accuracy:.1f}\N{NO-BREAK SPACE}%." in first
    assert reopen(finished.folder).choice == choice


def test_without_refit_the_median_seed_is_published(small, finished, tmp_path, fits):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    done = compare(small, ["late", "concat"], out=folder, refit=False, **PROTOCOL)
    assert not fits, "the model of the median seed is kept"
    results = read_finished(done.store, done.store.read_plan())
    losses = {
        job.seed: result.about["conditions"][-1]["metrics"]["nll"]
        for job, result in results
        if job.method == done.choice.method
    }
    told = described(done.best)
    assert told["seed"] == sorted(losses, key=losses.get)[1]
    assert (told["refitted"], told["parts"], told["rows"]) == (False, ["train"], 84)
    assert not list(done.store.jobs.glob("refit-*"))
    again = compare(small, ["late", "concat"], out=folder, **PROTOCOL)
    assert len(fits) == 1
    assert weights(again.best) == weights(finished.best)


def test_choosing_by_another_metric_trains_no_seed_again(small, finished, tmp_path, fits):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    done = compare(small, ["late", "concat"], out=folder, choose_by="accuracy", **PROTOCOL)
    assert all(trainer.refit_steps is not None for *_, trainer in fits)
    assert done.choice.metric == "accuracy"
    assert done.findings.metric == "accuracy"
    assert done.findings.values.equals(finished.findings.values)
    shown = compare(small, ["late", "concat"], out=folder, metric="nll", **PROTOCOL)
    assert (shown.choice.metric, shown.findings.metric) == ("nll", "nll")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_model_whatever_runs_it(small, finished, tmp_path, workers):
    done = compare(small, ["late", "concat"], out=tmp_path / "run", jobs=workers, **PROTOCOL)
    own, theirs = (load_file(each.best / "weights.safetensors") for each in (done, finished))
    assert own.keys() == theirs.keys()
    for name, weight in own.items():  # a process of several may have another number of threads
        np.testing.assert_allclose(weight, theirs[name], rtol=1e-5, atol=1e-7)
    assert [path for path in (tmp_path / "run" / "models").iterdir() if path.name.startswith("refit-")] == []


def interrupted_refit(monkeypatch):
    fit = Model.fit.__func__

    def stop(cls, *given, trainer, **settings):
        if trainer.refit_steps is not None:
            raise KeyboardInterrupt
        return fit(cls, *given, trainer=trainer, **settings)

    monkeypatch.setattr(Model, "fit", classmethod(stop))


def test_an_interruption_leaves_no_model_and_the_next_call_the_same(small, finished, tmp_path, monkeypatch):
    call = {"out": tmp_path / "run", **PROTOCOL}
    with monkeypatch.context() as patched:
        interrupted_refit(patched)
        with pytest.raises(KeyboardInterrupt):
            compare(small, ["late", "concat"], **call)
    assert not (tmp_path / "run" / "best").exists()
    stopped = reopen(tmp_path / "run")
    assert stopped.choice.published is None
    assert "<code>best/</code> holds no model yet" in (tmp_path / "run" / "report.html").read_text()
    assert weights(compare(small, ["late", "concat"], **call).best) == weights(finished.best)


def test_an_interruption_leaves_the_model_that_was_there(small, tmp_path, monkeypatch):
    call = {"out": tmp_path / "run", **PROTOCOL}
    before = weights(compare(small, ["late"], **call).best)
    more = {**call, "seeds": 4}
    with monkeypatch.context() as patched:
        interrupted_refit(patched)
        with pytest.raises(KeyboardInterrupt):
            compare(small, ["concat"], **more)
    assert weights(tmp_path / "run" / "best") == before
    assert "It is not the method chosen now" in reopen_page(tmp_path / "run")
    done = compare(small, ["concat"], **more)
    assert described(done.best)["method"] == "concat"
    assert "It is not the method chosen now" not in reopen_page(tmp_path / "run")


def reopen_page(folder):
    reopen(folder)
    return (folder / "report.html").read_text()


def test_a_kill_in_the_refit_leaves_nothing_half_done(small, tmp_path):
    run = tmp_path / "run"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(small), str(run)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (run / "best").exists()
    assert len(list((run / "jobs").glob("*.npz"))) == 3
    calm = compare(small, ["late"], out=tmp_path / "calm", **PROTOCOL)
    done = compare(small, ["late"], out=run, **PROTOCOL)
    assert weights(done.best) == weights(calm.best)
    assert not list(run.rglob("*.lock"))


def test_a_refit_that_fails_is_said_and_a_trained_model_is_published(small, tmp_path, monkeypatch, caplog):
    fit = Model.fit.__func__

    def fail(cls, *given, trainer, **settings):
        if trainer.refit_steps is not None:
            raise TrainingError("a wheel came off")
        return fit(cls, *given, trainer=trainer, **settings)

    call = {"out": tmp_path / "run", **PROTOCOL}
    with monkeypatch.context() as patched:
        patched.setattr(Model, "fit", classmethod(fail))
        done = compare(small, ["late"], **call)
    assert "refitted on train and validation failed: TrainingError: a wheel came off" in caplog.text
    assert not described(done.best)["refitted"]
    assert done.choice.reason == "TrainingError: a wheel came off"
    assert "It was not refitted: TrainingError: a wheel came off." in (done.folder / "report.html").read_text()
    mended = compare(small, ["late"], **call)
    assert (described(mended.best)["refitted"], mended.choice.reason) == (True, "")


def test_a_regression_is_refitted(tmp_path):
    data = load_data("progressive-synthetic", n=200)
    done = compare(data, ["late", "concat"], out=tmp_path / "run", **{**PROTOCOL, "levels": (5,), "seeds": 2})
    assert done.choice.metric == "mse"
    assert described(done.best)["rows"] == (data.split != "test").sum()
    assert load(done.best).predict(data.test).shape == (len(data.test),)
    assert done.choice.by_rows


def test_with_tuning_the_settings_are_those_of_the_median_seed(small, tmp_path, fits):
    done = compare(small, ["late"], tune=2, out=tmp_path / "run", **PROTOCOL)
    results = read_finished(done.store, done.store.read_plan())
    losses = {result.about["conditions"][-1]["metrics"]["nll"]: result for _, result in results}
    median = losses[sorted(losses)[1]]
    trainer = fits[-1][2]
    assert (trainer.lr, trainer.optimizer) == tuple(
        median.about["tuning"]["chosen"][name] for name in ("lr", "optimizer")
    )
    assert trainer.refit_steps == median.about["steps"]
    assert load(done.best).lr == trainer.lr


def test_seeds_trained_side_by_side_tell_the_same_steps(small, tmp_path):
    steps = []
    for together in (False, True):
        out = tmp_path / str(together)
        done = compare(
            small, ["concat"], settings={"concat": {"dropout": 0.0}}, out=out, side_by_side=together, **PROTOCOL
        )
        results = read_finished(done.store, done.store.read_plan())
        assert all(("side_by_side" in result.about) == together for _, result in results)
        steps.append([result.about["steps"] for _, result in results])
    assert steps[0] == steps[1]


def test_categories_of_a_table_are_learned_from_validation_rows_too(tmp_path):
    rng = np.random.default_rng(0)
    n = 80
    part = np.array(["train"] * 50 + ["validation"] * 15 + ["test"] * 15)
    hall = np.where(rng.random(n) < 0.5, "north", "south")
    hall[55], hall[70] = "east", "west"  # seen in validation alone, and in test alone
    y = rng.integers(0, 2, size=n)
    lines = [f"{y[i] + rng.normal():.3f},{rng.normal():.3f},{hall[i]},{part[i]},{y[i]}" for i in range(n)]
    path = tmp_path / "halls.csv"
    path.write_text("\n".join(["a_0,b_0,b_hall,part,y", *lines]))
    done = compare(
        path,
        ["late"],
        target="y",
        modalities={"a": "a_*", "b": "b_*"},
        split="part",
        out=tmp_path / "run",
        **{**PROTOCOL, "seeds": 1},
    )
    assert '"east"' in (text := (done.best / "model.json").read_text())
    assert '"west"' not in text


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A run folder of the version before methods were refitted; jobs of another version have other names."""
    for room in ("plan", "store"):
        monkeypatch.setattr(f"consilience.comparison.{room}.__version__", "0.2.0")
    return shutil.copytree(FIXTURE, tmp_path / "old")


def test_a_run_folder_from_before_is_opened(old):
    found = reopen(old / "run")
    assert sorted(set(found.findings.values["method"])) == ["concat", "late"]
    choice = found.choice
    assert (choice.metric, choice.by_rows, choice.seeds) == ("nll", False, 2)
    published = choice.published
    assert (published.refitted, published.rows, published.steps) == (False, 42, ())
    assert published.method == json.loads((old / "run" / "best" / "model.json").read_text())["method"]
    assert "as trained with seed" in (old / "run" / "report.html").read_text()
    load(found.best)


def test_a_run_folder_from_before_is_extended(old, fits):
    encoder = {"name": "mlp", "hidden": [4]}
    call = {
        "corruption": "gaussian",
        "levels": (5,),
        "encoders": {"heat": encoder, "sound": encoder},
        "settings": {"concat": {"width": 4}},
        "training": {"epochs": 3},
        "out": old / "run",
        "verbose": 0,
    }
    before = reopen(old / "run").findings.values
    same = compare(old / "tiny.npz", ["late", "concat"], seeds=2, **call)
    assert same.findings.values.equals(before)
    assert "did not keep the number of steps" in same.choice.reason
    fits.clear()
    more = compare(old / "tiny.npz", ["late", "concat"], seeds=3, **call)
    assert [trainer.refit_steps is not None for *_, trainer in fits] == [False, False, True]
    assert described(more.best)["refitted"]
    assert more.findings.values.filter(more.findings.values["seed"] < 2).equals(before)
