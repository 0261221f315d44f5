"""Tables whose cells are paths of pictures, sound and arrays: kinds, guesses, what is missing, new rows, the cache."""

import json
import multiprocessing
import os
import pickle
import shutil
import time
import warnings
import wave
import zipfile
from pathlib import Path

import numpy as np
import pandas
import polars as pl
import pytest
from PIL import Image

from consilience.comparison.plan import Source
from consilience.core.errors import ConsilienceError, InputError, SavedModelError, TableWarning
from consilience.core.samples import MappedRows
from consilience.data import load_data, read_with_recipe
from consilience.data.files.idx import read_idx
from consilience.data.media import content_keys, decoding, reading
from consilience.data.media.named_files import named_files
from consilience.data.media.recordings import read_recordings
from consilience.data.media.spectrograms import log_mel, mel_bands

N = 30
LABELS = ["ill" if row % 2 else "well" for row in range(N)]
SMALL = {"photo": {"size": 8}}


def picture(row):
    return np.random.default_rng(row).integers(0, 256, size=(8, 8), dtype=np.uint8)


def save_wav(path, samples, rate=8000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, dtype="<i2").tobytes())


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.delenv("CONSILIENCE_CACHE", raising=False)


@pytest.fixture
def folder(tmp_path):
    """A table beside its pictures, recordings and arrays."""
    home = tmp_path / "data"
    for name in ("photos", "sound", "arrays"):
        (home / name).mkdir(parents=True)
    for row in range(N):
        rng = np.random.default_rng(row)
        Image.fromarray(picture(row)).save(home / f"photos/{row}.png")
        save_wav(home / f"sound/{row}.wav", rng.integers(-9999, 9999, size=2000 + 10 * row))
        np.save(home / f"arrays/v{row}.npy", rng.normal(size=5))
        np.save(home / f"arrays/s{row}.npy", rng.normal(size=(2 + row % 4, 3)))
        np.save(home / f"arrays/t{row}.npy", rng.integers(1, 9, size=1 + row % 3))
    table(home).write_csv(home / "table.csv")
    return home


def table(home, **changed):
    columns = {
        "photo": [f"photos/{row}.png" for row in range(N)],
        "voice": [f"sound/{row}.wav" for row in range(N)],
        "vector": [f"arrays/v{row}.npy" for row in range(N)],
        "steps": [f"arrays/s{row}.npy" for row in range(N)],
        "words": [f"arrays/t{row}.npy" for row in range(N)],
        "note": [f"patient number {row} seen" for row in range(N)],
        "lab": [float(row) for row in range(N)],
        "y": LABELS,
    }
    return pl.DataFrame(columns | changed)


def load(home, modalities, **options):
    return load_data(home / "table.csv", target="y", modalities=modalities, **options)


