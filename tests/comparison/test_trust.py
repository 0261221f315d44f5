"""What a comparison measures of trust: the same as `trust_diagnostics`, kept lean, and absent from older results."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import confusion_matrix

from consilience import compare, load, load_data, trust_diagnostics
from consilience.comparison import reopen
from consilience.comparison.plan import Job
from consilience.corruption import Corruptor


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=200)
    heat = np.eye(3)[y] + rng.normal(scale=0.6, size=(200, 3))
    sound = np.eye(3)[y][:, ::-1] + rng.normal(scale=0.9, size=(200, 3))
    sound[::7] = np.nan
    folder = tmp_path_factory.mktemp("trust")
    np.savez(folder / "small.npz", heat=heat, sound=sound, y=y)
    plan = {"corruption": ["gaussian", "missing"], "levels": (10,), "seeds": 2, "training": {"epochs": 2}, "verbose": 0}
    return compare(folder / "small.npz", ["late", "qmf", "concat"], out=folder / "run", **plan), folder / "small.npz"


def results(comparison):
    jobs = [Job(**job) for job in comparison.store.read_plan()["jobs"]]
    return [(job, comparison.store.read(job)) for job in jobs]


def test_it_is_what_trust_diagnostics_says_of_the_saved_model(finished):
    comparison, data = finished
    checked = 0
    for job, _ in results(comparison):
        if job.method != "qmf" or not comparison.store.model(job).is_dir():
            continue
        split = load_data(data).resplit(job.seed)
        for corruption, level in (("gaussian", 0.0), ("gaussian", 10.0), ("missing", 10.0)):
            wanted = trust_diagnostics(
                load(comparison.store.model(job)),
                split.test,
                corruption=corruption,
                level=level,
                reference=split.train,
                random_state=job.seed,
            )
            found = comparison.findings.diagnostics.filter(
                method="qmf", seed=job.seed, corruption=corruption, level=level
            )
            for trusted in wanted.modalities:
                row = found.filter(modality=trusted.modality).row(0, named=True)
                assert (row["samples"], row["static"]) == (trusted.samples, trusted.static)
                for name in ("weight", "trust", "static_trust", "loss", "trust_covariance", "trust_gap"):
                    kept = row[name.removeprefix("trust_")] if name not in row else row[name]
                    assert kept == pytest.approx(getattr(trusted, name), abs=1e-5), name
                assert row["r"] == pytest.approx(trusted.correlation.r, abs=1e-4)
                checked += 1
    assert checked


def test_every_method_with_weights_is_there_under_every_condition(finished):
    table = finished[0].trust()
    assert set(table["method"]) == {"late", "qmf"}
    for method in ("late", "qmf"):
        where = table.filter(method=method).select("corruption", "level", "modality").rows()
        assert len(where) == len(set(where)) == 2 * 2 * 2
    assert table["seeds"].to_list() == [2] * len(table)
    assert table.filter(method="late")["static"].all()
    assert table.filter(method="qmf")["r"].is_not_null().all()


def test_nothing_per_sample_is_kept(finished):
    for job, result in results(finished[0]):
        kept = [condition["diagnostics"] for condition in result.about["conditions"] if "diagnostics" in condition]
        assert len(kept) == (0 if job.method == "concat" else 3)  # of the test set, not of validation
        assert all(
            isinstance(value, int | float | bool | str | None)
            for rows in kept
            for row in rows
            for value in row.values()
        )
        kinds = {name.split("/")[0] for name in result.arrays}
        assert kinds <= {"y", "index", "output", "trust", "validation", "validation_index"}


def test_the_page_says_it_and_the_table_has_the_worst_seed(finished):
    comparison = finished[0]
    page = (comparison.folder / "report.html").read_text(encoding="utf-8")
    assert "<h2>Trust, measured</h2>" in page
    assert "<code>late</code> weighs statically" in page
    accuracy = comparison.findings.values.filter(
        pl.col("metric") == "accuracy", pl.col("method") == "qmf", pl.col("level") == 10.0
    )
    worst = accuracy.filter(corruption="gaussian")["value"].min()
    assert f"({100 * worst:.1f}" in comparison.table("markdown", worst=True)
    assert f"worst {100 * worst:.1f}" in page


def test_results_of_an_earlier_version_open(finished):
    comparison = finished[0]
    for job, result in results(comparison):
        for condition in result.about["conditions"]:
            condition.pop("diagnostics", None)
        comparison.store.write(job, result)
    assert reopen(comparison.folder).trust().is_empty()


def test_trust_is_kept_where_a_modality_is_sound_and_where_it_was_hit(finished):
    """A sample is hit where the corrupted values differ from those of the clean set."""
    comparison, data = finished
    checked = 0
    for job, result in results(comparison):
        about = next(
            each
            for each in result.about["conditions"]
            if (each["part"], each["corruption"], each["level"]) == ("test", "gaussian", 10.0)
        )
        if job.method == "concat":
            assert "hit_trust" not in about
            continue
        split = load_data(data).resplit(job.seed)
        noisy = Corruptor(split.train).apply(split.test, "gaussian", 10.0, probability=0.5, random_state=job.seed)
        for place, name in enumerate(("heat", "sound")):
            there = split.test.present_in(name)
            hit = there & (np.asarray(noisy[name]) != np.asarray(split.test[name])).any(axis=1)
            trust = result.arrays[f"trust/{about['array']}"][:, place]
            own = comparison.findings.hit_trust.filter(
                method=job.method, seed=job.seed, corruption="gaussian", level=10.0, modality=name
            )
            assert own["sound"].item() == pytest.approx(trust[there & ~hit].mean(), abs=1e-6)
            assert own["hit"].item() == pytest.approx(trust[hit].mean(), abs=1e-6)
            checked += 1
    assert checked == 2 * 2 * 2
    assert set(comparison.findings.hit_trust["corruption"]) == {"gaussian"}


def test_the_chosen_methods_confusions_are_those_of_its_kept_predictions(finished):
    comparison, _ = finished
    table, chosen = comparison.findings.confusion, comparison.choice.method
    kept = [result for job, result in results(comparison) if job.method == chosen]
    y = np.concatenate([result.arrays["y"] for result in kept])
    taken = np.concatenate([result.arrays["output/0"].argmax(axis=1) for result in kept])
    wanted = confusion_matrix(y, taken)
    assert set(table["method"]) == {chosen}
    assert np.array_equal(table["samples"].to_numpy().reshape(3, 3), wanted)
    assert table["share"].to_numpy().reshape(3, 3) == pytest.approx(wanted / wanted.sum(axis=1, keepdims=True))
