"""The comparison as a user meets it: table, statistics, best model, resumption, failures."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from torch import zeros
from torch.utils.data import TensorDataset

from consilience import compare, corrupt, load, load_data
from consilience.comparison.gather_results import sample_scores
from consilience.comparison.plan import Plan, Source, applicable
from consilience.core.errors import InputError, SavedModelError, TrainingError, UnknownNameError, UnsupportedError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.evaluation import find_metric
from consilience.methods import METHODS, register

QUICK = {"training": {"epochs": 2}, "verbose": 0}
NOISE = {"corruption": "gaussian"}
NO_PROCESS = 2**22 + 1  # larger than the largest number of a process


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A set of one's own with a sensor that fails now and then."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=240)
    heat = np.eye(3)[y] + rng.normal(scale=0.6, size=(240, 3))
    sound = np.eye(3)[y][:, ::-1] + rng.normal(scale=0.9, size=(240, 3))
    sound[::7] = np.nan
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, heat=heat, sound=sound, y=y)
    return path


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "small"
    return compare(small, ["late", "concat", "best-unimodal"], seeds=3, levels=(5,), out=out, **NOISE, **QUICK)


def test_the_table_has_every_method_and_condition(finished):
    values = finished.findings.values.filter(pl.col("metric") == "accuracy")
    assert set(values["method"]) == {"late", "concat", "best-unimodal"}
    assert sorted(set(values["level"])) == [0.0, 5.0]
    assert len(values) == 3 * 3 * 2
    assert values["value"].is_between(0, 1).all()


def test_values_agree_with_the_stored_predictions(finished):
    stored = [finished.store.read(job) for job in _jobs(finished)]
    for result in stored:
        clean = next(
            condition
            for condition in result.about["conditions"]
            if condition["level"] == 0 and condition["part"] == "test"
        )
        wanted = np.mean(result.arrays[f"output/{clean['array']}"].argmax(1) == result.arrays["y"])
        row = finished.findings.values.filter(
            (pl.col("method") == result.about["method"])
            & (pl.col("seed") == result.about["seed"])
            & (pl.col("level") == 0)
            & (pl.col("metric") == "accuracy")
        )
        assert row["value"].item() == pytest.approx(wanted)


def test_all_methods_share_a_seeds_split_and_seeds_differ(finished):
    tested = {}
    for result in (finished.store.read(job) for job in _jobs(finished)):
        tested.setdefault(result.about["seed"], set()).add(tuple(result.arrays["index"]))
    assert all(len(seeds) == 1 for seeds in tested.values())
    assert len(set.union(*tested.values())) == 3


def test_the_best_model_loads_and_predicts(finished, small):
    model = load(finished.best)
    data = load_data(small)
    assert model.score(data.test, data.test.y) > 0.5


def test_trust_sums_to_one(finished):
    trust = finished.findings.trust.filter(pl.col("method") == "late")
    sums = trust.group_by("seed", "level").agg(pl.col("trust").sum())
    np.testing.assert_allclose(sums["trust"].to_numpy(), 1.0, rtol=1e-6)


def test_variants_of_a_method_are_compared_under_their_labels(small, tmp_path):
    chosen = {"late@weak": {"expert_loss": 0.0}, "concat": {"width": 4}}
    both = compare(small, ["late", "late@weak", "concat"], settings=chosen, seeds=1, out=tmp_path / "both", **QUICK)
    assert both.findings.methods == ["late", "late@weak", "concat"]
    assert both.findings.papers["late@weak"] == both.findings.papers["late"]
    alone = compare(small, ["late"], settings={"late": chosen["late@weak"]}, seeds=1, out=tmp_path / "alone", **QUICK)
    columns = ["corruption", "level", "metric", "value"]
    variant = both.findings.values.filter(method="late@weak").select(columns)
    assert variant.equals(alone.findings.values.select(columns))
    assert not variant.equals(both.findings.values.filter(method="late").select(columns))
    models = {json.loads(path.read_text())["method"] for path in (tmp_path / "both" / "models").glob("*/model.json")}
    assert models == {"late", "concat"}  # a saved variant is the method with its settings
    with pytest.raises(InputError, match="'late@wide' is a variant of a method, and has no settings of its own"):
        compare(small, ["late@wide"], **QUICK)
    with pytest.raises(UnknownNameError, match="It was given in settings"):
        compare(small, ["late"], settings={"late@wide": {}}, **QUICK)


@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_variant_may_have_its_own_training(small, tmp_path, side_by_side):
    chosen = {"late@noisy": {"augment": "gaussian:0..1", "epochs": 1, "expert_loss": 0.5}}
    further = {"seeds": 2, "levels": (2,), **NOISE, "verbose": 0, "side_by_side": side_by_side}
    training = {"epochs": 2, "augment": "gaussian:0..1"}
    both = compare(
        small, ["late", "late@noisy"], settings=chosen, training={"epochs": 2}, out=tmp_path / "both", **further
    )
    assert "of late@noisy were corrupted too, by the setting augment" in both.report().read_text()
    own = {"late": {"expert_loss": 0.5}}
    alone = compare(small, ["late"], settings=own, training=training | {"epochs": 1}, out=tmp_path / "alone", **further)
    columns = ["seed", "level", "metric", "value"]
    variant = both.findings.values.filter(method="late@noisy").select(columns)
    assert variant.equals(alone.findings.values.select(columns))
    saved = {(load(path).augment, load(path).epochs) for path in (tmp_path / "both" / "models").iterdir()}
    assert saved == {(None, 2), ("gaussian:0..1", 1)}


def test_too_few_seeds_are_said(finished):
    assert "3 seeds cannot reach significance here" in finished.findings.notes[0]
    assert not finished.findings.best


def test_the_page_and_its_figures_are_there(finished):
    assert (finished.folder / "report.html").stat().st_size > 10_000
    assert list((finished.folder / "figures").iterdir())


def test_the_same_call_again_trains_nothing(finished, small, monkeypatch):
    monkeypatch.setattr("consilience.comparison.engine.work", _forbidden)
    protocol = {"methods": ["late", "concat", "best-unimodal"], "seeds": 3, "levels": (5,), **NOISE, **QUICK}
    again = compare(small, out=finished.folder, **protocol)
    assert again.findings.values.equals(finished.findings.values)


def _forbidden(*_args, **_kwargs):
    raise AssertionError("a finished job was done again")


def test_more_seeds_keep_what_is_done(small, tmp_path):
    compare(small, ["late"], seeds=1, levels=(), out=tmp_path / "run", **QUICK)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "jobs").iterdir()}
    compare(small, ["late", "concat"], seeds=2, levels=(), out=tmp_path / "run", **QUICK)
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "jobs").iterdir()}
    before, after = ({name: time for name, time in each.items() if "refit" not in name} for each in (before, after))
    assert len(after) == 4
    assert before.items() <= after.items()


def test_another_setting_never_reuses_a_result(small, tmp_path):
    compare(small, ["late"], seeds=1, levels=(), out=tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match=r"training was .*epochs.*2.* now .*3"):
        compare(small, ["late"], seeds=1, levels=(), out=tmp_path / "run", training={"epochs": 3}, verbose=0)


def test_changed_data_is_other_data(small, tmp_path):
    with np.load(small) as file:
        arrays = dict(file)
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    first = Source.of(path).fingerprint()
    np.savez(path, **{**arrays, "heat": arrays["heat"] + 1e-9})
    assert Source.of(path).fingerprint() != first


def test_changed_data_is_read_again_in_the_same_process(small, tmp_path):
    with np.load(small) as file:
        arrays = dict(file)
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    call = {"methods": ["late"], "seeds": 1, "levels": (), "training": {"epochs": 20}, "verbose": 0}
    good = compare(path, out=tmp_path / "good", **call).findings.values
    noise = np.random.default_rng(1).normal(size=(2, 240, 3))
    np.savez(path, **{**arrays, "heat": noise[0], "sound": noise[1]})
    bad = compare(path, out=tmp_path / "bad", **call).findings.values
    assert _accuracy(good) > _accuracy(bad) + 0.2


def _accuracy(values):
    return values.filter((pl.col("metric") == "accuracy") & (pl.col("level") == 0))["value"].mean()


def test_corruptions_have_labels_of_their_own(small, tmp_path):
    pair = [{"heat": "missing"}, {"heat": "missing", "sound": "missing"}]
    found = compare(small, ["late"], corruption=pair, seeds=1, levels=(10,), out=tmp_path / "run", **QUICK).findings
    assert found.corruptions == ["heat=missing", "heat=missing,sound=missing"]
    assert len(found.values.filter((pl.col("metric") == "accuracy") & (pl.col("level") == 10))) == 2
    with pytest.raises(InputError, match="two of the corruptions are the same"):
        compare(small, ["late"], corruption=["missing", "missing"], out=tmp_path / "other", **QUICK)


def test_the_best_model_is_found_again_after_a_narrower_call(small, tmp_path):
    call = {"seeds": 2, "levels": (), "out": tmp_path / "run", "training": {"epochs": 8}, "verbose": 0}
    both = compare(small, ["best-unimodal", "concat"], **call)
    winner = load(both.best).method
    loser = next(name for name in ("best-unimodal", "concat") if name != winner)
    assert load(compare(small, [loser], **call).best).method == loser
    assert load(compare(small, ["best-unimodal", "concat"], **call).best).method == winner


def test_each_set_has_its_best_model(small, tmp_path):
    found = compare([small, load_data("digits")], ["late"], seeds=1, levels=(), out=tmp_path / "run", **QUICK)
    assert {name: load(folder).modalities_ for name, folder in found.bests.items()} == {
        "small": ("heat", "sound"),
        "digits": ("top_left", "top_right", "bottom_left", "bottom_right"),
    }
    with pytest.raises(InputError, match="2 sets have a best model"):
        _ = found.best


def test_a_best_model_remembers_its_training(small, tmp_path):
    training = {"epochs": 2, "lr": 0.01, "clip": 1.0}
    found = compare(small, ["late"], seeds=1, levels=(), training=training, out=tmp_path / "run", verbose=0)
    model = load(found.best)
    assert (model.lr, model.epochs, model.clip, model.training) == (0.01, 2, 1.0, None)


def test_repeats_draw_the_noise_anew_and_average(small, tmp_path):
    once = compare(small, ["late"], seeds=1, levels=(5,), out=tmp_path / "once", **NOISE, **QUICK)
    often = compare(
        small, ["late"], seeds=1, repeats=3, levels=(5,), refit=False, out=tmp_path / "often", **NOISE, **QUICK
    )
    assert "draws of the noise" not in once.table("markdown")
    assert "3 draws of the noise" in often.table("markdown")

    # The same by hand, with the model that was kept.
    data = load_data(small).resplit(0)
    model, shares = load(often.best), []
    for draw in (0, 1_000_000, 2_000_000):
        noisy = corrupt(data.test, "gaussian", 5, reference=data.train, random_state=draw)
        shares.append(np.mean(model.predict(noisy) == data.test.y))
    assert len(set(shares)) > 1
    assert _noisy(once)["value"].item() == pytest.approx(shares[0])
    assert _noisy(often)["value"].item() == pytest.approx(np.mean(shares))

    # Statistics are over samples, not over the times they were met; clean there is one draw.
    (result,) = (often.store.read(job) for job in _jobs(often))
    accuracy, n = find_metric("accuracy"), len(data.test)
    for condition in (condition for condition in result.about["conditions"] if condition["part"] == "test"):
        scores = sample_scores(accuracy, result, condition)
        assert scores.shape == (n,)
        assert scores.mean() == pytest.approx(condition["metrics"]["accuracy"])
        assert len(result.arrays[f"output/{condition['array']}"]) == (n if condition["level"] == 0 else 3 * n)

    # Nor do other figures count a sample that was met again as another one: where noise is the same each time,
    # several repeats say what one does.
    blank = {"seeds": 1, "levels": (5,), "corruption": "blank", "probability": 1.0, **QUICK}
    one = compare(small, ["qmf"], out=tmp_path / "blank", **blank)
    three = compare(small, ["qmf"], repeats=3, out=tmp_path / "blanks", **blank)
    assert_frame_equal(one.trust(), three.trust())
    assert_frame_equal(one.findings.values, three.findings.values)

    with pytest.raises(InputError, match="repeats was 3, now 1"):
        compare(small, ["late"], seeds=1, levels=(5,), out=tmp_path / "often", **NOISE, **QUICK)
    with pytest.raises(InputError, match="repeats must be a whole number"):
        compare(small, ["late"], repeats=0, out=tmp_path / "never")


def test_a_folder_from_before_there_were_repeats_goes_on(small, tmp_path, monkeypatch):
    call = {"seeds": 1, "levels": (5,), "out": tmp_path, **NOISE, **QUICK}
    compare(small, ["late"], **call)
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert "repeats" not in plan["asked"]  # so that such a folder looks like one made now, and has the same name
    monkeypatch.setattr("consilience.training.Model.fit", _forbidden)
    assert len(_noisy(compare(small, ["late"], **call))) == 1
    with pytest.raises(InputError, match="repeats was 1, now 2"):
        compare(small, ["late"], repeats=2, **call)


def _noisy(compared):
    return compared.findings.values.filter((pl.col("level") > 0) & (pl.col("metric") == "accuracy"))


@pytest.mark.parametrize("y", [lambda y: y[:, None], lambda y: (y + 8).astype(object)], ids=["column", "objects"])
def test_labels_of_any_shape_and_type(small, tmp_path, y):
    with np.load(small) as file:
        samples = {"heat": file["heat"], "sound": file["sound"]}
        labels = y(file["y"])
    data = DataSet("own", Samples.of(samples, labels), "classification", load_data(small).split)
    found = compare(data, ["late", "concat"], seeds=2, levels=(), out=tmp_path / "run", **QUICK).findings
    assert set(found.differences["method"]) == {"concat"}
    assert found.differences["p"].is_finite().all()


@pytest.mark.parametrize("metric", ["acc7", "pearson", "mae"])
def test_every_metric_can_be_the_main_one(tmp_path, metric):
    data = load_data("progressive-synthetic", n=200)
    found = compare(data, ["late", "concat"], metric=metric, seeds=2, levels=(), out=tmp_path / "run", **QUICK).findings
    assert found.metric == metric
    assert set(found.differences["method"]) == {"concat"}
    assert found.differences["p"].is_finite().all()


def test_a_metric_of_one_number_is_refused_for_several_before_anything_is_trained(tmp_path):
    one = load_data("progressive-synthetic", n=200)
    both = Samples.of({name: one.samples[name] for name in one.modalities}, np.column_stack([one.y, -one.y]))
    two = DataSet("two", both, "regression", one.split)
    with pytest.raises(UnsupportedError, match=r"'acc7' cannot judge 2 targets: .*for several targets: mse, mae, pear"):
        compare([one, two], ["late"], metric="acc7", seeds=1, levels=(), out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    found = compare(two, ["late"], metric="mae", seeds=1, levels=(), out=tmp_path / "run", **QUICK).findings
    several = {"mse", "mae", "pearson", "r2", "mape", "pinball_10", "pinball_90", "concordance"}
    assert set(found.values["metric"]) == several


def test_data_in_memory_of_another_form_are_refused_with_what_to_do(small, tmp_path):
    rows = TensorDataset(zeros(4, 2))
    with pytest.raises(InputError, match=r"takes names, paths and DataSets, not a TensorDataset: save .*np\.savez"):
        compare(rows, ["late"], out=tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match=r"not a DataFrame: load_data\(frame, target="):
        compare([small, pl.DataFrame({"a": [1.0]})], ["late"], out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_misspelt_settings_are_said_before_anything_is_trained(small, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'width'"):
        compare(small, ["concat"], settings={"concat": {"wdth": 3}}, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_an_unfinished_run_counts_the_seeds_it_has(small, tmp_path):
    from consilience.comparison import reopen

    compare(small, ["late", "concat"], seeds=8, levels=(), out=tmp_path / "run", **QUICK)
    for job in json.loads((tmp_path / "run" / "plan.json").read_text())["jobs"]:
        if job["seed"] >= 2:
            (tmp_path / "run" / "jobs" / f"{job['key']}.npz").unlink()
    found = reopen(tmp_path / "run").findings
    assert found.seeds == [0, 1]
    assert "2 seeds cannot reach significance" in found.notes[0]
    assert "12 of 16 jobs have no result yet" in found.notes[-1]


def test_by_default_modalities_get_noisy_and_go_missing(small, tmp_path):
    found = compare(small, ["late"], seeds=1, levels=(10,), out=tmp_path / "run", **QUICK).findings
    assert found.corruptions == ["gaussian", "missing"]


def test_what_would_fail_in_every_job_is_said_at_once(small, tmp_path):
    for wrong, said in (
        ({"training": {"device": "gpuu"}}, "unknown device 'gpuu'"),
        ({"encoders": {"heat": "conv"}}, "cannot read modality heat"),
        ({"settings": {"late": {"expert_loss": "abc"}}}, "expert_loss|settings"),
        ({"settings": {"late": {"lr": -1}}}, "training: lr must be a number > 0"),
        ({"settings": {"late": {"seed": 3}}}, "unknown setting 'seed'"),
        ({"training": {"augment": "gausian:1"}}, "did you mean 'gaussian'"),
        ({"settings": {"late": {"augment": "haet=gaussian:1"}}}, "unknown modality 'haet'"),
        ({"training": {"augment": "heat=multibench-series:1"}}, r"does not apply to heat \(vector"),
    ):
        with pytest.raises(InputError, match=said):
            compare(small, ["late"], seeds=1, levels=(), out=tmp_path / "run", **{"verbose": 0, **wrong})
        assert not (tmp_path / "run").exists()


def test_when_every_job_fails_that_is_an_error(small, tmp_path, monkeypatch):
    from consilience.methods.opinions.late import Late

    def broken(self, opinions, batch):
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr(Late, "combine", broken)
    with pytest.raises(TrainingError, match=r"every job failed.*a wheel came off"):
        compare(small, ["late"], seeds=1, levels=(), out=tmp_path / "run", **QUICK)


def test_a_method_that_was_still_improving_is_named(finished):
    assert any("still improving in the last epoch" in note for note in finished.findings.notes)


def test_a_run_killed_before_its_plan_was_written_goes_on(small, tmp_path):
    (tmp_path / "run" / "jobs").mkdir(parents=True)
    names = (f".plan.json.{NO_PROCESS}.part", f".plan.json.{NO_PROCESS}.01234abc.part", ".lock")
    for name in names:
        (tmp_path / "run" / name).write_text("{")
    compare(small, ["late"], seeds=1, levels=(), out=tmp_path / "run", **QUICK)
    assert not [name for name in names if (tmp_path / "run" / name).exists()]


def test_a_failing_method_is_a_row_and_not_the_end(small, tmp_path, monkeypatch):
    from consilience.methods.opinions.late import Late

    def broken(self, opinions, batch):
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr(Late, "combine", broken)
    found = compare(small, ["late", "concat"], seeds=2, levels=(), out=tmp_path / "run", **QUICK).findings
    assert set(found.failed["method"]) == {"late"}
    assert found.failed["error"].str.contains("a wheel came off").all()
    assert set(found.values["method"]) == {"concat"}
    monkeypatch.undo()
    mended = compare(small, ["late", "concat"], seeds=2, levels=(), out=tmp_path / "run", **QUICK).findings
    assert not len(mended.failed)
    assert set(mended.values["method"]) == {"late", "concat"}


def test_a_damaged_result_is_done_again(small, tmp_path):
    call = {"methods": ["late"], "seeds": 2, "levels": (), "out": tmp_path / "run", **QUICK}
    whole = compare(small, **call)
    path = sorted((tmp_path / "run" / "jobs").glob("*.npz"))[0]
    path.write_bytes(path.read_bytes()[:100])
    assert compare(small, **call).findings.values.equals(whole.findings.values)


def test_methods_that_cannot_serve_are_skipped_with_the_reason(tmp_path):
    data = load_data("captions", n=200)
    found = compare(data, ["early", "late"], seeds=1, levels=(), out=tmp_path / "run", **QUICK).findings
    assert found.skipped.to_dicts() == [
        {"set": "captions", "method": "early", "reason": found.skipped["reason"].item()}
    ]
    assert "reads vector, image, sequence" in found.skipped["reason"].item()


def test_a_method_without_encoders_per_modality_is_skipped_where_some_are_chosen(small, tmp_path):
    given = {"encoders": {"heat": "mlp"}, "seeds": 1, "levels": (), "out": tmp_path / "run", **QUICK}
    with pytest.raises(InputError, match="'early' cannot be the reference here: it has one encoder"):
        compare(small, ["late"], reference="early", **given)
    with pytest.raises(InputError, match="'unimodal:' cannot be the reference here: it is a family"):
        compare(small, ["late"], reference="unimodal:", **given)
    settings = {"early": {"encoder": "mlp"}}
    found = compare(small, ["early", "late"], settings=settings, **given).findings
    assert (found.methods, found.skipped["method"].to_list()) == (["late"], ["early"])
    assert found.skipped["reason"].item().startswith("it has one encoder for all modalities")
    # Encoders for another set's modalities are none for this one.
    assert applicable(["early"], "", load_data(small), {"elsewhere": "mlp"}) == (["early"], {})


def test_unknown_names_are_said_before_anything_is_trained(small, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'concat'"):
        compare(small, ["conct"], out=tmp_path / "run", **QUICK)
    with pytest.raises(UnknownNameError, match="corruption"):
        compare(small, ["late"], corruption="gausian", out=tmp_path / "run", **QUICK)
    with pytest.raises(UnknownNameError, match="did you mean 'accuracy'"):
        compare(small, ["late"], metric="acuracy", out=tmp_path / "run", **QUICK)
    with pytest.raises(UnknownNameError, match="did you mean 'epochs'"):
        compare(small, ["late"], training={"epoch": 3}, out=tmp_path / "run", verbose=0)


def test_a_family_means_all_its_members(small):
    run, skipped = applicable(["unimodal:"], "", load_data(small))
    assert run == ["unimodal:heat", "unimodal:sound"]
    assert not skipped


def test_one_modality_is_a_set_too(tmp_path):
    data = load_data("digits", modalities=["top_left"])
    found = compare(data, ["late", "align"], seeds=1, levels=(), out=tmp_path / "run", **QUICK).findings
    assert set(found.values["method"]) == {"late"}
    assert "at least 2 modalities" in found.skipped["reason"].item()


def test_regression(tmp_path):
    data = load_data("progressive-synthetic", n=300)
    found = compare(data, ["late", "concat"], seeds=2, levels=(5,), out=tmp_path / "run", **QUICK).findings
    assert found.metric == "mse"
    assert not found.larger_is_better
    assert not len(found.reliability)


def test_several_sets_have_mean_ranks(small, tmp_path):
    digits = load_data("digits")
    found = compare([small, digits], ["late", "concat"], seeds=1, levels=(), out=tmp_path / "run", **QUICK).findings
    assert sorted(found.ranks.filter(pl.col("level") == 0)["rank"].to_list()) in ([1.0, 2.0], [1.5, 1.5])


def test_tuning_gives_every_method_the_same_trials(small, tmp_path):
    found = compare(small, ["late", "concat"], seeds=1, levels=(), tune=3, out=tmp_path / "run", **QUICK)
    tried = [found.store.read(job).about["tuning"]["tried"] for job in _jobs(found)]
    rates = [[(trial["lr"], trial["optimizer"]) for trial in trials] for trials in tried]
    assert rates[0] == rates[1]
    assert len(rates[0]) == 3
    assert all(1e-5 <= rate <= 5e-2 for rate, _ in rates[0])


def test_levels_and_seeds_are_checked():
    source = (Source.of("digits"),)
    assert Plan(source, levels=(5, 5, 1)).levels == (0.0, 1.0, 5.0)
    for wrong in ({"seeds": 0}, {"seeds": 1.5}, {"levels": (-1,)}, {"levels": (float("nan"),)}, {"tune": -1}):
        with pytest.raises(InputError):
            Plan(source, **wrong)


@pytest.mark.slow
def test_two_processes_share_one_folder(small, tmp_path):
    command = _command(small, tmp_path / "run", seeds=4)
    both = [subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in range(2)]
    printed = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert printed[0] == printed[1]
    assert not list((tmp_path / "run").rglob(".*"))
    alone = compare(small, ["late", "concat"], seeds=4, levels=(5,), out=tmp_path / "alone", **QUICK)
    assert _scores(tmp_path / "run").equals(alone.findings.values)


# A process that has imported everything, and forks one that runs a command for each line it reads: its number, and the
# exit status at its end.
_FORKS = """
import json, os, sys
from consilience.cli import main
from consilience.comparison.job import import_training
import consilience.report.page
for name in ("late", "concat"):
    import_training(name, {})
