"""Splits by groups, by time and in folds in a comparison: what is tested, resampled, said, and kept apart."""

import numpy as np
import polars as pl
import pytest

from consilience import compare
from consilience.comparison.choosing import units_of
from consilience.comparison.plan import Job, Plan, Source
from consilience.comparison.split_check import check_groups, split_facts, split_notes
from consilience.comparison.store import Result
from consilience.core.errors import InputError, SplitWarning
from consilience.data import load_data

PEOPLE, EACH = 30, 6
MODALITIES = {"voice": "v*", "walk": "w*"}


def ward(own=3.0, **further):
    """Repeated measurements of people, rows in random order."""
    rng = np.random.default_rng(0)
    person = rng.permutation(np.repeat(np.arange(PEOPLE), EACH))
    y = rng.integers(0, 2, PEOPLE)[person]
    values = own * rng.normal(size=(PEOPLE, 4))[person] + 0.2 * rng.normal(size=(len(y), 4)) + 0.8 * y[:, None]
    columns = dict(zip(("v1", "v2", "w1", "w2"), values.T))
    return pl.DataFrame({**columns, "patient": [f"p{each}" for each in person], "ill": y, **further})


def load(table, **options):
    return load_data(table, target="ill", modalities=MODALITIES, **options)


def test_random_rows_promise_more_than_whole_groups():
    found = check_groups(load(ward(), group="patient"))
    assert found["random"] > found["grouped"] + 0.15
    assert (found["column"], found["given"], found["metric"]) == ("patient", True, "accuracy")


def test_groups_that_say_nothing_of_the_values_change_little():
    found = check_groups(load(ward(own=0.0), group="patient"))
    assert found["random"] == pytest.approx(found["grouped"], abs=0.1)


def test_the_test_rows_take_no_part_in_the_check():
    data = load(ward(), group="patient", folds=5)
    before = check_groups(data)
    data.samples.values["voice"][data.draw_parts(0) == "test"] = 1e6
    assert check_groups(data) == before


def test_a_hint_is_checked_too_and_regressions_by_r2():
    with pytest.warns(SplitWarning):
        hinted = check_groups(load(ward()))
    assert hinted["given"] is False
    numbers = ward().with_columns(ill=pl.col("v1") + pl.col("w1"))
    assert check_groups(load(numbers, group="patient", task="regression"))["metric"] == "r2"


def test_without_groups_and_hints_nothing_is_said():
    data = load(ward().drop("patient"))
    assert split_facts(data, 3) == {}
    assert split_notes({"ward": data.describe()}, 3) == []


def test_parts_without_a_class_are_counted_over_seeds():
    rare = np.array(["often"] * 178 + ["seldom"] * 2)
    with pytest.warns(SplitWarning, match="seldom"):
        data = load(ward(ill=rare).drop("patient"))
    lacking = split_facts(data, 10)["lacking"]
    expected = sum("seldom" not in data.y[data.resplit(seed).split == "test"] for seed in range(10))
    assert lacking["test"] == {"seldom": expected}
    [note] = [note for note in split_notes({"ward": {"lacking": lacking}}, 10) if "the test part" in note]
    assert f"has no sample of class seldom ({expected} of 10 seeds)" in note


def test_a_seed_whose_training_lacks_a_class_is_refused_before_the_first_job():
    late = ward().drop("patient").with_columns(when=pl.int_range(180), ill=pl.Series([0, 1] * 50 + [0, 2] * 40))
    data = load(late, time="when", folds=3)
    with pytest.raises(InputError, match=r"class 2 .* take fewer folds"):
        split_facts(data, 3)


def test_notes_for_hints_name_the_option():
    check = {"column": "site", "given": False, "metric": "r2", "random": 0.9, "grouped": 0.25}
    [note] = split_notes({"mill": {"group_check": check}}, 1)
    assert "an R² of 0.90, whole groups of site would say 0.25" in note
    assert note.endswith("Use --group site.")


def test_options_of_the_split_change_the_fingerprint_and_nothing_else_does(tmp_path):
    ward().write_csv(tmp_path / "ward.csv")
    shared = {"target": "ill", "modalities": MODALITIES}

    def fingerprint(**options):
        return Plan((Source.of(tmp_path / "ward.csv", {**shared, **options}),)).asked()["sources"]["ward"]

    plain = fingerprint()
    assert fingerprint(group=None, time=None, folds=None) == plain
    given = [fingerprint(**each) for each in ({"group": "patient"}, {"time": "v1"}, {"folds": 3}, {"folds": 4})]
    assert len({plain, *given}) == 5
    in_memory = [Source.of(load(ward(), group="patient", folds=folds)).fingerprint() for folds in (None, 3)]
    assert len(set(in_memory)) == 2


def test_results_of_groups_are_resampled_by_group():
    index, unit = np.arange(4), np.array([7, 7, 8, 8])
    plain = Result({}, {"index": index, "validation_index": index + 4})
    grouped = Result({}, {**plain.arrays, "unit": unit, "validation_unit": unit + 2})
    assert units_of(plain, "test") is index
    assert units_of(grouped, "test") is unit
    assert units_of(grouped, "validation").tolist() == [9, 9, 10, 10]


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grouped")
    ward().write_csv(folder / "ward.csv")
    return compare(
        folder / "ward.csv",
        ["late", "concat"],
        levels=[0],
        seeds=4,
        training={"epochs": 1},
        out=folder / "run",
        verbose=0,
        target="ill",
        modalities=MODALITIES,
        group="patient",
        folds=4,
    )


def test_seeds_of_a_comparison_test_every_row_once(grouped):
    written = grouped.store.read_plan()
    jobs = [Job(**job) for job in written["jobs"] if job["method"] == "late"]
    results = {job.seed: grouped.store.read(job) for job in jobs}
    tested = np.concatenate([results[seed].arrays["index"] for seed in range(4)])
    assert sorted(tested.tolist()) == list(range(PEOPLE * EACH))
    patients = np.array(ward()["patient"])
    for result in results.values():
        units = result.arrays["unit"]
        assert len(set(zip(units, patients[result.arrays["index"]]))) == len(set(units))
        assert not set(units) & set(result.arrays["validation_unit"])


def test_the_report_says_how_parts_were_drawn_and_what_groups_change(grouped):
    [note] = [note for note in grouped.findings.notes if "random split" in note]
    assert note.startswith("On ward, a random split would have said ")
    assert "whole groups of patient say" in note
    page = (grouped.folder / "report.html").read_text(encoding="utf-8")
    assert "by whole groups of patient (30), in 4 folds" in page
    assert "a random split would have said" in page


def test_intervals_over_groups_are_wider_than_over_rows():
    """Rows of a group are right or wrong together, so that they are not so many test samples."""
    from consilience.comparison.significance import compare_to_reference

    rng = np.random.default_rng(0)
    units = np.repeat(np.arange(20), 10)
    better = rng.integers(0, 2, 20)[units].astype(float)
    scores = {"late": {0: np.zeros(200)}, "concat": {0: better}}
    [rows] = compare_to_reference(scores, "late", samples={0: np.arange(200)})
    [groups] = compare_to_reference(scores, "late", samples={0: units})
    assert groups["high"] - groups["low"] > 2.5 * (rows["high"] - rows["low"])  # about √10
