"""What is said when a table is read: wide columns of strings, filled cells, and folders in place of tables."""

import warnings

import numpy as np
import polars as pl
import pytest

from consilience.cli import main
from consilience.core.errors import InputError, TableWarning
from consilience.data import load_data

N = 1200  # so that every category is in the train rows


def frame(**further):
    rng = np.random.default_rng(0)
    return pl.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N), "y": [0, 1] * (N // 2)} | further)


def sentences(different):
    return [f"pump {row % different} is loud again" for row in range(N)]


@pytest.mark.parametrize("different", [25, 120])
def test_sentences_that_become_one_hot_features_are_warned_of(different):
    table = frame(remark=sentences(different))
    with pytest.warns(
        TableWarning, match=rf"'remark' of modality 'm' holds {different} different strings of 5.0 words"
    ) as said:
        load_data(table, target="y", modalities={"m": ["a", "remark"], "b": "b"})
    assert "(--modality remark=remark:text)" in str(said[0].message)
    with pytest.warns(TableWarning, match=r"\(--modality note=remark:text\)"):
        load_data(table, target="y", modalities={"note": "remark", "b": "b"})


@pytest.mark.parametrize(
    ("cells", "kinds"),
    [
        (sentences(15), None),
        (sentences(120), {"remark": "category"}),
        (sentences(120), {"m": "vector"}),
        ([f"code{row % 90}" for row in range(N)], None),
    ],
)
def test_few_or_declared_categories_are_not(cells, kinds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_data(frame(remark=cells), target="y", modalities={"m": ["a", "remark"], "b": "b"}, kinds=kinds)


def test_codes_are_warned_of_where_they_are_very_many():
    codes = [f"code{row % 110}" for row in range(N)]
    with pytest.warns(TableWarning, match="'remark' of modality 'm' holds 110 different strings of 1.0 words"):
        load_data(frame(remark=codes), target="y", modalities={"m": ["a", "remark"], "b": "b"})


def test_filled_cells_are_counted_by_column(tmp_path, capsys):
    table = frame(c=np.random.default_rng(1).normal(size=N))
    table = table.with_columns(
        a=pl.when(pl.int_range(N) < 7).then(None).otherwise("a"),
        c=pl.when(pl.int_range(N) < 3).then(None).otherwise("c"),
    )
    table.write_csv(tmp_path / "pumps.csv")
    with pytest.warns(TableWarning, match="are filled"):
        data = load_data(tmp_path / "pumps.csv", target="y", modalities={"m": ["a", "c"], "b": "b"})
    # Rows 0 to 2 lack the modality; of rows 3 to 6 only the cell of a is empty.
    assert [known.get("filled") for known in data.describe()["modalities"]] == [{"a": 4}, None]
    words = [
        "data",
        "describe",
        str(tmp_path / "pumps.csv"),
        "--target",
        "y",
        "--modality",
        "m=a,c",
        "--modality",
        "b=b",
    ]
    assert main(words) == 0
    assert "4 cells filled: 4 of a" in capsys.readouterr().out


def test_a_folder_is_no_table(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    for modalities in ({"m": "a"}, None):
        with pytest.raises(InputError, match=r"is a folder without tables and without \.npy files. Give the path of"):
            load_data(tmp_path, target="y", modalities=modalities)
    frame().write_csv(tmp_path / "pumps.csv")
    with pytest.raises(InputError, match=r"is a folder, and no table: give .*/pumps\.csv"):
        load_data(tmp_path, target="y", modalities={"m": "a"})


def test_groups_have_the_names_of_the_user():
    names = [f"p{row // 10}" for row in range(N)]
    data = load_data(frame(patient=names), target="y", modalities={"m": "a", "b": "b"}, group="patient")
    assert data.groups.tolist() == names
    held = data.split == "test"
    assert len(set(data.groups[held])) == len(set(data.test.group.tolist()))
    assert load_data(frame(), target="y", modalities={"m": "a", "b": "b"}).groups is None
