"""Tables in shards against the same table in one file."""

import json
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import torch

from consilience import FusionClassifier
from consilience.cli.main import main
from consilience.comparison.sources import Source
from consilience.core.errors import InputError, MissingDataError, TableWarning
from consilience.data import load_data
from consilience.data.shards import learning, tables
from consilience.training import Model, Trainer

ROWS = 600
MODALITIES = {"a": "a*", "b": ["b*", "ward"]}
TRAINER = {"epochs": 3, "device": "cpu", "batch_size": 64}


def make_table():
    drawn = np.random.default_rng(0)
    y = drawn.integers(0, 3, ROWS)
    columns = {f"a{number}": drawn.normal(size=ROWS) + y for number in range(4)}
    columns |= {f"b{number}": drawn.normal(size=ROWS).astype(np.float32) - y for number in range(3)}
    columns["b3"] = drawn.integers(0, 100, ROWS)
    columns["ward"] = [["east", "north", "west"][number] for number in drawn.integers(0, 3, ROWS)]
    columns["note"] = [f"seen {'by' * (k % 3)} day {'late' if k else 'soon'}" for k in y]
    columns |= {
        "label": [f"class {number}" for number in y],
        "patient": [f"p{number}" for number in np.arange(ROWS) // 4],
    }
    frame = pl.DataFrame(columns)
    empty = {"b1": drawn.random(ROWS) < 0.1, "ward": drawn.random(ROWS) < 0.1}
    missing = drawn.random(ROWS) < 0.1
    empty |= {f"a{number}": missing for number in range(4)}
    return frame.with_columns(
        pl.when(pl.Series(mask)).then(None).otherwise(pl.col(name)).alias(name) for name, mask in empty.items()
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table in one file, and the same in seven shards of different sizes."""
    folder = tmp_path_factory.mktemp("shards")
    frame = make_table()
    frame.write_parquet(folder / "all.parquet")
    edges = [0, 50, 51, 200, 320, 321, 500, ROWS]
    for kind in ("parts", "arrow"):
        (folder / kind).mkdir()
    for number, (start, stop) in enumerate(pairwise(edges)):
        frame[start:stop].write_parquet(folder / "parts" / f"part-{number + 5}.parquet")  # 5 … 11: not by letters
        frame[start:stop].write_ipc(folder / "arrow" / f"part-{number}.arrow")
    return folder


@pytest.fixture(scope="module")
def whole(files):
    return load_data(files / "all.parquet", target="label", modalities=MODALITIES)


def same_data(found, whole):
    assert found.samples.on_disk
    assert (found.split == whole.split).all()
    assert found.y.tolist() == whole.y.tolist()
    np.testing.assert_array_equal(found.samples.present, whole.samples.present)
    for name in whole.modalities:
        np.testing.assert_array_equal(found.samples.read(name), whole.samples.read(name))
    read = {**found.recipe(), "data": None}
    assert json.dumps(read) == json.dumps({**whole.recipe(), "data": None})


def test_what_one_table_is_warned_of_shards_are_too(files):
    with pytest.warns(TableWarning, match="parts: single empty cells are filled, 130 of modality 'b'"):
        load_data(files / "parts", target="label", modalities=MODALITIES)


@pytest.mark.parametrize("buffer", [7, 64, None])
@pytest.mark.parametrize("place", ["parts", "parts/*.parquet", "arrow"])
def test_shards_are_read_as_the_whole_table(files, whole, place, buffer):
    found = load_data(str(files / place), target="label", modalities=MODALITIES, buffer=buffer)
    same_data(found, whole)
    same_data(found.resplit(3), whole.resplit(3))  # fills and categories are learned from other rows


def test_what_is_learned_in_several_passes_of_few_rows_is_the_same(files, whole, monkeypatch):
    monkeypatch.setattr(tables, "_LEARNED_BYTES", 8 * 9 * 13)  # 13 rows at once
    same_data(load_data(files / "parts", target="label", modalities=MODALITIES), whole)


def test_medians_of_a_sample_are_near_and_everything_else_is_of_all_rows(files, whole, monkeypatch):
    monkeypatch.setattr(learning, "SAMPLED", 300)
    found = load_data(files / "parts", target="label", modalities=MODALITIES)
    entry, exact = found.recipe()["modalities"][1], whole.recipe()["modalities"][1]
    assert (entry["categories"], entry["flagged"]) == (exact["categories"], exact["flagged"])
    np.testing.assert_array_equal(found.samples.present, whole.samples.present)
    assert entry["fills"] != exact["fills"]
    np.testing.assert_allclose(entry["fills"][:3], exact["fills"][:3], atol=0.3)


def test_with_a_buffer_that_holds_all_a_model_is_the_one_of_the_table_in_memory(files, whole):
    found = load_data(files / "parts", target="label", modalities=MODALITIES, buffer=ROWS)
    one, two = (Model.fit("concat", data.train, data.validation, trainer=Trainer(**TRAINER)) for data in (whole, found))
    for name, value in one.method.state_dict().items():
        assert torch.equal(value, two.method.state_dict()[name]), name
    assert torch.equal(one.predict(whole.test).output, two.predict(found.test).output)


def test_with_a_small_buffer_a_model_learns_as_well(files, whole):
    found = load_data(files / "parts", target="label", modalities=MODALITIES, buffer=64)
    scores = [
        FusionClassifier("late", epochs=8, validation=data.validation, device="cpu").fit(data.train).score(data.test)
        for data in (whole, found)
    ]
    assert scores[1] > 0.8
    assert scores[1] == pytest.approx(scores[0], abs=0.05)


def test_text_groups_and_a_split_column(files):
    options = {
        "target": "label",
        "modalities": {"a": "a*", "note": "note"},
        "group": "patient",
        "kinds": {"note": "text"},
    }
    whole = load_data(files / "all.parquet", **options)
    found = load_data(files / "parts", buffer=50, **options)
    assert found.modalities["note"].kind == "text"
    same_data(found, whole)
    assert found.groups.tolist() == whole.groups.tolist()
    one, two = (Model.fit("late", data.train, trainer=Trainer(**TRAINER)) for data in (whole, found))
    assert one.preparation.transforms["note"].words == two.preparation.transforms["note"].words


def test_shards_behind_a_url(files, whole):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install fsspec")
    memory = fsspec.filesystem("memory")
    for file in (files / "parts").iterdir():
        memory.pipe(f"/table-shards/{file.name}", file.read_bytes())
    for place in ("memory://table-shards", "memory://table-shards/*.parquet"):
        same_data(load_data(place, target="label", modalities=MODALITIES), whole)
    with pytest.raises(
        InputError, match="read whole, and one has 179 rows, more than the buffer of 100: write smaller"
    ):
        load_data("memory://table-shards", target="label", modalities=MODALITIES, buffer=100)
    with pytest.raises(InputError, match=r"'nowhere://x' cannot be opened: Protocol not known: nowhere"):
        load_data("nowhere://x", target="label")


def test_train_on_the_command_line_and_predict(files, tmp_path, capsys):
    columns = ["--modality", "a=a*", "--modality", "b=b*,ward"]
    parts = str(files / "parts")
    how = ["--buffer", "100", "--method", "late", "--epochs", "4", "--device", "cpu"]
    main(["train", parts, "--target", "label", *columns, *how, "--out", str(tmp_path / "model")])
    assert "accuracy" in capsys.readouterr().out
    main(["predict", str(tmp_path / "model"), str(files / "all.parquet"), "--out", str(tmp_path / "answers.csv")])
    assert len(pl.read_csv(tmp_path / "answers.csv")) == ROWS


def test_a_comparison_notices_that_shards_behind_a_glob_have_changed(tmp_path):
    for part in range(3):
        pl.DataFrame({"a": [float(part), 1.5], "y": [0, 1]}).write_parquet(tmp_path / f"part-{part}.parquet")
    source = Source.of(str(tmp_path / "part-*.parquet"), {"target": "y"})
    before = source.fingerprint()
    assert source.fingerprint() == before
    pl.DataFrame({"a": [7.0, 1.5], "y": [0, 1]}).write_parquet(tmp_path / "part-2.parquet")
    assert source.fingerprint() != before


def test_numbers_too_large_for_32_bits_are_kept_wherever_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "SAMPLED", 50)
    values = np.random.default_rng(0).normal(size=ROWS)
    frame = pl.DataFrame({"a": values, "b": values, "label": np.arange(ROWS) % 2})

    def read(frame):
        frame.write_parquet(tmp_path / "part-0.parquet")
        return load_data(tmp_path, target="label", modalities={"a": ["a"], "b": ["b"]})

    row = int(read(frame).test.index[0])  # from which nothing is learned
    large = values.copy()
    large[row] = 1e39
    found = read(frame.with_columns(a=large))
    assert found.samples["a"][[row]].tolist() == [[1e39]]
    assert found.samples["b"].dtype == np.float32


def test_a_glob_with_two_stars_takes_all_folders_below(tmp_path):
    frame = make_table()
    (tmp_path / "year" / "month").mkdir(parents=True)
    frame[:200].write_parquet(tmp_path / "part-0.parquet")
    frame[200:300].write_parquet(tmp_path / "year" / "part-1.parquet")
    frame[300:].write_parquet(tmp_path / "year" / "month" / "part-2.parquet")
    found = load_data(tmp_path / "**" / "*.parquet", target="label", modalities={"a": "a*"}, fill="mean")
    assert len(found.samples) == ROWS


def test_a_folder_with_brackets_in_its_name(tmp_path):
    frame = make_table().select("a0", "a1", "label")
    (tmp_path / "run[1]").mkdir()
    frame.write_ipc(tmp_path / "run[1]" / "part-0.arrow")
    found = load_data(tmp_path / "run[1]", target="label", modalities={"a": "a*"})
    first = found.samples["a"][:5]
    np.testing.assert_allclose(first, frame.select("a0", "a1")[:5].to_numpy(), rtol=1e-6)


def test_what_cannot_be_read_is_said(files, tmp_path):
    with pytest.raises(InputError, match="parts: shards need a target: name the column to predict with target="):
        load_data(files / "parts")
    with pytest.raises(InputError, match=r"unknown target column 'lable'.*label"):
        load_data(files / "parts", target="lable")
    with pytest.raises(MissingDataError, match=r"there is no file '.*nothing-\*.parquet', and no shards"):
        load_data(str(files / "nothing-*.parquet"), target="label")
    with pytest.raises(InputError, match="buffer is for shards: give a folder, a glob or a URL of them, got DataFrame"):
        load_data(make_table(), target="label", buffer=5)
    with pytest.raises(InputError, match="buffer is for shards; data set 'digits' has none: leave buffer out"):
        load_data("digits", buffer=5)
    with pytest.raises(InputError, match="modality 'b' has single empty cells, the first in column 'b1'"):
        load_data(files / "parts", target="label", modalities=MODALITIES, fill="none")
    with pytest.raises(InputError, match=r"of kind vector or text, got \{'a': 'sequence'\}"):
        load_data(files / "parts", target="label", modalities=MODALITIES, kinds={"a": "sequence"})
    frame = make_table()
    frame[:300].write_parquet(tmp_path / "x-0.parquet")
    frame[300:].with_columns(pl.col("b3").cast(pl.Float64)).write_parquet(tmp_path / "x-1.parquet")
    with pytest.raises(InputError, match=r"column 'b3' is Int64 in x-0.parquet and Float64 in x-1.parquet"):
        load_data(tmp_path, target="label")
    frame[300:].with_columns(a1=pl.lit(float("inf"))).write_parquet(tmp_path / "x-1.parquet")
    with pytest.raises(InputError, match=r"modality 'a' holds infinity in column 'a1' \(rows 300"):
        load_data(tmp_path, target="label", modalities=MODALITIES)
    (tmp_path / "y.arrow").write_bytes(b"")
    with pytest.raises(InputError, match=r"shards of different formats \(.arrow, .parquet\)"):
        load_data(tmp_path, target="label")
