"""A saved model gives the same numbers again, and everything else gives a clear error and executes nothing."""

import hashlib
import json
import os
import pickle
import stat
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from consilience.core import files
from consilience.core.errors import InputError, SavedModelError
from consilience.core.samples import Samples
from consilience.training import Model, Trainer, load_model, model_folder
from consilience.training.model_folder import CARD, DESCRIPTION, FORMAT, WEIGHTS
from training.toys import make_samples

SAMPLES, TEST = make_samples(40), make_samples(20, seed=5)


def fit(name="concat", samples=SAMPLES, **given):
    return Model.fit(name, samples, trainer=Trainer(epochs=1, device="cpu"), **given)


def output(model, samples=TEST):
    return model.predict(samples, device="cpu").output


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture
def folder(model, tmp_path):
    return model.save(tmp_path / "model")


def edit(folder, seal=True, **changes):
    """Change the description; with `seal`, as someone would who knows the format."""
    path = folder / DESCRIPTION
    described = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    described = {name: value for name, value in described.items() if value is not ...}
    if seal and "checksum" in described:
        described["checksum"] = model_folder._seal(described)
    path.write_text(json.dumps(described), encoding="utf-8")


def test_every_file_has_the_mode_that_the_umask_gives(model, tmp_path):
    before = os.umask(0o027)
    try:
        saved = model.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert {stat.S_IMODE((saved / name).stat().st_mode) for name in (DESCRIPTION, WEIGHTS)} == {0o640}


@pytest.mark.parametrize("name", ["concat", "align", "early", "late", "late-probs", "unimodal:b", "best-unimodal"])
def test_a_round_trip_changes_no_bit(name, tmp_path):
    model = fit(name)
    again, extra = load_model(model.save(tmp_path / "model", {"note": "größer"}))
    assert torch.equal(output(again), output(model))
    assert extra == {"note": "größer"}
    assert (again.name, again.settings, again.task) == (name, {}, model.task)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [CARD, DESCRIPTION, WEIGHTS]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_strings_numbers_text_and_odd_names_round_trip(tmp_path):
    samples = Samples.of(
        {
            "keys": ["good film", "bad film", "no", "yes yes"] * 5,
            "temp.1": np.random.default_rng(0).normal(size=(20, 2)),
        },
        np.array(["ja", "nein", "wörd", "ja"] * 5),
    )
    model = fit("late", samples)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(output(again, samples), output(model, samples))
    assert again.task.classes.tolist() == ["ja", "nein", "wörd"]
    numbers = make_samples(30, regression=True)
    model = fit("concat", numbers)
    again, _ = load_model(model.save(tmp_path / "numbers"))
    assert np.array_equal(again.task.decode(output(again).numpy()), model.task.decode(output(model).numpy()))


def test_settings_with_numpy_values(tmp_path):
    settings = {"width": np.int64(12), "dropout": np.float32(0.25)}
    encoders = {"a": {"name": "mlp", "hidden": [np.int64(6), 4]}}
    model = fit(settings=settings, encoders=encoders)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(output(again), output(model))
    assert again.settings == {"width": 12, "dropout": 0.25}
    again, _ = load_model(again.save(tmp_path / "model"))
    assert torch.equal(output(again), output(model))