class TestKinds:
    def test_guessed_from_the_cells(self, folder):
        data = load(folder, {name: name for name in ("photo", "voice", "vector", "steps", "note", "lab")})
        kinds = {name: modality.kind for name, modality in data.modalities.items()}
        assert kinds == {
            "photo": "image",
            "voice": "image",
            "vector": "vector",
            "steps": "sequence",
            "note": "text",
            "lab": "vector",
        }
        described = {entry["name"]: entry for entry in data.describe()["modalities"]}
        assert described["photo"]["files"] == {"column": "photo", "endings": {".png": N}, "empty": 0, "broken": 0}
        assert "files" not in described["lab"]
        assert data.extra["columns"]["photo"] == ["photo"]

    def test_values_are_those_of_the_files(self, folder):
        data = load(folder, {"vector": "vector", "photo": "photo", "steps": "steps", "lab": "lab"}, media=SMALL)
        assert data.samples.names == ("vector", "photo", "steps", "lab")
        for row in (0, 7, N - 1):
            np.testing.assert_array_equal(data.samples["photo"][row, 0], picture(row))
            vector = np.load(folder / f"arrays/v{row}.npy")
            np.testing.assert_array_equal(data.samples["vector"][row], vector.astype(np.float32))
            steps = np.load(folder / f"arrays/s{row}.npy")
            assert data.samples.lengths["steps"][row] == len(steps)
            np.testing.assert_array_equal(data.samples["steps"][row, : len(steps)], steps.astype(np.float32))
            assert not data.samples["steps"][row, len(steps) :].any()

    def test_declared_in_the_column_or_beside_it(self, folder):
        modalities = {"photo": "photo", "voice": "voice", "words": "words"}
        declared = {"photo": "image", "voice": "sequence", "words": "tokens"}
        beside = load(folder, modalities, kinds=declared, media=SMALL)
        within = load(folder, {name: f"{name}:{kind}" for name, kind in declared.items()}, media=SMALL)
        for name, kind in declared.items():
            assert within.modalities[name].kind == beside.modalities[name].kind == kind
            np.testing.assert_array_equal(within.samples[name], beside.samples[name])
        assert within.samples.lengths["words"].tolist() == [1 + row % 3 for row in range(N)]
        assert load(folder, {"v": ["vector:array"]}).modalities["v"].kind == "vector"
        assert load(folder, {"v": "voice:sound"}).modalities["v"].kind == "image"

    def test_a_column_may_have_a_colon_in_its_name(self, folder):
        frame = table(folder).rename({"photo": "a:b", "lab": "x:image"})
        frame.write_csv(folder / "table.csv")
        data = load(folder, {"photo": "a:b:image", "lab": "x:image", "again": "note:text"}, media=SMALL)
        assert [modality.kind for modality in data.modalities.values()] == ["image", "vector", "text"]
        assert load(folder, {"photo": "a:b"}).modalities["photo"].kind == "image"

    def test_pictures_may_be_arrays(self, folder):
        for row in range(N):
            np.save(folder / f"photos/{row}.npy", picture(row))
        mixed = [f"photos/{row}.{'npy' if row % 2 else 'png'}" for row in range(N)]
        table(folder, photo=mixed).write_csv(folder / "table.csv")
        data = load(folder, {"photo": "photo"}, media=SMALL)
        np.testing.assert_array_equal(data.samples["photo"][3, 0], picture(3))

    def test_names_of_no_files_stay_strings_with_a_warning(self, folder):
        table(folder, photo=["a.png", "b.png", "c.png"] * (N // 3)).write_csv(folder / "table.csv")
        with pytest.warns(UserWarning, match="none of the first 30 is a file in"):
            data = load(folder, {"photo": "photo"})
        assert data.extra["columns"]["photo"] == ["photo=a.png", "photo=b.png", "photo=c.png"]

    def test_few_or_short_strings_stay_categories(self, folder):
        few = ["as it was before", "all is well again"] * (N // 2)
        table(folder, note=few).write_csv(folder / "table.csv")
        assert load(folder, {"note": "note"}).modalities["note"].kind == "vector"
        table(folder, note=[f"patient{row}" for row in range(N)]).write_csv(folder / "table.csv")
        with pytest.raises(InputError, match="too many for categories"):
            load(folder, {"note": "note"})

    @pytest.mark.parametrize(
        ("modalities", "options", "message"),
        [
            ({"x": "photo:picture"}, {}, "unknown kind 'picture'"),
            ({"x": "lab:image"}, {}, "column 'lab' holds Float64, not paths of files"),
            ({"x": "note:image"}, {}, "holds 'patient number 0 seen', where paths of files are needed"),
            ({"x": ["photo", "lab"]}, {}, "make a modality of their own"),
            ({"x": ["photo:image", "lab"]}, {}, "must be one column of paths"),
            ({"x": "photo:sound"}, {}, "holds picture files"),
            ({"x": "voice:array"}, {}, "holds sound files, not .npy"),
            ({"x": "photo:sequence"}, {}, "pictures are of kind image, not sequence"),
            ({"x": "photo:image"}, {"kinds": {"x": "text"}}, "the kinds 'text' and 'image'"),
            ({"x": "photo"}, {"media": {"y": {}}}, "unknown modality 'y'"),
            ({"x": "lab"}, {"media": {"x": {}}}, "its cells are no paths"),
            ({"x": "photo"}, {"media": {"x": {"sise": 3}}}, "did you mean 'size'"),
            ({"x": "photo"}, {"media": {"x": {"size": 0}}}, "size must be a whole number ≥ 1"),
            ({"x": "photo"}, {"broken": "ignore"}, "Known: error, missing"),
        ],
    )
    def test_refusals(self, folder, modalities, options, message):
        with pytest.raises(InputError, match=message):
            load(folder, modalities, **options)

    def test_pictures_and_sound_do_not_mix(self, folder):
        table(folder, photo=["photos/0.png", "sound/0.wav"] * (N // 2)).write_csv(folder / "table.csv")
        with pytest.raises(InputError, match=r"different kinds \(picture, sound\)"):
            load(folder, {"photo": "photo"})

    def test_settings_of_files_are_for_tables(self, folder):
        np.savez(folder / "a.npz", x=np.zeros((N, 2)), y=np.arange(N) % 2)
        with pytest.raises(InputError, match="media is for tables"):
            load_data(folder / "a.npz", media={"x": {}})


@pytest.mark.parametrize("ending", ["csv.gz", "tsv", "parquet", "pandas", "polars"])
def test_every_kind_of_table(folder, monkeypatch, ending):
    frame = table(folder)
    if ending == "parquet":
        frame.write_parquet(folder / "t.parquet")
    elif ending == "tsv":
        frame.write_csv(folder / "t.tsv", separator="\t")
    elif ending == "csv.gz":
        __import__("gzip").open(folder / "t.csv.gz", "wb").write(frame.write_csv().encode())
    else:
        monkeypatch.chdir(folder)  # a frame has no folder of its own
        frame = pandas.DataFrame(frame.to_dict(as_series=False)) if ending == "pandas" else frame
    source = frame if ending in ("pandas", "polars") else folder / f"t.{ending}"
    data = load_data(source, target="y", modalities={"photo": "photo"}, media=SMALL)
    np.testing.assert_array_equal(data.samples["photo"][:, 0], [picture(row) for row in range(N)])


def test_few_files_in_many_rows(folder, monkeypatch):
    table(folder, photo=[f"photos/{row % 3}.png" for row in range(N)]).write_csv(folder / "table.csv")
    held = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
    assert isinstance(held, np.ndarray)
    monkeypatch.setattr(reading, "IN_MEMORY_BYTES", 64 * (N - 1))
    shared_rows = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
    assert shared_rows.base.shape == (3, 1, 8, 8)
    np.testing.assert_array_equal(np.asarray(shared_rows), held)
    np.testing.assert_array_equal(held[:, 0], [picture(row % 3) for row in range(N)])


class TestMissing:
    @pytest.fixture
    def damaged(self, folder):
        cells = [f"photos/{row}.png" for row in range(N)]
        (folder / "photos/cut.png").write_bytes((folder / "photos/1.png").read_bytes()[:60])
        (folder / "photos/text.png").write_text("hello")
        os.mkfifo(folder / "photos/pipe.png")
        cells[2], cells[3], cells[4], cells[5] = None, "", "  ", "NA"
        cells[6], cells[7], cells[8], cells[9] = "photos/no.png", "photos/cut.png", "photos/text.png", "photos/pipe.png"
        cells[10], cells[11], cells[12] = "photos/1.xyz", "/", "a\0b.png"
        table(folder, photo=cells).write_parquet(folder / "table.parquet")
        return folder

    def test_broken_files_are_named(self, damaged):
        with pytest.raises(InputError) as error:
            load_data(damaged / "table.parquet", target="y", modalities={"photo": "photo"})
        said = str(error.value)
        assert "7 of 30 files of column 'photo' cannot be read" in said
        assert "row 6, 'photos/no.png': there is no such file" in said
        assert "row 7, 'photos/cut.png': image file is truncated" in said
        assert "row 8, 'photos/text.png': it is no picture that can be read" in said
        assert "and 4 more" in said
        assert "--broken missing" in said
        assert str(damaged) in said
        assert "0x" not in said

    @pytest.mark.parametrize("cached", [False, True])
    def test_or_missing_on_request(self, damaged, monkeypatch, tmp_path, cached):
        if cached:
            monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
        for _ in range(1 + cached):
            with pytest.warns(UserWarning, match="The modality is missing in these rows"):
                data = load_data(
                    damaged / "table.parquet", target="y", modalities={"photo": "photo"}, broken="missing", media=SMALL
                )
            there = data.samples.present_in("photo")
            assert np.flatnonzero(~there).tolist() == list(range(2, 13))
            assert not data.samples["photo"][2:13].any()
            np.testing.assert_array_equal(data.samples["photo"][13, 0], picture(13))
        assert data.describe()["modalities"][0]["files"]["broken"] == 7
        assert data.describe()["modalities"][0]["files"]["empty"] == 4

    def test_an_array_of_another_shape_and_one_with_nan(self, folder):
        np.save(folder / "arrays/v3.npy", np.zeros(4))
        np.save(folder / "arrays/v4.npy", np.array([1, 2, np.nan, 4, 5]))
        np.save(folder / "arrays/v5.npy", np.array([{}] * 5, dtype=object))
        with pytest.raises(InputError, match=r"row 3.*shape is \[4\], that of the others \[5\].*NaN.*Python objects"):
            load(folder, {"x": "vector"})

    def test_an_array_of_nan_is_missing(self, folder):
        np.save(folder / "arrays/v3.npy", np.full(5, np.nan))
        assert not load(folder, {"x": "vector"}).samples.present_in("x")[3]

    def test_nothing_there_at_all(self, folder):
        table(folder, photo=pl.Series([None] * N, dtype=pl.String)).write_parquet(folder / "t.parquet")
        with pytest.raises(InputError, match="column 'photo' is empty"):
            load_data(folder / "t.parquet", target="y", modalities={"photo": "photo:image"})


class TestRecipe:
    def recipe(self, folder, **options):
        data = load(
            folder,
            {"photo": "photo", "voice": "voice:sequence", "steps": "steps", "note": "note", "lab": "lab"},
            media={"photo": {"size": 6, "colour": "rgb"}, "voice": {"bands": 10, "rate": 8000, "window": 0.064}},
            **options,
        )
        return data, json.loads(json.dumps(data.recipe(), sort_keys=True))

    def test_new_rows_are_read_as_those_of_training(self, folder, tmp_path):
        data, recipe = self.recipe(folder)
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(folder, elsewhere)
        shutil.rmtree(folder)  # paths start from the folder of the new table
        table(elsewhere).drop("y").reverse().write_csv(elsewhere / "new.csv")
        read = read_with_recipe(recipe, elsewhere / "new.csv")
        assert read.y is None
        for name in data.modalities:
            assert read.modalities[name] == data.modalities[name]
            np.testing.assert_array_equal(read[name], data.samples[name][::-1])

    def test_a_single_row_with_empty_cells(self, folder):
        _, recipe = self.recipe(folder)
        row = table(folder).head(1).with_columns(photo=None, voice=pl.lit(""))
        row.write_csv(folder / "row.csv")
        read = read_with_recipe(recipe, folder / "row.csv")
        assert read.present.tolist() == [[False, False, True, True, True]]
        row.drop("photo").write_csv(folder / "row.csv")
        assert "photo" not in read_with_recipe(recipe, folder / "row.csv")

    def test_broken_files_as_in_training(self, folder):
        table(folder, photo=["photos/no.png"] * N).write_csv(folder / "new.csv")
        with pytest.raises(InputError, match="30 of 30 files"):
            read_with_recipe(self.recipe(folder)[1], folder / "new.csv")
        with pytest.warns(UserWarning, match="30 of 30 files"):
            read = read_with_recipe(self.recipe(folder, broken="missing")[1], folder / "new.csv")
        assert not read.present_in("photo").any()

    def test_recipes_of_strangers(self, folder):
        _, recipe = self.recipe(folder)
        for change in (
            {"media": "program"},
            {"settings": {"size": 10**9}},
            {"settings": {"size": 8}},  # "auto" is not decided
            {"kind": "text"},
            {"broken": "ignore"},
            {"column": None, "settings": None},
        ):
            changed = json.loads(json.dumps(recipe))
            changed["modalities"][0] |= change
            with pytest.raises(ConsilienceError):
                read_with_recipe(changed, folder / "table.csv")
        with pytest.raises(SavedModelError):
            read_with_recipe({**recipe, "modalities": [{"name": "photo", "media": "picture"}]}, folder / "table.csv")

    def test_resplit(self, folder):
        data, _ = self.recipe(folder)
        again = data.resplit(5)
        assert (again.split != data.split).any()
        np.testing.assert_array_equal(again.samples["photo"], data.samples["photo"])


class TestCache:
    @pytest.fixture
    def cache(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
        return tmp_path / "cache"

    def test_files_are_decoded_once(self, folder, cache, monkeypatch):
        first = load(folder, {"photo": "photo", "steps": "steps"}, media=SMALL)
        plain = sorted(cache.rglob("*.npy"))
        monkeypatch.setattr(decoding, "_decode_with_digest", lambda *arguments, **options: pytest.fail("decoded again"))
        again = load(folder, {"photo": "photo", "steps": "steps"}, media=SMALL)
        for name in ("photo", "steps"):
            np.testing.assert_array_equal(first.samples[name], again.samples[name])
        np.testing.assert_array_equal(first.samples.lengths["steps"], again.samples.lengths["steps"])
        assert sorted(path for path in cache.rglob("*.npy") if "content" not in path.parts) == [
            path for path in plain if "content" not in path.parts
        ]
        assert sorted(path.name for path in folder.iterdir()) == ["arrays", "photos", "sound", "table.csv"]

    def test_other_content_and_other_settings_are_other_entries(self, folder, cache):
        before = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
        Image.fromarray(255 - picture(3)).save(folder / "photos/3.png")
        after = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
        assert np.flatnonzero((before != after).any(axis=(1, 2, 3))).tolist() == [3]
        np.testing.assert_array_equal(after[3, 0], 255 - picture(3))
        assert load(folder, {"photo": "photo"}, media={"photo": {"size": 5}}).modalities["photo"].shape == (1, 5, 5)

    def test_files_that_have_settled_are_not_read_again(self, folder, cache, monkeypatch):
        monkeypatch.setattr(content_keys, "_SETTLED_SECONDS", 0.05)
        time.sleep(0.1)
        expected = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
        read = []
        monkeypatch.setattr(decoding, "read_file", lambda path: read.append(path) or Path(path).read_bytes())
        got = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
        assert not read
        np.testing.assert_array_equal(got, expected)
        Image.fromarray(255 - picture(3)).save(folder / "photos/3.png")
        os.utime(folder / "photos/3.png", ns=(0, 0))  # a copy may have an old time of writing
        time.sleep(0.1)
        got = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
        np.testing.assert_array_equal(got[3, 0], 255 - picture(3))

    def test_damage_in_the_cache_means_decoding_again(self, folder, cache):
        expected = load(folder, {"photo": "photo"}, media=SMALL).samples["photo"]
        for path in cache.rglob("*.npy"):
            path.write_bytes(path.read_bytes()[:20])
        np.testing.assert_array_equal(load(folder, {"photo": "photo"}, media=SMALL).samples["photo"], expected)

    def test_large_modalities_stay_on_disk(self, folder, cache, monkeypatch):
        held = load(folder, {"photo": "photo"}, media=SMALL)
        monkeypatch.setattr(decoding, "IN_MEMORY_BYTES", 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mapped = load(folder, {"photo": "photo"}, media=SMALL)
        monkeypatch.delenv("CONSILIENCE_CACHE")
        told = r"'photo': 30 files take 0\.0 GB .* CONSILIENCE_CACHE, .* \(--media photo\.size=…\)"
        with pytest.warns(TableWarning, match=told):
            lazy = load(folder, {"photo": "photo"}, media=SMALL)
        assert isinstance(lazy.samples["photo"].base, decoding.FilesOnDemand)
        for data in (mapped, lazy):
            assert data.samples.on_disk
            assert isinstance(data.samples["photo"], MappedRows)
            np.testing.assert_array_equal(data.samples.read("photo"), held.samples["photo"])
            np.testing.assert_array_equal(data.test.read("photo"), held.test["photo"])
            again = pickle.loads(pickle.dumps(data.samples["photo"]))
            np.testing.assert_array_equal(np.asarray(again), held.samples["photo"])

    def test_files_that_are_gone_later_are_an_error(self, folder, monkeypatch):
        (folder / "photos/4.png").write_bytes(b"no picture")
        monkeypatch.setattr(decoding, "IN_MEMORY_BYTES", 100)
        with pytest.warns(UserWarning, match="1 of 30 files"):
            data = load(folder, {"photo": "photo", "lab": "lab"}, media=SMALL, broken="missing")
        assert isinstance(data.samples["photo"].base, decoding.FilesOnDemand)
        (folder / "photos/7.png").unlink()
        assert not data.samples["photo"][[4]].any()  # known to be broken, and not present
        np.testing.assert_array_equal(data.samples["photo"][[4, 8]][1, 0], picture(8))
        with pytest.raises(InputError, match=r"photos/7\.png could be read .* read now: there is no such file"):
            data.samples.read("photo")

    def test_a_file_that_changes_while_it_is_read(self, folder, cache, monkeypatch):
        decode = decoding._decode_with_digest

        def late(path, decoder, digest=True):
            if path.endswith("/4.png"):
                Image.fromarray(255 - picture(3)).save(path)
            return decode(path, decoder, digest)

        shutil.copy(folder / "photos/3.png", folder / "photos/4.png")  # of the same content until then
        monkeypatch.setattr(decoding, "_decode_with_digest", late)
        with pytest.raises(InputError, match=r"row 3, .*it changed while it was read"):
            load(folder, {"photo": "photo"}, media=SMALL)

    def test_several_pieces(self, folder, cache, monkeypatch):
        expected = load(folder, {"photo": "photo"}, media={"photo": {"size": 7}}).samples["photo"]
        shutil.rmtree(cache)
        monkeypatch.setattr(decoding, "SCAN_BYTES", 4 * 49)
        monkeypatch.setattr(decoding, "IN_MEMORY_BYTES", 0)
        got = load(folder, {"photo": "photo"}, media={"photo": {"size": 7}}).samples
        assert len(list(cache.rglob("*.values.npy"))) == 8
        np.testing.assert_array_equal(got.read("photo"), expected)
        np.testing.assert_array_equal(got.read("photo", [29, 3, 3]), expected[[29, 3, 3]])

    def test_ctrl_c_leaves_whole_pieces_only(self, folder, cache, monkeypatch):
        monkeypatch.setattr(decoding, "SCAN_BYTES", 10 * 64)
        decode, seen = decoding._decode_with_digest, []

        def interrupted(path, decoder, digest=True):
            seen.append(path)
            if len(seen) > 15:
                raise KeyboardInterrupt
            return decode(path, decoder, digest)

        with monkeypatch.context() as patch:
            patch.setattr(decoding, "_decode_with_digest", interrupted)
            with pytest.raises(KeyboardInterrupt):
                load(folder, {"photo": "photo"}, media=SMALL)
        assert len(list(cache.rglob("*.values.npy"))) == 1
        assert not list(cache.rglob(".*"))
        data = load(folder, {"photo": "photo"}, media=SMALL)
        np.testing.assert_array_equal(data.samples["photo"][:, 0], [picture(row) for row in range(N)])

    @pytest.mark.slow
    def test_two_processes_at_once(self, folder, cache):
        context = multiprocessing.get_context("spawn")
        with context.Pool(2) as pool:
            sums = pool.map(_sum_of_pictures, [str(folder / "table.csv")] * 4)
        assert set(sums) == {sum(int(picture(row).sum()) for row in range(N))}

    def test_a_folder_that_cannot_be_made(self, folder, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "file" / "below"))
        with pytest.raises(InputError, match="cannot be kept in"):
            load(folder, {"photo": "photo"})


def _sum_of_pictures(path):
    return int(load_data(path, target="y", modalities={"photo": "photo"}, media=SMALL).samples["photo"].sum())


class TestComparisons:
    def test_other_pictures_are_other_data(self, folder):
        options = {"target": "y", "modalities": {"photo": "photo", "note": "note", "lab": "lab"}}
        source = Source.of(folder / "table.csv", options)
        before = source.fingerprint()
        assert source.fingerprint() == before
        Image.fromarray(255 - picture(3)).save(folder / "photos/3.png")
        assert source.fingerprint() != before

    def test_which_files_a_table_names(self, folder):
        everything = {name: name for name in ("photo", "voice", "note", "lab")}
        files = [folder / f"photos/{row}.png" for row in range(N)]
        assert named_files(folder / "table.csv", {"photo": "photo:image", "lab": "lab"}) == files
        assert len(named_files(folder / "table.csv", everything)) == 2 * N
        assert named_files(folder / "table.csv", {"lab": "lab", "note": "note"}) == []
        table(folder).write_parquet(folder / "table.parquet")
        assert named_files(folder / "table.parquet", {"photo": "photo", "lab": "lab"}) == files


def shared(*names):
    home = Path(os.environ.get("CONSILIENCE_DATA", "/nowhere"))
    path = home.joinpath(*names)
    if not path.exists():
        pytest.skip(f"needs {'/'.join(names)} in the folder that CONSILIENCE_DATA names")
    return path


def test_real_recordings(tmp_path):
    path = shared("fsdd", "recordings.zip")
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(("_0.wav", "_1.wav")))[:60]
        archive.extractall(tmp_path, names)
    frame = pl.DataFrame({"file": names, "digit": [Path(name).name[0] for name in names]})
    frame.write_csv(tmp_path / "digits.csv")
    settings = {"rate": 8000, "seconds": 1.2, "bands": 20}
    data = load_data(tmp_path / "digits.csv", target="digit", modalities={"voice": "file"}, media={"voice": settings})
    recordings = read_recordings(path)
    samples, rate = recordings[Path(names[17]).stem]
    assert rate == 8000
    padded = np.zeros(256 + 128 * 73)
    padded[: len(samples)] = samples / 2**15
    expected = log_mel(padded, 256, 128, mel_bands(20, 256, 8000))
    np.testing.assert_allclose(data.samples["voice"][17, 0].T, expected[: data.modalities["voice"].shape[2]], atol=1e-3)


def test_real_digits_as_pictures(tmp_path):
    images = read_idx(shared("mnist", "t10k-images-idx3-ubyte.gz"), 3)[:50]
    labels = read_idx(shared("mnist", "t10k-labels-idx1-ubyte.gz"), 1)[:50] % 2
    for row, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{row}.png")
    frame = pl.DataFrame({"file": [f"{row}.png" for row in range(50)], "odd": labels.astype(int)})
    frame.write_csv(tmp_path / "digits.csv")
    data = load_data(tmp_path / "digits.csv", target="odd", modalities={"d": "file"}, media={"d": {"size": 28}})
    np.testing.assert_array_equal(data.samples["d"][:, 0], images)
    assert data.samples["d"].dtype == np.uint8


class TestGuessedColour:
    def test_files_of_the_whole_column_are_looked_at(self, tmp_path):
        write_mixed(tmp_path, range(60, 120))  # the first sixty are grey
        assert load(tmp_path, {"photo": "photo"}, media=SMALL).modalities["photo"].shape == (3, 8, 8)

    @pytest.mark.parametrize("ending", ["png", "jpg", "npy"])
    @pytest.mark.parametrize("stored", ["held", "lazy", "cache"])
    def test_colours_that_are_lost_are_told(self, tmp_path, monkeypatch, stored, ending):
        write_mixed(tmp_path, [1, 3], ending)  # between the fifty that are looked at
        if stored == "cache":
            monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
        elif stored == "lazy":
            monkeypatch.setattr(decoding, "IN_MEMORY_BYTES", 0)
        for _ in range(2):  # the second time from the cache
            with pytest.warns(UserWarning, match=rf"2 of 120 .* row 1, .p1\.{ending}.*\(--media photo\.colour=rgb\)"):
                data = load(tmp_path, {"photo": "photo:image"}, media=SMALL)
            assert data.modalities["photo"].shape == (1, 8, 8)

    @pytest.mark.parametrize("colour", ["grey", "rgb"])
    @pytest.mark.filterwarnings("error")
    def test_a_declared_colour_is_no_surprise(self, tmp_path, colour):
        write_mixed(tmp_path, [1, 3])
        load(tmp_path, {"photo": "photo"}, media={"photo": {"size": 8, "colour": colour}})


def write_mixed(home, coloured, ending="png"):
    """120 grey pictures, except for some."""
    for row in range(120):
        pixels = np.random.default_rng(row).integers(0, 256, size=(8, 8, 3) if row in coloured else (8, 8))
        if ending == "npy":
            np.save(home / f"p{row}.npy", pixels.astype(np.uint8))
        else:
            Image.fromarray(pixels.astype(np.uint8)).save(home / f"p{row}.{ending}")
    cells = {"photo": [f"p{row}.{ending}" for row in range(120)], "y": [*LABELS] * 4}
    pl.DataFrame(cells).write_csv(home / "table.csv")
