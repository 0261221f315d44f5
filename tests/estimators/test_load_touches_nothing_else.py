"""A model from a stranger, with checksums that fit: loading and using it touches its own folder and nothing else."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.base import clone

import consilience
from consilience import FusionClassifier, MultimodalVAE, load
from consilience.cli.main import main
from consilience.core.errors import ConsilienceError, InputError, SavedModelError
from consilience.core.samples import Samples
from consilience.encoders import Frozen
from consilience.encoders.frozen import _body as body
from consilience.encoders.processors import read_tokeniser
from consilience.training import load_model
from resealed_models import plant_code, reseal
from tiny_models import tiny_bert, tiny_resnet, tiny_vit

TEXTS = ["a red circle", "the blue square", "a small mark on the left", "large green thing"] * 10
transformers = pytest.importorskip("transformers", reason="the library transformers is not installed")
QUICK = {"epochs": 1, "validation": None, "device": "cpu"}


@pytest.fixture(autouse=True)
def _nobody_answers(monkeypatch):
    """Where transformers asks whether to run a model's code, the answer is yes; nothing is cached from other tests."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    body.cache_clear()
    read_tokeniser.cache_clear()


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    return {"bert": tiny_bert(folder / "bert"), "vit": tiny_vit(folder / "vit"), "resnet": tiny_resnet(folder / "r")}


def samples_of():
    photos = np.random.default_rng(0).random((40, 3, 16, 16)).astype(np.float32)
    return Samples.of({"text": TEXTS, "photo": photos}, np.arange(40) % 4)


@pytest.fixture(scope="module")
def frozen(pretrained, tmp_path_factory):
    """A saved model on frozen features of text."""
    folder = tmp_path_factory.mktemp("frozen")
    encoders = {"text": {"name": "frozen", "model": pretrained["bert"], "cache": str(folder / "cache"), "hidden": [8]}}
    return FusionClassifier("concat", encoders=encoders, **QUICK).fit(samples_of()).save(folder / "model")


@pytest.fixture(scope="module")
def rebuilt(pretrained, tmp_path_factory):
    """A saved model that holds a BERT and a vision transformer."""
    encoders = {"text": f"bert:{pretrained['bert']}", "photo": f"pretrained:{pretrained['vit']}"}
    model = FusionClassifier("concat", encoders=encoders, **QUICK).fit(samples_of())
    return model.save(tmp_path_factory.mktemp("rebuilt") / "model")


def copied(model, tmp_path):
    return shutil.copytree(model, tmp_path / "copy")


def entry_of(described, name="text"):
    return next(entry for entry in described["preparation"]["modalities"] if entry["modality"] == name)


