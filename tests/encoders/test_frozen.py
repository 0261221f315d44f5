import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from consilience import FusionClassifier, corrupt, load
from consilience.cli.main import main
from consilience.core.errors import InputError, SavedModelError, UnknownNameError
from consilience.core.row_cache import cache_folder
from consilience.core.samples import Modality, Samples
from consilience.encoders import Frozen, build_encoder, features, seen_by_encoder
from consilience.encoders.feature_cache import DiskCache, MemoryCache, row_keys
from consilience.encoders.frozen import BATCH, FrozenFeatures
from consilience.encoders.frozen import _body as body
from tiny_models import describe_images, tiny_bert, tiny_resnet

pytest.importorskip("transformers", reason="the library transformers is not installed")

TEXTS = ["a red circle", "the blue square", "a small mark on the left", "large green thing"] * 10


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {"bert": tiny_bert, "resnet": tiny_resnet}
    return {name: make(tmp_path_factory.mktemp("models") / name) for name, make in made.items()}


@pytest.fixture
def encoded(monkeypatch):
    """How many rows passed a model."""
    counts = []
    original = FrozenFeatures._encode
    monkeypatch.setattr(
        FrozenFeatures,
        "_encode",
        lambda self, values, lengths: (counts.append(len(values)), original(self, values, lengths))[1],
    )
    return counts


def samples_of(n=40, seed=0):
    random = np.random.default_rng(seed)
    photos = random.random((n, 3, 8, 8)).astype(np.float32)
    return Samples.of({"text": TEXTS[:n], "photo": photos}, np.arange(n) % 4)