def test_settings_that_are_no_json_are_refused_and_nothing_is_written(tmp_path):
    model = fit("early", settings={"encoder": nn.Linear(5, 4)})
    with pytest.raises(InputError, match=r"cannot be written as JSON: Linear.*Nothing was written"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_an_existing_model_is_replaced(model, folder):
    other = fit("late")
    other.save(folder)
    assert load_model(folder)[0].name == "late"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    (folder.parent / "empty").mkdir()
    model.save(folder.parent / "empty")
    assert load_model(folder.parent / "empty")[0].name == "concat"


def test_a_folder_or_link_under_the_name_of_a_model_file_is_not_removed(model, folder, tmp_path):
    (folder / "experts.skops").mkdir()
    (folder / "experts.skops" / "mine.csv").write_text("mine")
    with pytest.raises(InputError, match=r"holds 'experts\.skops', which is no part of a model"):
        model.save(folder)
    assert (folder / "experts.skops" / "mine.csv").read_text() == "mine"


def test_names_with_half_a_character_are_saved(tmp_path):
    described = {"method": "late", "classes": ["\ud800", "é"]}
    path = model_folder.write_folder(tmp_path / "model", model_folder.Folder(described, {}))
    assert model_folder.read_folder(path).described["classes"] == ["\ud800", "é"]
    assert model_folder.is_intact(path)
    (path / WEIGHTS).write_bytes(b"")
    assert not model_folder.is_intact(path)
    assert not model_folder.is_intact(tmp_path)


def test_a_failure_while_replacing_keeps_the_old_model(model, folder, monkeypatch):
    monkeypatch.setattr(files, "_exchange", lambda *_: False)  # as on a file system without it
    replace, calls = files.os.replace, []

    def failing(source, target):
        calls.append(source)
        if len(calls) == 2:  # the old folder is aside, the new one about to take its place
            raise OSError("no space left")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", failing)
    with pytest.raises(OSError, match="no space left"):
        fit("late").save(folder)
    monkeypatch.undo()
    assert torch.equal(output(load_model(folder)[0]), output(model))
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"thesis.tex": "years of work"}, "holds 'thesis.tex', which is no part of a model"),
        ({DESCRIPTION: '{"library": "keras"}'}, "is not a model saved by consilience"),
        ({DESCRIPTION: "not json"}, "is not a model saved by consilience"),
        ({DESCRIPTION: "[1]"}, "is not a model saved by consilience"),
        ({WEIGHTS: "someone else's"}, "is not a model saved by consilience"),
    ],
)
def test_a_foreign_folder_is_not_overwritten(model, tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        model.save(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_what_the_user_put_beside_a_model_is_not_lost(model, folder):
    (folder / "notes.txt").write_text("mine")
    assert torch.equal(output(load_model(folder)[0]), output(model))
    with pytest.raises(InputError, match=r"holds 'notes\.txt'"):
        model.save(folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_file_is_not_overwritten(model, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        model.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_relative_path(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save("deep/model")
    assert torch.equal(output(load_model("deep/model")[0]), output(model))
    monkeypatch.chdir(tmp_path / "deep" / "model")
    model.save(".")
    assert torch.equal(output(load_model(tmp_path / "deep" / "model")[0]), output(model))


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_truncated_weights(folder, keep):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(SavedModelError, match=rf"{WEIGHTS} is truncated or was changed"):
        load_model(folder)


def test_a_flipped_bit_anywhere_is_noticed(model, folder):
    random = np.random.default_rng(0)
    for name in (WEIGHTS, DESCRIPTION):
        whole = (folder / name).read_bytes()
        for place in random.integers(len(whole), size=25):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(random.integers(7))
            (folder / name).write_bytes(damaged)
            try:
                again, _ = load_model(folder)
            except SavedModelError:
                continue
            # A space that became another kind of white space in JSON is the only damage that does no harm.
            assert name == DESCRIPTION
            assert whole[place : place + 1].isspace()
            assert torch.equal(output(again), output(model))
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize("name", [DESCRIPTION, WEIGHTS])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(SavedModelError, match=f"{name} is missing"):
        load_model(folder)


def test_no_folder(tmp_path):
    with pytest.raises(SavedModelError, match="there is no saved model at"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(SavedModelError, match="it is not a folder"):
        load_model(tmp_path / "file")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"library": "keras"}', "\ud800", "[" * 100_000])
def test_a_foreign_or_damaged_description(folder, text):
    (folder / DESCRIPTION).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SavedModelError, match=r"is damaged|not a model saved by consilience"):
        load_model(folder)


def test_an_edited_description_is_noticed(folder):
    edit(folder, seal=False, method="late")
    with pytest.raises(SavedModelError, match=r"model\.json was changed after saving"):
        load_model(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": ...}, "'settings' is missing"),
        ({"format": "one"}, "'format' is missing or is not of type int"),
        ({"encoders": []}, "'encoders' is missing or is not of type dict"),
        ({"method": "conct"}, "'conct'.*did you mean 'concat'"),
        ({"method": "late"}, "do not fit the method"),
        ({"settings": {"wdth": 3}}, "did you mean 'width'"),
        ({"settings": {"width": "wide"}}, "cannot be built as it was saved"),
        ({"settings": {"width": 8}}, "do not fit the method"),
        ({"encoders": {"a": "rsnet"}}, "unknown encoder"),
        ({"encoders": {"a": 7}}, "cannot be built as it was saved"),
        ({"preparation": {}}, "preparation cannot be read"),
        ({"preparation": {"modalities": 3, "task": {}}}, "preparation cannot be read"),
        ({"preparation": {"modalities": [{}], "task": {}}}, "preparation cannot be read"),
        ({"preparation": {"modalities": [], "task": {"kind": "classification"}}}, "task cannot be read"),
    ],
)
def test_a_description_that_makes_no_sense(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(SavedModelError, match=message):
        load_model(folder)


def test_a_default_that_has_changed_since_changes_no_saved_model(folder, tmp_path):
    before, _ = load_model(folder)
    assert json.loads((folder / DESCRIPTION).read_text())["defaults"] == {"width": 256, "dropout": 0.1}
    edit(folder, defaults={"width": 256, "dropout": 0.4, "of another version": 3})
    loaded, _ = load_model(folder)
    assert (before.settings, loaded.settings) == ({}, {}), "what was chosen stays apart"
    assert [part.p for part in loaded.method.modules() if isinstance(part, nn.Dropout)][-1] == 0.4
    again, _ = load_model(loaded.save(tmp_path / "again"))  # nor does saving it again
    assert [part.p for part in again.method.modules() if isinstance(part, nn.Dropout)][-1] == 0.4
    edit(folder, defaults={"dropout": "much"})
    with pytest.raises(SavedModelError, match="dropout must be"):
        load_model(folder)


def test_a_newer_format_warns_and_is_tried(model, folder):
    edit(folder, format=FORMAT + 1, version="99.0")
    with pytest.warns(UserWarning, match=r"saved by consilience 99\.0 in a newer format"):
        again, _ = load_model(folder)
    assert torch.equal(output(again), output(model))
    edit(folder, format=FORMAT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(folder)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize("write", [pickle.dumps, "torch"])
def test_a_pickle_in_place_of_the_weights_is_not_executed(folder, write):
    if write == "torch":
        torch.save(Bomb(), folder / WEIGHTS)
    else:
        (folder / WEIGHTS).write_bytes(write(Bomb()))
    with pytest.raises(SavedModelError, match="checksum differs"):
        load_model(folder)
    edit(folder, sha256=hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest())
    with pytest.raises(SavedModelError, match="is damaged"):
        load_model(folder)


def test_encoders_of_ones_own_are_passed_again(tmp_path):
    def own():
        return nn.Sequential(nn.Linear(3, 7), nn.Tanh())

    model = fit("late", encoders={"a": own(), "b": {"name": "mlp", "hidden": [6]}})
    folder = model.save(tmp_path / "model")
    with pytest.raises(SavedModelError, match=r"encoders of your own for 'a'; no code is stored, so pass them"):
        load_model(folder)
    again, _ = load_model(folder, {"a": own()})
    assert torch.equal(output(again), output(model))
    with pytest.raises(SavedModelError, match=r"do not fit the method.*pass the same ones"):
        load_model(folder, {"a": nn.Linear(3, 9)})
    with pytest.raises(SavedModelError, match="pass the same ones"):
        load_model(folder, {"a": nn.Linear(4, 7)})
    for name in ("b", "c"):
        with pytest.raises(InputError, match=f"no encoder of your own for modality {name!r}"):
            load_model(folder, {"a": own(), name: own()})


def test_loading_leaves_the_random_state_alone(folder):
    state = torch.get_rng_state()
    load_model(folder)
    assert torch.equal(torch.get_rng_state(), state)