class TestFrozen:
    def test_is_loaded_only_with_what_is_passed_again(self, frozen, pretrained, tmp_path):
        with pytest.raises(SavedModelError, match=r"'text' was trained on features of .*bert'.*pass it again: load\("):
            load(frozen)
        model = load(frozen, encoders={"text": f"frozen:{pretrained['bert']}"})
        moved = shutil.copytree(pretrained["bert"], tmp_path / "moved")
        again = load(frozen, encoders={"text": {"name": "frozen", "model": str(moved)}})
        np.testing.assert_array_equal(again.predict_proba(samples_of()), model.predict_proba(samples_of()))
        assert again.encoders == {"text": {"name": "frozen", "hidden": [8], "model": str(moved)}}

    def test_the_advice_of_the_message_works(self, frozen):
        with pytest.raises(SavedModelError) as raised:
            load(frozen)
        advice = str(raised.value).partition("pass it again: ")[2].partition(";")[0]
        model = eval(advice, {"load": load, "path": frozen})
        assert model.predict(samples_of()).shape == (40,)

    def test_code_of_the_named_model_is_never_run(self, frozen, pretrained, tmp_path):
        evil = shutil.copytree(pretrained["bert"], tmp_path / "evil")
        sentinel = tmp_path / "sentinel"
        plant_code(evil, sentinel)
        model = reseal(copied(frozen, tmp_path), lambda described: entry_of(described).update(model=str(evil)))
        with pytest.raises(SavedModelError, match="pass it again"):
            load(model)
        with pytest.raises(SavedModelError, match="needs code of its own, which is never run"):
            load(model, encoders={"text": f"frozen:{evil}"})
        assert not sentinel.exists()

    def test_nor_is_it_run_in_training(self, pretrained, tmp_path):
        evil = shutil.copytree(pretrained["bert"], tmp_path / "evil")
        plant_code(evil, tmp_path / "sentinel")
        for chosen in (f"frozen:{evil}", f"bert:{evil}"):
            with pytest.raises(InputError, match="needs code of its own, which is never run"):
                FusionClassifier("concat", encoders={"text": chosen}, **QUICK).fit(samples_of())
        assert not (tmp_path / "sentinel").exists()

    def test_pickled_weights_are_refused(self, frozen, pretrained, tmp_path):
        pickled = shutil.copytree(pretrained["bert"], tmp_path / "pickled")
        from transformers import BertModel

        weights = BertModel.from_pretrained(pickled).state_dict()
        (pickled / "model.safetensors").unlink()
        torch.save(weights, pickled / "pytorch_model.bin")
        with pytest.raises(SavedModelError, match="safetensors"):
            load(frozen, encoders={"text": f"frozen:{pickled}"})

    def test_the_cache_of_the_description_is_not_used(self, frozen, pretrained, tmp_path, monkeypatch):
        monkeypatch.delenv("CONSILIENCE_CACHE", raising=False)
        elsewhere = tmp_path / "elsewhere"

        def change(described):
            entry_of(described)["cache"] = described["encoders"]["text"]["cache"] = str(elsewhere)

        path = reseal(copied(frozen, tmp_path), change)
        model = load(path, encoders={"text": f"frozen:{pretrained['bert']}"})
        model.predict(samples_of())
        clone(model).fit(samples_of()).predict(samples_of())
        load(model.save(tmp_path / "again"), encoders=model.encoders).predict(samples_of())
        assert not elsewhere.exists()
        monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "ours"))
        load(path, encoders={"text": f"frozen:{pretrained['bert']}"}).predict(samples_of())
        assert list((tmp_path / "ours").rglob("*.npy"))
        own = {"name": "frozen", "model": pretrained["bert"], "cache": str(tmp_path / "own")}
        load(path, encoders={"text": own}).predict(samples_of())
        assert list((tmp_path / "own").rglob("*.npy"))
        assert not elsewhere.exists()

    def test_a_frozen_transform_inside_another_is_refused(self, frozen, pretrained, tmp_path):
        def change(described):
            entry = entry_of(described)
            entry["inner"] = {**entry, "kind": "tokens", "shape": [1], "cache": str(tmp_path / "elsewhere")}

        path = reseal(copied(frozen, tmp_path), change)
        with pytest.raises(SavedModelError, match="unknown processor 'frozen'"):
            load(path, encoders={"text": f"frozen:{pretrained['bert']}"})

    def test_what_is_passed_for_another_modality_is_no_permission(self, frozen, pretrained, tmp_path):
        def change(described):
            described["encoders"]["photo"] = {"custom module": "x"}

        path = reseal(copied(frozen, tmp_path), change)
        with pytest.raises(SavedModelError, match="'text' was trained on features"):
            load(path, encoders={"photo": torch.nn.Flatten()})

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("bert:{bert}", "was saved as 'frozen', and 'bert' was passed"),
            ({"name": "frozen", "model": "{bert}", "hidden": [9]}, r"saved with hidden=\[8\], and \[9\] was passed"),
            ("frozen", "'text' was trained on features"),
            ("mlp", "was saved as 'frozen', and 'mlp' was passed"),
            ("nothing", "unknown encoder 'nothing'"),
        ],
    )
    def test_what_is_passed_must_fit(self, frozen, pretrained, given, message):
        text = json.loads(json.dumps(given).replace("{bert}", pretrained["bert"]))
        with pytest.raises(ConsilienceError, match=message):
            load(frozen, encoders={"text": text})

    def test_an_encoder_given_as_a_module(self, pretrained, tmp_path):
        def own(cache=None):
            vector = consilience.core.samples.Modality("text", "vector", (16,))
            return Frozen(vector, model=pretrained["bert"], cache=cache, hidden=[8])

        model = FusionClassifier("concat", encoders={"text": own()}, **QUICK).fit(samples_of())
        again = load(model.save(tmp_path / "model"), encoders={"text": own()})
        np.testing.assert_array_equal(again.predict_proba(samples_of()), model.predict_proba(samples_of()))

    def test_on_the_command_line(self, pretrained, tmp_path, capsys):
        table = tmp_path / "reviews.csv"
        rows = [f"{text},{place % 7},{place % 2}" for place, text in enumerate(TEXTS)]
        table.write_text("\n".join(["review,size,stars", *rows]))
        encoder = ["--encoder", f"text=frozen:{pretrained['bert']}"]
        reading = ["--target", "stars", "--modality", "text=review", "--modality", "size=size", "--kind", "text=text"]
        out = str(tmp_path / "model")
        training = ["--epochs", "1", "--method", "late"]
        assert main(["train", str(table), *reading, "--task", "classification", *training, *encoder, "--out", out]) == 0
        assert main(["predict", out, str(table)]) == 2
        assert "--encoder text=frozen:FOLDER" in capsys.readouterr().err
        assert main(["predict", out, str(table), *encoder]) == 0
        assert capsys.readouterr().out.startswith("prediction,")


