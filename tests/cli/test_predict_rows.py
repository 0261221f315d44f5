"""`consilience predict`: kept columns, formats, reasons, and rows that arrive one by one."""

import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cli.conftest import machines
from consilience import load
from consilience.report.explanation_words import say_sample


@pytest.fixture(scope="module")
def rows():
    return (
        machines(30, seed=1).drop("fault").with_row_index("id").with_columns(pl.col("id").cast(pl.String).str.zfill(3))
    )


@pytest.fixture
def new(rows, tmp_path):
    rows.write_csv(tmp_path / "new.csv")
    return tmp_path / "new.csv"


@pytest.fixture
def feed(monkeypatch):
    """Standard input with this content, which arrives in pieces of a few bytes."""

    def give(content: bytes, at_once: int = 97) -> None:
        class Pieces(io.BytesIO):
            def read1(self, size=-1):
                return super().read1(at_once)

        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Pieces(content)))

    return give


def read(text):
    return pl.read_csv(io.StringIO(text), schema_overrides={"id": pl.String})


def json_of(frame):
    """One object a row, in which an empty cell is left out."""
    return "".join(
        json.dumps({name: cell for name, cell in row.items() if cell is not None}) + "\n"
        for row in frame.iter_rows(named=True)
    ).encode()


def test_kept_columns_come_first_as_they_are_spelled(run, model, new, rows):
    done = run("predict", model, new, "--keep", "id", "shop")
    table = read(done.out)
    assert table.columns[:3] == ["id", "shop", "prediction"]
    assert table["id"].to_list() == rows["id"].to_list()
    assert table["id"][7] == "007"
    assert_frame_equal(table.drop("id", "shop"), read(run("predict", model, new).out))


def test_kept_columns_of_parquet_keep_their_type(run, model, rows, tmp_path):
    rows.with_columns(pl.col("id").cast(pl.Int32)).write_parquet(tmp_path / "new.parquet")
    done = run("predict", model, tmp_path / "new.parquet", "--keep", "id", "--out", tmp_path / "out.parquet")
    assert done.out == f"30 predictions: {tmp_path / 'out.parquet'}\n"
    assert pl.read_parquet(tmp_path / "out.parquet")["id"].dtype == pl.Int32


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_all_formats_have_the_same_rows(run, model, new, tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    assert run("predict", model, new, "--keep", "id", "--out", path).code == 0
    reader = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[ending]
    options = {"schema_overrides": {"id": pl.String}} if ending == "csv" else {}
    assert_frame_equal(reader(path, **options), read(run("predict", model, new, "--keep", "id").out))


def test_printed_json_lines(run, model, new):
    lines = run("predict", model, new, "--format", "jsonl").out.splitlines()
    assert len(lines) == 30
    assert json.loads(lines[3])["prediction"] == read(run("predict", model, new).out)["prediction"][3]


@pytest.mark.parametrize("at_once", [1, 97, 10**6])
def test_a_stream_of_csv_gives_what_a_file_gives(run, model, new, feed, at_once):
    expected = run("predict", model, new, "--keep", "id").out
    feed(new.read_bytes(), at_once)
    done = run("predict", model, "-", "--keep", "id")
    assert (done.code, done.err) == (0, "")
    assert_frame_equal(read(done.out), read(expected))  # sums of a batch are rounded otherwise than those of a row


def test_a_stream_of_json_lines_gives_what_a_file_gives(run, model, new, rows, feed, tmp_path):
    expected = run("predict", model, new, "--keep", "id").out
    feed(json_of(rows))
    assert_frame_equal(read(run("predict", model, "-", "--keep", "id").out), read(expected))
    (tmp_path / "new.jsonl").write_bytes(json_of(rows))
    assert_frame_equal(read(run("predict", model, tmp_path / "new.jsonl", "--keep", "id").out), read(expected))


def test_ends_of_lines_in_quotes_do_not_end_a_row(run, model, rows, feed):
    names = [f'the "{number}"\nmachine, large' for number in range(30)]
    feed(rows.with_columns(name=pl.Series(names)).write_csv().encode(), at_once=11)
    table = read(run("predict", model, "-", "--keep", "name").out)
    assert table["name"].to_list() == names


def test_the_target_in_a_stream_is_not_read(run, model, feed, rows):
    given = rows.with_columns(fault=pl.Series([None, "leak", "never seen"] * 10))
    feed(given.write_csv().encode())
    done = run("predict", model, "-", "--keep", "fault")
    assert (done.code, done.err) == (0, "")


def test_rows_before_a_broken_one_are_written(run, model, new, feed):
    lines = new.read_text().splitlines()
    lines[8] = lines[8].replace(lines[8].split(",")[4], "hot")  # heat_0 of row 7
    feed("\n".join(lines).encode(), at_once=10**6)
    done = run("predict", model, "-")
    assert done.code == 2
    assert len(done.out.splitlines()) == 1 + 7
    assert (
        "standard input, row 7: modality 'heat': column 'heat_0' holds 'hot', in training it held numbers" in done.err
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "standard input is empty"),
        (b"a,b\n1,2\n", "standard input has none of the columns that training read"),
        (b"heat_0,heat_0\n1,2\n", "standard input has two columns with the name 'heat_0'"),
        (b"heat_0,heat_1,shop\n", "standard input has a header but no rows"),
        (b'{"heat_0": 1}\n{"heat_0": \n', "line 2 is not JSON"),
        (b'{"heat_0": 1}\n[1]\n', "line 2 is a JSON list; every line must be an object"),
        (b'{"heat_0": [1]}\n', "column 'heat_0' holds [1]; a number, a string or null is allowed"),
        (b'{"shop": 1.5}\n', "column 'shop' holds 1.5, in training it held strings"),
        (b"heat_0,heat_1,shop\n1\xff,2,north\n", "standard input"),
    ],
)
def test_bad_streams_are_one_line(run, model, feed, content, message):
    feed(content)
    done = run("predict", model, "-")
    assert done.code == 2
    assert message in done.err
    said = [line for line in done.err.splitlines() if "the first rows lack columns" not in line]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--keep", "ids"), "unknown column 'ids': did you mean 'id'?"),
        (("--format", "parquet"), "--format parquet needs --out"),
        (("--format", "jsonl", "--out", "x.csv"), "--format jsonl does not fit the ending of --out 'x.csv'"),
        (("--out", "x.txt"), "--out must end in .csv, .parquet, .jsonl, .ndjson, or give --format"),
        (("--no-empty-sets",), "--no-empty-sets is used with --coverage"),
    ],
)
def test_bad_options_are_one_line(run, model, new, words, message):
    done = run("predict", model, new, *words)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_kept_column_may_not_hide_a_prediction(run, model, rows, tmp_path):
    rows.rename({"id": "prediction"}).write_csv(tmp_path / "new.csv")
    done = run("predict", model, tmp_path / "new.csv", "--keep", "prediction")
    assert done.code == 2
    assert "the predictions have a column of this name too" in done.err


