"""Files whose values would change without a word: names, labels and numbers that are read as something else."""

import numpy as np
import pandas
import polars
import pytest

from consilience.core.errors import InputError, MissingDataError
from consilience.core.targets import Task
from consilience.data import load_data
from consilience.data.files.opinion_files import open_opinions
from consilience.data.files.opinion_labels import open_labels, whole_number


def table(path, cells, name="x", rows=40):
    lines = [f'{row % 20},"{cells[row % len(cells)]}",{"ab"[row % 2]}' for row in range(rows)]
    path.write_text("\n".join([f"z,{name},y", *lines]) + "\n")
    return path


def read(path, column="x"):
    return load_data(path, target="y", modalities={"m": ["z", column]})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_name_with_the_characters_of_a_glob_is_one_file(tmp_path, ending):
    wrong, right = (polars.DataFrame({"x": [value] * 20, "y": ["a", "b"] * 10}) for value in (1.0, 2.0))
    for name, frame in (("data1", wrong), ("run1", wrong), ("data[1]", right), ("run*", right)):
        path = tmp_path / f"{name}.{ending}"
        frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    for name in ("data[1]", "run*"):
        data = load_data(tmp_path / f"{name}.{ending}", target="y", modalities={"m": "x"})
        assert np.unique(data.samples.values["m"]).tolist() == [2.0]
        assert len(data.samples) == 20
    for name in ("data[2]", "r*") if ending == "csv" else ("data[2]",):  # r*.parquet are shards, which no file is named
        with pytest.raises(MissingDataError, match="there is no file"):
            load_data(tmp_path / f"{name}.{ending}", target="y", modalities={"m": "x"})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_opinions_in_a_file_with_the_name_of_a_glob(tmp_path, ending):
    for name, value in (("p1", 0.25), ("p[1]", 0.75)):
        frame = polars.DataFrame({"cat": [value] * 3, "dog": [1 - value] * 3})
        path = tmp_path / f"{name}.{ending}"
        frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    (batch,) = open_opinions([path]).batches(10)
    assert batch["p[1]"].tolist() == [[0.75, 0.25]] * 3


def test_a_leading_tilde_is_part_of_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder, value in (("~", "1"), ("home", "2")):
        (tmp_path / folder).mkdir()
        table(tmp_path / folder / "t.csv", [value])
    assert np.unique(read("~/t.csv").samples.values["m"][:, 1]).tolist() == [1.0]


def test_a_folder_is_no_table(tmp_path):
    (tmp_path / "t.csv").mkdir()
    table(tmp_path / "t.csv" / "part.csv", ["1"])
    with pytest.raises(InputError, match=r"t\.csv is a folder"):
        read(tmp_path / "t.csv")


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("y,x,y\n" + "a,1,b\nb,2,a\n" * 10)
    frame = pandas.DataFrame([["a", 1.0, "b"], ["b", 2.0, "a"]] * 10, columns=["y", "x", "y"])
    for source, name in ((tmp_path / "t.csv", r"t\.csv"), (frame, "the DataFrame")):
        with pytest.raises(InputError, match=f"{name} has 2 columns with the name 'y'"):
            load_data(source, target="y", modalities={"m": "x"})


def test_columns_without_a_name_are_allowed(tmp_path):
    (tmp_path / "t.csv").write_text("y,x,,\n" + "a,1,,\nb,2,,\n" * 10)
    assert len(load_data(tmp_path / "t.csv", target="y", modalities={"m": "x"}).samples) == 20


@pytest.mark.parametrize("cells", [["3,14", "2,5", "-1,0"], ["3", "4", "2,5"], ["1,234", "5,678"], ["3,1", "", "NA"]])
def test_decimal_commas_are_refused(tmp_path, cells):
    with pytest.raises(InputError, match=r"column 'x' holds numbers with commas such as '.*decimal_comma"):
        read(table(tmp_path / "t.csv", cells))


@pytest.mark.parametrize("cells", [["red, dark", "blue"], ["1,2,3", "2,3,4"], ["a,1", "b,2"]])
def test_other_commas_are_categories(tmp_path, cells):
    assert read(table(tmp_path / "t.csv", cells)).samples.values["m"].shape[1] == 1 + len(cells)


def labelled(tmp_path, labels):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{row},{labels[row % len(labels)]}\n" for row in range(40)))
    return load_data(path, target="y", modalities={"m": "x"}, task="classification")


def test_large_labels_stay_apart(tmp_path):
    y = labelled(tmp_path, [2**63, 2**63 + 1]).samples.y
    assert set(y.tolist()) == {2**63, 2**63 + 1}
    for labels in ([2**64, 2**64 + 1], [2**63, -1], [10**40, 10**40 + 1]):
        with pytest.raises(InputError, match="column 'y'"):
            labelled(tmp_path, labels)
    with pytest.raises(InputError, match="more than 64 bits"):
        Task.of_labels([2**63, 2**63 + 1, -1])


def test_large_features_are_refused_rather_than_merged(tmp_path):
    for numbers in ([2**64, 2**64 + 1], [2**60, 2**60 + 1, 0.5]):
        with pytest.raises(InputError, match=r"column 'x'.*64-bit floats merge"):
            read(table(tmp_path / "t.csv", numbers))


def test_large_labels_of_opinions_stay_apart(tmp_path):
    (tmp_path / "t.csv").write_text(f"y\n{2**63}\n{2**63 + 1}\n")
    assert len(open_labels(tmp_path / "t.csv").count()) == 2
    assert whole_number(str(2**63 + 1)) == 2**63 + 1


@pytest.mark.parametrize("given", [list, lambda labels: np.array(labels, dtype=object)])
def test_null_characters_at_the_end_are_refused(given):
    with pytest.raises(InputError, match="ends in a null character"):
        Task.of_labels(given(["a", "a\0", "b"]))


def test_null_characters_in_tables(tmp_path):
    frame = polars.DataFrame({"x": ["a", "a\0"] * 20, "y": ["p", "q"] * 20})
    data = load_data(frame, target="y", modalities={"m": "x"})
    assert data.samples.values["m"].tolist() == [[1.0, 0.0], [0.0, 1.0]] * 20
    with pytest.raises(InputError, match=r"target column 'x'.*null character"):
        load_data(frame, target="x", modalities={"m": "y"})


def test_numbers_near_a_large_offset_stay_apart(tmp_path):
    seconds = 1_700_000_000 + np.arange(60)
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{second},{'ab'[second % 2]}\n" for second in seconds))
    data = load_data(path, target="y", modalities={"m": "x"})
    assert np.sort(data.samples.values["m"][:, 0]).tolist() == seconds.tolist()