class TestPretrained:
    """Configurations that are changed: nothing is loaded by what they name."""

    @pytest.mark.parametrize(
        "change",
        [
            {"auto_map": {"AutoModel": "{evil}--evil.EvilModel", "AutoConfig": "evil.EvilConfig"}},
            {"_name_or_path": "{evil}", "auto_map": {"AutoModel": "evil.EvilModel"}},
            {"model_type": "evil", "auto_map": {"AutoModel": "evil.EvilModel"}, "name_or_path": "{evil}"},
            {"model_type": "detr", "backbone": "{evil}", "backbone_config": None, "use_timm_backbone": False},
            {"model_type": "detr", "backbone": "evil", "use_timm_backbone": True, "use_pretrained_backbone": True},
            {"model_type": "timm_wrapper", "architecture": "x", "model_args": {"checkpoint_path": "evil.bin"}},
            {"model_type": "timm_backbone", "backbone": "local-dir:{evil}"},
            {"attn_implementation": "evil/kernel"},
            {"_attn_implementation": "evil/kernel"},
            {"attn_implementation": {"": "evil/kernel"}},
            {"vision_config": {"auto_map": {"AutoModel": "{evil}--evil.EvilModel"}, "path": "{evil}"}},
            {"layers": [["{evil}"]]},
            {"model_type": None},
            {"model_type": ["bert"]},
            {"hidden_size": "wide"},
            {"dtype": "hub.load"},
        ],
        ids=lambda change: "-".join(map(str, change)),
    )
    def test_changed_configurations(self, rebuilt, pretrained, tmp_path, change):
        evil = shutil.copytree(pretrained["bert"], tmp_path / "evil")
        sentinel = tmp_path / "sentinel"
        plant_code(evil, sentinel)

        def edit(described):
            chosen = described["encoders"]["text"]
            content = json.loads(chosen["rebuilt"])
            content["model"].update(json.loads(json.dumps(change).replace("{evil}", str(evil))))
            chosen["rebuilt"] = json.dumps(content)

        path = reseal(copied(rebuilt, tmp_path), edit)
        with Watched(path, tmp_path) as watched, contextlib.suppress(SavedModelError):
            load(path).predict(samples_of())
        assert not sentinel.exists()
        assert not watched.foreign

    def test_without_its_configuration_the_named_folder_is_not_read(self, rebuilt, pretrained, tmp_path):
        def edit(described):
            described["encoders"]["text"].pop("rebuilt")

        path = reseal(copied(rebuilt, tmp_path), edit)
        with pytest.raises(SavedModelError, match=r"asks for the pretrained model '.*bert', which is not part of its"):
            load(path)
        assert load(path, encoders={"text": f"bert:{pretrained['bert']}"}).predict(samples_of()).shape == (40,)

    def test_another_fit_reads_only_what_is_passed(self, rebuilt, pretrained):
        model = load(rebuilt)
        with pytest.raises(SavedModelError, match=r"names '.*bert'.* if you trust it, set encoders="):
            clone(model).fit(samples_of())
        with pytest.raises(SavedModelError, match=r"names '.*vit'"):
            model.set_params(encoders={**model.encoders, "text": f"bert:{pretrained['bert']}"}).fit(samples_of())
        given = {"text": f"bert:{pretrained['bert']}", "photo": f"pretrained:{pretrained['vit']}"}
        assert load(rebuilt, encoders=given).fit(samples_of()).predict(samples_of()).shape == (40,)

    def test_a_damaged_tokeniser(self, rebuilt, tmp_path):
        for text in ("{", "{}", json.dumps({"model": {"type": "BPE", "vocab": 3}})):

            def edit(described, text=text):
                entry_of(described)["tokeniser"] = text

            path = reseal(shutil.copytree(rebuilt, tmp_path / "copy", dirs_exist_ok=True), edit)
            with pytest.raises(SavedModelError, match="model's tokeniser of modality 'text' failed"):
                load(path)

    def test_one_encoder_for_all_modalities(self, pretrained, tmp_path):
        grey = np.random.default_rng(0).random((3, 20, 1, 16, 16)).astype(np.float32)
        samples = Samples.of({f"m{place}": grey[place] for place in range(3)}, np.arange(20) % 2)
        folder = shutil.copytree(pretrained["resnet"], tmp_path / "gone")
        model = FusionClassifier("early", settings={"encoder": f"resnet:{folder}"}, **QUICK).fit(samples)
        path = model.save(tmp_path / "model")
        shutil.rmtree(folder)
        again = load(path)
        np.testing.assert_array_equal(again.predict_proba(samples), model.predict_proba(samples))
        with pytest.raises(SavedModelError, match=r"names .*gone"):
            clone(again).fit(samples)

        def edit(described):
            described["settings"]["encoder"] = f"resnet:{pretrained['resnet']}"

        with pytest.raises(SavedModelError, match="asks for the pretrained model"):
            load(reseal(path, edit))


