"""`consilience watch`: the page says since when, the state goes on, and wrong options are named."""

import json
import re

import numpy as np
import polars as pl
import pytest

from cli.conftest import machines
from consilience import Monitor, load

BREAKS_AT = 120
ROWS = 200


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Reference and log: from a row on, both readings of heat stay what they were."""
    folder = tmp_path_factory.mktemp("watched")
    machines(300, seed=1).drop("fault").write_csv(folder / "reference.csv")
    log = machines(ROWS, seed=2).drop("fault")
    machines(ROWS, seed=2).drop("fault").write_csv(folder / "clean.csv")
    stuck = pl.int_range(pl.len()) >= BREAKS_AT
    columns = [
        pl.when(stuck).then(pl.lit(log[name][BREAKS_AT])).otherwise(pl.col(name)).alias(name)
        for name in ("heat_0", "heat_1", "shop")
    ]
    times = [f"2024-03-{1 + n // 24:02} {n % 24:02}:00" for n in range(ROWS)]
    log.with_columns(columns).with_columns(pl.Series("time", times)).write_csv(folder / "log.csv")
    return folder


@pytest.fixture(scope="module")
def times(files):
    return pl.read_csv(files / "log.csv", try_parse_dates=False)["time"].to_list()


def text_of(page):
    """What a page shows, without its tags."""
    body = re.sub(r"(?s)<(style|script|svg).*?</\1>", " ", page.read_text(encoding="utf-8"))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_the_page_says_since_when_a_modality_repeats_itself(run, model, files, times, tmp_path):
    page = tmp_path / "watch.html"
    words = ["--reference", files / "reference.csv", "--time", "time", "--out", page]
    done = run("watch", model, files / "log.csv", *words)
    assert done.code == 0, done.err
    found = re.search(r"Since (\S+ \S+) \(row (\d+)\) heat repeats itself", done.out)
    assert found is not None, done.out
    assert abs(int(found[2]) - BREAKS_AT) <= 10
    assert found[1] == times[int(found[2])]
    assert done.out.splitlines()[-1] == f"written: {page}"
    shown = text_of(page)
    assert found[0] in shown
    for heading in ("Over time", "Alarms", "What is watched", "How it is decided"):
        assert heading in shown
    assert "at most 1 % of all logs have any alarm" in shown
    assert page.read_text(encoding="utf-8").count("<svg") >= 1
    # The command line that made it is at the end, so that it can be made again.
    assert "--time time" in shown


def test_alarms_are_those_of_the_monitor(run, model, files, times):
    done = run("watch", model, files / "log.csv", "--reference", files / "reference.csv", "--time", "time")
    trained = load(model)
    monitor = Monitor(trained, trained.read(files / "reference.csv"), window=20)
    alarms = monitor.update(trained.read(files / "log.csv"), times=times).alarms
    said = [line for line in done.out.splitlines() if line.startswith("alarm: ")]
    assert len(said) == len(alarms) >= 1
    assert said == [f"alarm: {alarm.describe()}" for alarm in alarms]


def test_an_unchanged_log_has_no_alarm_and_the_exit_code_0(run, model, files):
    done = run("watch", model, files / "clean.csv", "--reference", files / "reference.csv")
    assert (done.code, done.err) == (0, "")
    assert done.out == "No alarm: nothing that is watched differs from the reference.\n"


def test_a_log_in_two_files_is_watched_as_one(run, model, files, tmp_path):
    log = pl.read_csv(files / "log.csv")
    parts = [tmp_path / "monday.csv", tmp_path / "tuesday.csv"]
    for path, rows in zip(parts, (log[:90], log[90:]), strict=True):
        rows.write_csv(path)
    state = tmp_path / "monitor.json"
    first = run("watch", model, parts[0], "--reference", files / "reference.csv", "--state", state)
    assert f"state after 90 rows: {state}" in first.out
    second = run("watch", model, parts[1], "--state", state)
    assert second.code == 0, second.err
    assert f"state after {ROWS} rows: {state}" in second.out
    whole = run("watch", model, files / "log.csv", "--reference", files / "reference.csv")
    both = first.out + second.out
    alarms = [re.findall(r"since row \d+ the .*? is|noticed in row \d+", text) for text in (both, whole.out)]
    assert alarms[0] == alarms[1]
    assert json.loads(state.read_text(encoding="utf-8"))["rows"] == ROWS


def test_alarms_of_an_earlier_log_are_not_told_again(run, model, files, tmp_path):
    state, later = tmp_path / "monitor.json", tmp_path / "later.csv"
    machines(40, seed=3).drop("fault").write_csv(later)
    first = run("watch", model, files / "log.csv", "--reference", files / "reference.csv", "--state", state)
    assert "heat repeats itself" in first.out
    second = run("watch", model, later, "--state", state)
    assert second.code == 0, second.err
    assert "repeats itself" not in second.out
    assert [alarm["quantity"] for alarm in json.loads(state.read_text(encoding="utf-8"))["alarms"]]


def test_a_share_of_false_alarms_nearer_to_1_raises_alarms_sooner(run, model, files):
    words = ["watch", model, files / "log.csv", "--reference", files / "reference.csv"]
    sooner, later = (run(*words, "--false-alarms", share).out for share in ("0.5", "1e-9"))
    rows = [
        int(np.min([int(row) for row in re.findall(r"repetition of heat.*noticed in row (\d+)", said)]))
        for said in (sooner, later)
    ]
    assert rows[0] < rows[1]


def test_help_names_every_option(run):
    done = run("watch", "--help")
    assert done.code == 0
    for option in ("--reference", "--time", "--false-alarms", "--state", "--out", "--encoder"):
        assert option in done.out
    assert "consilience watch MODEL DATA --reference FILE" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--referense", "reference.csv"], "--reference"),
        (["--reference", "reference.csv", "--time", "tme"], "time"),
        (["--reference", "reference.csv", "--out", "watch.pdf"], "--out must end in .html, got 'watch.pdf'"),
        (["--reference", "reference.csv", "--state", "kept.txt"], "--state must end in .json, got 'kept.txt'"),
        (["--reference", "reference.csv", "--false-alarms", "2"], "2"),
        (["--reference", "nowhere.csv"], "nowhere.csv"),
        ([], "--reference FILE is needed"),
        (["--state", "absent.json"], "--reference FILE is needed"),
    ],
)
def test_wrong_options_end_with_one_line_that_says_what_to_do(run, model, files, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    for name in ("log.csv", "reference.csv"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    done = run("watch", model, "log.csv", *words)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) <= 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "reference.csv"]


def test_times_of_a_file_without_columns_are_refused(run, arrays, tmp_path):
    out = tmp_path / "model"
    assert run("train", arrays, "--method", "late", "--epochs", "1", "--out", out).code == 0
    done = run("watch", out, arrays, "--reference", arrays, "--time", "time")
    assert done.code == 2
    assert "watch: --time is for tables, which have columns; rig.npz holds arrays" in done.err


def test_a_damaged_state_is_refused_and_kept(run, model, files, tmp_path):
    state = tmp_path / "monitor.json"
    state.write_text('{"library": "consilience"', encoding="utf-8")
    done = run("watch", model, files / "log.csv", "--state", state)
    assert done.code == 2
    assert "this is no state of a Monitor" in done.err
    assert state.read_text(encoding="utf-8") == '{"library": "consilience"'