for line in sys.stdin:
    process = os.fork()
    if not process:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(json.loads(line)))
    print(process, flush=True)
    print(os.waitpid(process, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_killed_twenty_times_it_ends_with_the_same_table(small, tmp_path):
    """kill -9 at random moments, again and again; what is done is kept, and the end is as if nothing had happened.

    A fork of a process that has imported torch is at work at once, so every kill hits the work; `tests/faults` kills
    commands as a user starts them, also while they import.
    """
    undisturbed = compare(small, ["late", "concat"], seeds=8, levels=(5,), out=tmp_path / "calm", **QUICK)
    run, chance, kept, early = tmp_path / "run", random.Random(0), set(), 0
    line = json.dumps(_command(small, run, seeds=8)[3:]) + "\n"
    words, pipe = [sys.executable, "-c", _FORKS], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as forks:

        def start():
            forks.stdin.write(line)
            forks.stdin.flush()
            return int(forks.stdout.readline())

        for _ in range(20):
            process, more = start(), min(chance.randrange(3), 16 - len(kept))  # of 16 jobs
            while len(results_in(run) - kept) < more and not ended(process):
                time.sleep(0.005)
            time.sleep(chance.uniform(0.0, 0.2))  # into the next job, or into the best model and the report
            with suppress(ProcessLookupError):  # it has ended
                os.kill(process, signal.SIGKILL)
            early += int(forks.stdout.readline()) == signal.SIGKILL
            assert kept <= results_in(run), "a finished job was lost"
            kept = results_in(run)
        start()
        assert int(forks.stdout.readline()) == 0
        forks.stdin.close()
    assert early >= 18, "the kills came before the end"
    assert _scores(run).equals(undisturbed.findings.values)
    left = [path for path in run.rglob("*") if path.name.startswith(".") or path.suffix == ".lock"]
    assert not left


def results_in(run):
    """The jobs that have a result."""
    return {path.name for path in (run / "jobs").glob("*.npz") if not path.name.startswith(".")}


def ended(process):
    """Whether a process has ended, waited for or not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _command(data, out, seeds):
    start = "import sys; from consilience.cli import main; sys.exit(main())"
    protocol = f"--methods late concat --levels 5 --seeds {seeds} --epochs 2".split()
    return [sys.executable, "-c", start, "compare", str(data), *protocol, "--out", str(out)]


def _scores(folder):
    from consilience.comparison import reopen

    return reopen(folder).findings.values


def _jobs(comparison):
    from consilience.comparison.plan import Job

    return [Job(**job) for job in json.loads((comparison.folder / "plan.json").read_text())["jobs"]]


@pytest.mark.parametrize("methods", [None, ["late", "concat"]])
def test_a_method_that_was_registered_since_extends_a_run(small, tmp_path, methods, monkeypatch):
    """As a plugin does, or a second method in a file of ours."""
    served = applicable

    def only_three(names, *rest):  # of all registered methods, for speed
        return served([name for name in names or METHODS if name in ("late", "concat", "from-a-plugin")], *rest)

    monkeypatch.setattr("consilience.comparison.plan.applicable", only_three)
    how = {"seeds": 1, "levels": (), "out": tmp_path / "run", "thorough": True, **QUICK}
    before = compare(small, methods, **how)
    kept = {path.name: path.stat().st_mtime_ns for path in before.store.jobs.glob("*.npz")}
    register("from-a-plugin")(type("Plugin", (METHODS["concat"],), {}))
    try:
        after = compare(small, methods and [*methods, "from-a-plugin"], **how)
    finally:
        METHODS.remove("from-a-plugin")
    assert set(after.findings.methods) == {"late", "concat", "from-a-plugin"}
    now = {path.name: path.stat().st_mtime_ns for path in after.store.jobs.glob("*.npz")}
    assert kept.items() < now.items()
    assert len(now) == len(kept) + 1


def test_a_new_method_may_bring_settings_and_a_finished_one_keeps_its_own(small, tmp_path):
    how = {"seeds": 1, "levels": (), "out": tmp_path / "run", **QUICK}
    compare(small, ["late", "concat"], settings={"concat": {"width": 16}}, **how)
    wider = {"concat": {"width": 16}, "concat@wide": {"width": 32}}
    grown = compare(small, ["late", "concat", "concat@wide"], settings=wider, **how)
    assert grown.findings.methods == ["late", "concat", "concat@wide"]
    with pytest.raises(InputError, match=r'the settings of concat was \{"width": 16\}, now \{"width": 8\}'):
        compare(small, ["late", "concat"], settings={"concat": {"width": 8}}, **how)


def test_a_misspelt_member_of_a_family_is_refused_before_training(small, tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown method 'unimodal:hat': did you mean 'unimodal:heat'\?"):
        compare(small, ["late", "unimodal:hat"], seeds=1, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run" / "plan.json").exists()


def test_a_run_folder_is_loaded_as_its_published_model(finished):
    model, same = load(finished.best), load(finished.folder)
    assert (type(model), model.method) == (type(same), same.method)


def test_a_run_folder_of_several_sets_names_their_models(tmp_path):
    out = tmp_path / "run"
    compare(["gaussians", "digits"], ["late"], seeds=1, levels=(), out=out, **QUICK)
    with pytest.raises(SavedModelError, match=r"several sets: choose the model of one, .*best/digits.*best/gaussians"):
        load(out)
    shutil.rmtree(out / "best")
    with pytest.raises(SavedModelError, match="no model yet"):
        load(out)