class Watched:
    """Records, by Python's audit hook, every file outside of a folder that is written, and folders that are named."""

    hooked: ClassVar[list[Watched]] = []

    def __init__(self, own: Path, around: Path):
        self.own, self.around, self.foreign, self.on = own, around, [], False
        if not self.hooked:
            sys.addaudithook(lambda event, arguments: [each.see(event, arguments) for each in self.hooked])

    def see(self, event, arguments):
        if not self.on:
            return
        if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.posix_spawn"):
            self.foreign.append((event, arguments))
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, mode = Path(os.fsdecode(arguments[0])).absolute(), arguments[2] or 0
            writes = mode & (os.O_WRONLY | os.O_RDWR)
            inside = path.is_relative_to(self.own)
            if not inside and (writes or path.is_relative_to(self.around)) and path != Path(os.devnull):
                self.foreign.append((event, str(path), mode))

    def __enter__(self):
        self.hooked[:] = [self]
        self.on = True
        return self

    def __exit__(self, *_):
        self.on = False


class TestFiles:
    def test_word_vectors(self, tmp_path):
        texts = Samples.of({"title": ["the red", "London", "blue the", "blue"] * 4}, [0, 1, 0, 1] * 4)
        path = FusionClassifier("late", **QUICK).fit(texts).save(tmp_path / "model")
        secret = tmp_path / "secret.txt"
        secret.write_text("red 1 2\n")

        def edit(described):
            described["encoders"]["title"] = f"bag:{secret}"

        reseal(path, edit)
        with Watched(path, tmp_path) as watched, pytest.raises(SavedModelError, match="asks for the file of word vec"):
            load(path)
        assert not watched.foreign

    @pytest.mark.parametrize("name", ["weights.safetensors", "model.json", "experts.skops"])
    def test_a_link_out_of_the_folder(self, name, tmp_path):
        from sklearn.linear_model import LogisticRegression

        a = np.random.default_rng(0).normal(size=(40, 3))
        model = consilience.BayesFusion(experts=LogisticRegression()).fit({"a": a, "b": a + 1}, np.arange(40) % 2)
        path = model.save(tmp_path / "model")
        outside = tmp_path / "outside"
        shutil.move(path / name, outside)
        (path / name).symlink_to(outside)
        with pytest.raises(SavedModelError, match=f"{name} is a link to .*outside, outside of the folder"):
            load(path)

    def test_a_link_to_the_folder_and_links_within_it(self, tmp_path):
        a = np.random.default_rng(0).normal(size=(40, 3))
        path = FusionClassifier("late", **QUICK).fit({"a": a, "b": a + 1}, np.arange(40) % 2).save(tmp_path / "model")
        (path / "weights.safetensors").rename(path / "w")
        (path / "weights.safetensors").symlink_to("w")
        (tmp_path / "link").symlink_to(path)
        assert load(tmp_path / "link").method == "late"

    def test_neither_checkpoints_nor_callbacks_come_from_a_description(self, tmp_path):
        a = np.random.default_rng(0).normal(size=(40, 3))
        X, y = {"a": a, "b": a + 1}, np.arange(40) % 2
        own = {"training": {"checkpoint": str(tmp_path / "own")}}
        path = FusionClassifier("late", **own, **QUICK).fit(X, y).save(tmp_path / "model")
        assert str(tmp_path / "own") not in (path / "model.json").read_text()

        def edit(described):
            parameters = described["extra"]["parameters"]
            parameters["training"] = {"checkpoint": str(tmp_path / "elsewhere")}
            parameters["impute"] = {"objective": "m2vae", "training": {"checkpoint": str(tmp_path / "elsewhere")}}

        model = load(reseal(path, edit))
        clone(model).fit(X, y)
        assert not (tmp_path / "elsewhere").exists()

    def test_an_imputer_and_a_latent_model(self, pretrained, tmp_path):
        a = np.random.default_rng(0).normal(size=(40, 3))
        X, y = {"a": a, "b": a + 1}, np.arange(40) % 2
        encoder = {"a": {"name": "pretrained", "model": pretrained["bert"]}}
        path = FusionClassifier("late", impute={"latent": 2}, **QUICK).fit(X, y).save(tmp_path / "model")
        reseal(path, lambda described: described["extra"]["imputer"].update(encoders=encoder))
        latent = MultimodalVAE(latent=2, **QUICK).fit(X)
        whole = reseal(latent.save(tmp_path / "vae"), lambda described: described["latent"].update(encoders=encoder))
        exported = latent.export_encoder("a", tmp_path / "encoder")
        reseal(exported, lambda described: described["encoder"].update(encoders=encoder))
        for each in (path, whole, exported):
            with pytest.raises(SavedModelError, match="asks for the pretrained model"):
                load(each)

    @pytest.mark.parametrize("content", ["1" * 5000, "[" * 100_000, '{"library": "consilience"' * 3, "\ud800"])
    def test_descriptions_that_are_no_json(self, tmp_path, content):
        (tmp_path / "model.json").write_bytes(content.encode("utf-8", "surrogatepass"))
        with pytest.raises(SavedModelError, match="damaged"):
            load(tmp_path)
        with pytest.raises(SavedModelError, match="damaged"):
            load_model(tmp_path)


