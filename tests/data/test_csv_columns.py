"""The types of CSV columns: a sample of the rows gives what all rows give, and reading them costs one pass."""

import gzip

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from consilience.core.errors import InputError
from consilience.data.files import csv_columns, csv_text
from consilience.data.files.csv_columns import read_csv
from consilience.data.files.table_reading import string_batches

WHOLE = ["0", "-3", "12", "007"]
FRACTIONAL = ["0.5", "-1.25", "1e3", "inf", "NaN"]
LONG = [str(2**63), str(-(2**70)), "123456789012345678901234567890"]
OTHER = ["true", "false", "north", '"a, b"', '"1,5"', "NA", '""']
CELLS = st.sampled_from(["", *WHOLE, *FRACTIONAL, *LONG, *OTHER])


@pytest.fixture(autouse=True)
def _a_small_sample():
    before, csv_columns._SAMPLE = csv_columns._SAMPLE, 8
    yield
    csv_columns._SAMPLE = before


def by_all_rows(path):
    """The columns with types that follow from every cell, as polars finds them."""
    return pl.read_csv(path, infer_schema_length=None)


def written(folder, columns):
    path = folder / "table.csv"
    lines = [",".join(columns), *(",".join(cells) for cells in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n")
    return path


def typed(path, names, strings=()):
    def read(wanted, rows):
        return pl.read_csv(path, columns=list(wanted), infer_schema_length=rows)

    return csv_columns._read_typed(read, names, set(strings))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_sample_gives_the_types_of_all_rows(data, tmp_path_factory):
    rows = data.draw(st.integers(1, 30))
    change = data.draw(st.integers(0, rows))
    columns = {"row": [str(row) for row in range(rows)]}
    for name in "abc":
        kinds = [data.draw(st.sampled_from([[""], WHOLE, FRACTIONAL, OTHER, LONG, [*WHOLE, ""]])) for _ in range(2)]
        columns[name] = [data.draw(st.sampled_from(kinds[row >= change])) for row in range(rows)]
    path = written(tmp_path_factory.mktemp("csv"), columns)
    assert_frame_equal(typed(path, list(columns)), by_all_rows(path))


@pytest.mark.parametrize(
    ("late", "kind"),
    [("0.5", pl.Float64), (str(2**63), pl.Int128), ("north", pl.String), ("true", pl.String), ("", pl.Int64)],
)
def test_whole_numbers_that_turn_into_something_else(tmp_path, late, kind):
    path = written(tmp_path, {"row": list(map(str, range(40))), "a": ["1"] * 39 + [late]})
    assert typed(path, ["row", "a"]).schema["a"] == kind


@pytest.mark.parametrize("late", ["1", "0.5", "true", "north", '"1,5"', ""])
def test_a_column_that_is_empty_at_first(tmp_path, late):
    path = written(tmp_path, {"row": list(map(str, range(40))), "a": [""] * 39 + [late]})
    assert_frame_equal(typed(path, ["row", "a"]), by_all_rows(path))


def test_empty_lines_are_no_rows(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "\n" * 20 + ",2\n" * 5 + "1,2\n" * 20)
    assert_frame_equal(typed(path, ["a", "b"]), by_all_rows(path))


def test_late_decimal_commas_and_mistakes_are_refused(tmp_path):
    path = written(tmp_path, {"row": list(map(str, range(40))), "a": ["1"] * 39 + ["x"]})
    with pytest.raises(InputError, match="column 'a' holds numbers but for 'x' in row 39"):
        read_csv(path, ["row", "a"], [])
    path = written(tmp_path, {"row": list(map(str, range(40))), "a": ["1"] * 20 + ['"1,5"'] * 20})
    with pytest.raises(InputError, match="holds numbers with commas such as '1,5'"):
        read_csv(path, ["row", "a"], [])


def test_late_long_numbers_that_would_be_merged_are_refused(tmp_path):
    long = ["0.5"] * 38 + ["123456789012345678901", "123456789012345678902"]
    path = written(tmp_path, {"row": list(map(str, range(40))), "a": long})
    with pytest.raises(InputError, match="64-bit floats merge"):
        read_csv(path, ["row", "a"], [])


def test_columns_are_read_once(tmp_path, monkeypatch):
    path = written(tmp_path, {"row": list(map(str, range(40))), "a": ["0.5"] * 40, "b": ["x"] * 40})
    calls, plain = [], pl.read_csv
    monkeypatch.setattr(pl, "read_csv", lambda *words, **given: calls.append(given) or plain(*words, **given))
    read_csv(path, ["row", "a", "b"], [])
    of_header, *of_rows = calls
    assert of_header == {"separator": ","}
    assert [given["infer_schema_length"] for given in of_rows] == [8]


def test_declared_strings_stay_strings(tmp_path):
    path = written(tmp_path, {"row": list(map(str, range(40))), "a": [""] * 20 + ["007"] * 20})
    frame = read_csv(path, ["row", "a"], ["a"])
    assert frame["a"].to_list()[-1] == "007"


@pytest.mark.parametrize("columns", [["a", "b"], ["b"], ["id", "a", "b"]])
def test_a_row_with_more_cells_than_the_header_is_refused_whichever_columns_are_read(tmp_path, columns):
    path = tmp_path / "rows.csv"
    rows = [f"r{row},{row},{row}.5" for row in range(30)]
    path.write_text("id,a,b\n" + "\n".join([*rows, "r30,1,5,2.5", *rows]) + "\n")
    with pytest.raises(
        InputError, match=r"rows\.csv: row 30 \(counted from 0\) has 4 cells, the header has 3: is there a"
    ):
        read_csv(path, columns, [])
    path.write_text("id,a,b\n" + "\n".join([*rows, '"r,30",1,2.5']) + "\n")
    assert read_csv(path, columns, []).columns == columns
    assert len(read_csv(path, columns, [])) == 31


@pytest.mark.parametrize("columns", [["a", "b"], ["b"], ["id", "a", "b"], ["id"]])
@pytest.mark.parametrize("short", ["r30", "r30,1", '"r,30",1', '"r\n30"'])
def test_a_row_with_fewer_cells_than_the_header_is_refused_whichever_columns_are_read(tmp_path, columns, short):
    path = tmp_path / "rows.csv"
    rows = [f"r{row},{row},{row}.5" for row in range(30)]
    told = rf"row 30 \(counted from 0\) has {1 + short.endswith(',1')} cells?, the header has 3: is the line cut off"
    for end in ([], rows):
        path.write_text("id,a,b\n" + "\n".join([*rows, short, *end]))
        with pytest.raises(InputError, match=rf"rows\.csv: {told}\? Complete or remove it"):
            read_csv(path, columns, [])
        with pytest.raises(InputError, match=told):
            list(string_batches(path, columns[0], 7))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("piece", [16, 2**21])
def test_empty_cells_at_the_end_of_a_row_are_no_cut(tmp_path, monkeypatch, end, piece):
    monkeypatch.setattr(csv_text, "_PIECE", piece)
    path = tmp_path / "rows.csv"
    rows = ["1,2,", ",,", '1,"2,\n",', '"x,\n3",1,""', "1,2,3", ",,NA", '1,"a ""b"",",']
    path.write_bytes(end.join(["a,b,c", *rows * 3, "1,2,", "", ""]).encode())
    frames = [read_csv(path, ["a", "b", "c"], ["a", "b"]), read_csv(path, ["a"], []), *string_batches(path, "b", 50)]
    assert [len(frame) for frame in frames] == [len(by_all_rows(path))] * 3
    path.write_bytes(end.join(["a,b,c", *rows * 3, "1,2", *rows]).encode())
    with pytest.raises(InputError, match=r"row 21 \(counted from 0\) has 2 cells, the header has 3"):
        read_csv(path, ["a"], [])


def test_a_short_row_of_a_packed_table_of_tabs(tmp_path):
    path = tmp_path / "rows.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n1,0\t\n2\n"))
    with pytest.raises(InputError, match=r"row 1 \(counted from 0\) has 1 cell, the header has 2.* need their tabs"):
        read_csv(path, ["a"], [])