def test_features_are_what_the_model_gives(folders, encoded):
    samples = samples_of()
    made = features(samples, {"text": folders["bert"], "photo": {"model": folders["resnet"], "pooling": "first"}})
    assert [(modality.kind, modality.shape) for modality in made.modalities.values()] == [
        ("vector", (16,)),
        ("vector", (12,)),
    ]
    encoder = build_encoder(
        samples.modalities["photo"], {"name": "resnet", "model": folders["resnet"], "pooling": "first"}
    )
    with torch.no_grad():
        expected = encoder(torch.from_numpy(samples["photo"])).pooled
    np.testing.assert_allclose(made["photo"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(made["text"][:4], made["text"][4:8])
    assert encoded == [4, 40]  # equal rows pass once
    assert len(samples) > BATCH  # so that one of them took two batches


def test_what_is_missing_is_not_encoded(folders, encoded):
    samples = Samples.of({"text": [None, "a red circle", None]}, [0, 1, 0])
    made = features(samples, {"text": folders["bert"]})
    assert encoded == [1]
    assert not made["text"][[0, 2]].any()
    assert made.present_in("text").tolist() == [False, True, False]


def test_a_cache_encodes_each_row_once_and_what_is_corrupted_anew(folders, encoded, tmp_path):
    samples = samples_of()
    chosen = {"photo": folders["resnet"]}
    first = features(samples, chosen, cache=tmp_path)
    again = features(samples[::-1], chosen, cache=tmp_path)
    np.testing.assert_array_equal(first["photo"], again["photo"][::-1])
    assert encoded == [40]
    damaged = corrupt(samples, {"photo": "gaussian"}, 1, probability=0.5)
    hit = (damaged["photo"] != samples["photo"]).any(axis=(1, 2, 3))
    assert 0 < hit.sum() < 40
    assert len(row_keys(damaged["photo"].astype(np.float32))) == 40
    changed = features(samples.replaced({"photo": damaged["photo"].astype(np.float32).clip(0, 1)}), chosen, tmp_path)
    assert encoded[1:] == [hit.sum()]
    np.testing.assert_array_equal(changed["photo"][~hit], first["photo"][~hit])


def test_fitting_encodes_once_and_prediction_under_corruption_anew(folders, encoded, tmp_path):
    samples = samples_of()
    encoders = {
        "text": {"name": "frozen", "model": folders["bert"], "cache": str(tmp_path), "hidden": [8]},
        "photo": {"name": "frozen", "model": folders["resnet"], "cache": str(tmp_path)},
    }
    model = FusionClassifier("concat", encoders=encoders, epochs=5, validation=None, device="cpu").fit(samples)
    assert encoded == [4, 40]
    FusionClassifier("align", encoders=encoders, epochs=1, validation=None, device="cpu").fit(samples)
    assert encoded == [4, 40]
    assert model.model_.method.encoders["text"].width == 8
    clean = model.predict_proba(samples)
    damaged = corrupt(samples, "gaussian", 5, probability=1.0, modalities=["photo"], reference=model.reference_)
    assert encoded == [4, 40]
    assert not np.allclose(model.predict_proba(damaged), clean)
    assert encoded == [4, 40, 40]
    again = load(model.save(tmp_path / "model"), encoders=encoders)
    np.testing.assert_array_equal(again.predict_proba(samples), clean)
    assert again.get_params()["encoders"] == encoders


def test_a_model_that_has_changed_is_noticed(folders, tmp_path):
    own = tiny_bert(tmp_path / "own")
    encoders = {"text": f"frozen:{own}"}
    samples = samples_of().only(["text"])
    saved = (
        FusionClassifier(encoders=encoders, epochs=1, validation=None, device="cpu")
        .fit(samples, np.arange(40) % 4)
        .save(tmp_path / "model")
    )
    from transformers import BertModel

    changed = BertModel.from_pretrained(own)
    with torch.no_grad():
        changed.embeddings.word_embeddings.weight += 1
    changed.save_pretrained(own)
    body.cache_clear()
    with pytest.raises(SavedModelError, match=r"trained on features of .*own', whose weights have changed"):
        load(saved, encoders=encoders)


def test_another_processor_makes_other_features(folders, tmp_path):
    other = shutil.copytree(folders["resnet"], tmp_path / "other")
    describe_images(other, size={"shortest_edge": 8})
    one, two = (Frozen.prepare(samples_of(), "photo", {"model": str(path)}) for path in (folders["resnet"], other))
    assert one._identity() != two._identity()


def test_what_a_method_will_see(folders):
    assert seen_by_encoder(Modality("t", "text", ()), f"frozen:{folders['bert']}") == Modality("t", "vector", (16,))
    assert seen_by_encoder(Modality("t", "text", ()), f"bert:{folders['bert']}").kind == "tokens"
    with pytest.raises(InputError, match="'frozen' needs model"):
        seen_by_encoder(Modality("t", "text", ()), "frozen")
    with pytest.raises(UnknownNameError, match="unknown modality 'sound'"):
        features(samples_of(), {"sound": "x"})


def test_comparing_from_the_command_line(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_CACHE", str(tmp_path / "cache"))
    chosen = [f"text=frozen:{folders['bert']}", "image=" + json.dumps({"name": "frozen", "model": folders["resnet"]})]
    encoders = [part for choice in chosen for part in ("--encoder", choice)]
    options = ["--option", "n=60", "--methods", "concat", "--seeds", "1", "--levels", "0", "5", "--epochs", "1"]
    assert main(["compare", "captions", *options, *encoders, "--out", str(tmp_path / "run")]) == 0
    assert "concat" in capsys.readouterr().out
    assert list((tmp_path / "cache").rglob("*.features.npy"))


def test_without_a_cache_folds_share_what_is_in_memory(folders, encoded, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_CACHE", raising=False)
    transform = Frozen.prepare(samples_of(), "text", {"model": folders["bert"]})
    texts = np.array(TEXTS, dtype=object)
    first, _ = transform(texts[:3], None)
    again, _ = pickle.loads(pickle.dumps(transform))(texts[:3], None)
    both, _ = transform(texts, None)
    assert encoded == [3, 3, 1]
    assert torch.equal(first, again)
    assert torch.equal(first, both[4:7])


def test_memory_is_bounded():
    keys = row_keys(np.arange(6.0).reshape(3, 2))
    memory = MemoryCache(2, limit=2 * 8)
    memory.keep(keys, np.ones((3, 2)))
    assert memory.find(keys)[1].tolist() == [True, True, False]


class TestCache:
    def test_pieces_survive_and_broken_ones_are_left_out(self, tmp_path):
        keys = row_keys(np.arange(6.0).reshape(3, 2))
        cache = DiskCache(tmp_path, 2)
        cache.keep(keys[:2], np.array([[1, 2], [3, 4]]))
        found, cached = DiskCache(tmp_path, 2).find([keys[2], keys[1], keys[0]])
        assert cached.tolist() == [False, True, True]
        assert found.tolist() == [[0, 0], [3, 4], [1, 2]]
        assert not list(tmp_path.glob(".*"))
        next(tmp_path.glob("*.features.npy")).write_bytes(b"cut")
        assert not DiskCache(tmp_path, 2).find(keys)[1].any()

    def test_another_process_s_pieces_are_seen(self, tmp_path):
        keys = row_keys(np.arange(4.0).reshape(2, 2))
        mine, other = DiskCache(tmp_path, 1), DiskCache(tmp_path, 1)
        assert not mine.find(keys)[1].any()
        other.keep(keys, np.ones((2, 1)))
        assert mine.find(keys)[1].all()

    def test_keys_tell_content_type_shape_and_length_apart(self):
        zeros = np.zeros((1, 4), dtype=np.float32)
        keys = [
            *row_keys(zeros),
            *row_keys(zeros.astype(np.float64)),
            *row_keys(zeros.reshape(1, 2, 2)),
            *row_keys(zeros, np.array([3])),
            *row_keys(np.array(["a", "b"], dtype=object)),
        ]
        assert len(set(keys)) == len(keys)
        assert row_keys(zeros) == row_keys(np.asfortranarray(zeros))

    def test_where_it_lies(self, monkeypatch, tmp_path):
        monkeypatch.delenv("CONSILIENCE_CACHE", raising=False)
        assert cache_folder(None) is None
        monkeypatch.setenv("CONSILIENCE_CACHE", "~/features")
        assert cache_folder(None) == Path.home() / "features"
        assert cache_folder(str(tmp_path)) == tmp_path
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="features cannot be kept in"):
            DiskCache(tmp_path / "file" / "below", 1)