def test_custom_modules_are_named_and_never_imported(tmp_path):
    a = np.random.default_rng(0).normal(size=(40, 3))
    path = FusionClassifier("late", **QUICK).fit({"a": a, "b": a + 1}, np.arange(40) % 2).save(tmp_path / "model")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'sentinel')!r}, 'w').close()\nclass Module: pass\n")
    for name in ("evil.Module", "evil:Module"):
        reseal(path, lambda described, name=name: described["encoders"].update(a={"custom module": name}))
        script = f"import consilience, sys; sys.path.insert(0, {str(tmp_path)!r}); consilience.load({str(path)!r})"
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert "no code is stored, so pass them again" in ran.stderr
        assert not (tmp_path / "sentinel").exists()


class TestMemory:
    """Descriptions that ask for more than their weights hold are refused before memory is taken."""

    @pytest.fixture(scope="class")
    def saved(self, tmp_path_factory):
        a = np.random.default_rng(0).normal(size=(40, 3))
        X, y = {"a": a, "b": a + 1}, np.arange(40) % 2
        folder = tmp_path_factory.mktemp("saved")
        latent = MultimodalVAE(latent=2, **QUICK).fit(X)
        return {
            "method": FusionClassifier("concat", encoders={"a": "mlp"}, **QUICK).fit(X, y).save(folder / "method"),
            "wide": FusionClassifier("wide:concat", **QUICK).fit(X, y).save(folder / "wide"),
            "latent": latent.save(folder / "latent"),
            "encoder": latent.export_encoder("a", folder / "encoder"),
            "imputer": FusionClassifier("late", impute={"latent": 2}, **QUICK).fit(X, y).save(folder / "imputer"),
        }

    @pytest.mark.parametrize(
        ("which", "change"),
        [
            ("method", lambda said: said["encoders"].update(a={"name": "mlp", "hidden": [50_000, 50_000]})),
            ("method", lambda said: said["encoders"].update(a={"name": "mlp", "hidden": [2] * 100_000})),
            ("method", lambda said: said["settings"].update(width=10**9)),
            ("wide", lambda said: said["settings"].update(width=10**9)),
            ("latent", lambda said: said["latent"]["settings"].update(latent=10**9)),
            ("encoder", lambda said: said["encoder"].update(latent=10**9)),
            ("imputer", lambda said: said["extra"]["imputer"]["settings"].update(latent=10**9)),
        ],
    )
    def test_too_large(self, saved, tmp_path, which, change):
        path = reseal(shutil.copytree(saved[which], tmp_path / "model"), change)
        with pytest.raises(SavedModelError, match="ask for"):
            load(path)

    def test_what_was_saved_is_not_too_large(self, saved):
        for path in saved.values():
            load(path)