def test_explain_adds_what_the_estimator_explains(run, model, new):
    table, estimator = read(run("predict", model, new, "--explain").out), load(model)
    found = estimator.explain(estimator.read(new))
    for place, name in enumerate(found.modalities):
        np.testing.assert_allclose(table[f"contribution_{name}"], found.contributions.values[:, place], atol=1e-6)
    assert table["explanation"][4] in " ".join(say_sample(found[4]))
    assert "raise" in table["explanation"][4]


def test_no_set_is_empty_if_asked(run, model, new, tmp_path):
    machines(300, seed=2).write_csv(tmp_path / "labelled.csv")
    words = ("predict", model, new, "--coverage", "0.05", "--score", "lac", "--calibration", tmp_path / "labelled.csv")
    plain, filled = read(run(*words).out), read(run(*words, "--no-empty-sets").out)
    empty = plain["set"].fill_null("") == ""
    assert empty.any()
    assert filled.filter(empty)["set"].to_list() == filled.filter(empty)["prediction"].to_list()
    assert filled.filter(~empty)["set"].to_list() == plain.filter(~empty)["set"].to_list()


def test_predictions_agree_with_the_estimator(run, model, new):
    table, estimator = read(run("predict", model, new).out), load(model)
    samples = estimator.read(new)
    assert table["prediction"].to_list() == estimator.predict(samples).tolist()
    probabilities = table.select([f"probability_{label}" for label in estimator.classes_]).to_numpy()
    np.testing.assert_array_equal(probabilities, estimator.predict_proba(samples))
    np.testing.assert_array_equal(table.select(pl.col("^trust_.*$")).to_numpy(), estimator.trust(samples))


@pytest.fixture
def process(model):
    """A process that reads a stream, killed at the end."""
    command = [sys.executable, "-m", "consilience", "predict", str(model), "-", "--keep", "id", "--format", "jsonl"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, bufsize=0, **pipes) as running:
        yield running
        running.kill()


@pytest.mark.slow
def test_rows_are_answered_before_the_stream_ends(process, new):
    header, first, second = new.read_bytes().splitlines(keepends=True)[:3]
    process.stdin.write(header + first)
    assert json.loads(process.stdout.readline())["id"] == "000"
    process.stdin.write(second)
    assert json.loads(process.stdout.readline())["id"] == "001"
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=20)
    assert (process.returncode, out, told) == (130, b"", b"consilience: stopped\n")


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_quietly(process, new):
    lines = new.read_bytes().splitlines(keepends=True)
    process.stdin.write(lines[0] + lines[1])
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b"".join(lines[2:]))
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == b""


@pytest.mark.slow
def test_a_small_network_is_used_without_scikit_learn(model, new):
    code = f"""
import json, sys
from consilience.cli import main
assert main(["predict", {str(model)!r}, {str(new)!r}, "--keep", "id"]) == 0
heavy = ["sklearn", "scipy", "pandas", "torch._dynamo", "matplotlib", "lightning_fabric", "transformers"]
print(json.dumps([name for name in heavy if name in sys.modules]))
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout.splitlines()[-1]) == []
