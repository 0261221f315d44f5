import json
import shutil
import sys

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.core.targets import Task
from consilience.encoders import build_encoder, own_transforms
from consilience.encoders.pretrained import preprocess_images, standardise_waveform
from consilience.encoders.pretrained_body import load_body
from consilience.encoders.processors import (
    RawScale,
    Tokeniser,
    full_scale,
    load_pretrained,
    make_processor,
    read_tokeniser,
    token_ids,
)
from consilience.methods import Spec, build
from consilience.preparation import Preparation
from consilience.training import Model, Trainer, load_model
from tiny_models import tiny_bert, tiny_resnet, tiny_vit, tiny_wav2vec2

pytest.importorskip("transformers", reason="the library transformers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

IDS = torch.tensor([[3, 6, 7, 4, 0], [3, 9, 4, 0, 0]])
LENGTHS = torch.tensor([4, 3])
TITLE = Modality("title", "tokens", (5,), vocabulary=19)
PHOTO = Modality("photo", "image", (3, 20, 20))
SOUND = Modality("sound", "sequence", (50, 1))
TEXTS = ["a red circle", "the blue square on the left", "a small mark", "large green thing"] * 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {"bert": tiny_bert, "resnet": tiny_resnet, "vit": tiny_vit, "wav2vec2": tiny_wav2vec2}
    return {name: make(tmp_path_factory.mktemp("models") / name) for name, make in made.items()}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def captioned(n=32, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    images = random.integers(0, 200, (n, 3, 10, 10)).astype(np.uint8)
    images[y == 1, 0] += 50
    return Samples.of({"text": TEXTS[:n], "photo": images}, y)


class TestModels:
    def test_bert_stage_by_stage_is_the_model_itself(self, folders):
        encoder = build_encoder(TITLE, {"name": "bert", "model": folders["bert"], "freeze": False}).eval()
        assert list(encoder.stages) == ["embeddings", "layer1", "layer2"]
        found = encoder(IDS, LENGTHS)
        mask = IDS > 0
        whole = load_body(folders["bert"]).eval()(input_ids=(IDS - 1).clamp(min=0), attention_mask=mask)
        torch.testing.assert_close(found.sequence, whole.last_hidden_state * mask[..., None])
        assert torch.equal(found.mask, mask)
        torch.testing.assert_close(found.pooled[1], found.sequence[1, :3].mean(0))
        found.pooled.square().sum().backward()
        assert [name for name, parameter in encoder.named_parameters() if parameter.grad is None] == []

    def test_resnet_stage_by_stage_is_the_model_itself(self, folders):
        encoder = build_encoder(PHOTO, f"resnet:{folders['resnet']}")
        assert list(encoder.stages) == ["embedder", "stage1", "stage2"]
        images = torch.rand(2, 3, 20, 20)
        config = json.loads(encoder.saved())["processor"]
        whole = load_body(folders["resnet"]).eval()(preprocess_images(images, config, 3))
        found = encoder.train()(images)  # frozen: batch norm goes by what it has learned
        torch.testing.assert_close(found.pooled, whole.pooler_output.flatten(1))
        assert found.sequence.shape == (2, whole.last_hidden_state[0, 0].numel(), 12)

    def test_another_image_model_is_one_stage(self, folders):
        choice = {"name": "pretrained", "model": folders["vit"], "pooling": "first"}
        encoder = build_encoder(PHOTO, choice)
        assert list(encoder.stages) == ["model"]
        found = encoder(torch.rand(2, 3, 20, 20))
        assert found.sequence.shape == (2, 5, 16)  # 2 × 2 patches and the first
        assert torch.equal(found.pooled, found.sequence[:, 0])
        assert encoder(torch.rand(2, 1, 20, 20)).pooled.shape == (2, 16)  # grey is read as colour

    def test_waveforms_of_different_lengths(self, folders):
        encoder = build_encoder(SOUND, f"pretrained:{folders['wav2vec2']}")
        torch.manual_seed(0)
        x, lengths = torch.randn(3, 50, 1), torch.tensor([50, 20, 33])
        found = encoder(x, lengths)
        assert found.mask.sum(1).tolist() == [6, 2, 4]
        for row, long in enumerate(lengths):
            alone = encoder(x[row : row + 1, :long], lengths[row : row + 1])
            torch.testing.assert_close(alone.pooled[0], found.pooled[row], rtol=1e-4, atol=1e-5)
        as_vector = build_encoder(Modality("sound", "vector", (50,)), f"pretrained:{folders['wav2vec2']}")
        torch.testing.assert_close(as_vector(x[..., 0]).pooled[0], found.pooled[0], rtol=1e-4, atol=1e-5)

    def test_each_waveform_is_levelled_over_its_real_steps(self):
        x = torch.tensor([[1.0, 2.0, 6.0, 0.0]])
        levelled = standardise_waveform(x, torch.tensor([[True, True, True, False]]))
        expected = (np.array([1, 2, 6]) - 3) / np.std([1, 2, 6])
        np.testing.assert_allclose(levelled[0], [*expected, 0], rtol=1e-5)

    def test_freezing(self, folders):
        def trained(freeze):
            choice = {"name": "bert", "model": folders["bert"], "freeze": freeze}
            encoder = build_encoder(TITLE, choice).train()
            names = {name.split(".")[1] for name, parameter in encoder.named_parameters() if parameter.requires_grad}
            return names, {name for name, stage in encoder.stages.items() if stage.training}

        assert trained(True) == (set(), set())
        assert trained(0) == (set(), set())
        assert trained(1) == ({"layer2"}, {"layer2"})
        assert trained(False) == ({"embeddings", "layer1", "layer2"},) * 2
        encoder = build_encoder(PHOTO, {"name": "pretrained", "model": folders["vit"], "freeze": 1}).train()
        names = {
            name.removeprefix("stages.model.")
            for name, parameter in encoder.named_parameters()
            if parameter.requires_grad
        }
        assert {name.split(".")[0] + name.split(".")[1][:1] for name in names} == {
            "layers1",
            "layernormw",
            "layernormb",
        }
        assert not encoder.stages["model"].layers[0].training
        with pytest.raises(InputError, match="freeze=3 would train more layers than the model's 2"):
            trained(3)
        with pytest.raises(InputError, match="freeze must be True or False or a whole number"):
            trained("all")

    def test_a_text_without_a_token_is_finite(self, folders):
        encoder = build_encoder(TITLE, f"bert:{folders['bert']}")
        assert encoder(torch.zeros(1, 3, dtype=torch.int64), torch.tensor([0])).pooled.isfinite().all()


class TestImages:
    @pytest.mark.parametrize("shape", [(16, 16), (40, 30), (8, 12)])
    @pytest.mark.parametrize(
        ("processor", "config"),
        [
            ("ViTImageProcessorPil", {"size": {"height": 16, "width": 16}, "resample": 2}),
            (
                "CLIPImageProcessorPil",
                {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": {"height": 16, "width": 16}},
            ),
            ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 14}, "crop_pct": 0.875, "resample": 3}),
        ],
    )
    def test_as_the_model_s_own_processor_has_them(self, shape, processor, config):
        import transformers

        config = {
            "do_normalize": True,
            "image_mean": [0.5, 0.4, 0.3],
            "image_std": [0.2, 0.25, 0.5],
            "resample": 3,
            **config,
        }
        images = np.random.default_rng(0).integers(0, 256, (2, 3, *shape)).astype(np.uint8)
        theirs = getattr(transformers, processor)(**config)(list(images), return_tensors="np")["pixel_values"]
        ours = preprocess_images(torch.from_numpy(images / 255).float(), config, 3).numpy()
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).mean() < 0.01  # theirs round to 8 bits on the way

    def test_wrong_channels(self):
        with pytest.raises(InputError, match="reads images of 3 channels, got 2"):
            preprocess_images(torch.zeros(1, 2, 4, 4), {}, 3)


class TestProcessors:
    def test_the_tokeniser_against_transformers(self, folders):
        from transformers import AutoTokenizer

        samples = Samples.of({"text": [*TEXTS[:3], None]}, [0, 1, 0, 1])
        transform = make_processor(samples, "text", folders["bert"])
        ids, lengths = transform(np.array(TEXTS[:2], dtype=object), None)
        expected = AutoTokenizer.from_pretrained(folders["bert"])(TEXTS[:2])["input_ids"]
        for row, want in enumerate(expected):
            assert (token_ids(ids[row, : lengths[row]]) - 1).tolist() == want
        assert transform.output.vocabulary == 19
        long = transform(np.array(["red " * 50], dtype=object), None)
        assert long[1].tolist() == [12]
        assert token_ids(long[0][0, -1]) == 3 + 1  # still ends as a text does

    def test_the_tokeniser_is_saved_whole(self, folders, tmp_path):
        folder = shutil.copytree(folders["bert"], tmp_path / "gone")
        samples = Samples.of({"text": TEXTS[:4]}, [0, 1, 0, 1])
        task = Task.of(samples.y)
        preparation = Preparation.fit(samples, task, {"text": lambda x, name: make_processor(x, name, str(folder))})
        shutil.rmtree(folder)
        tensors, described = preparation.state()
        again = Preparation.from_state(tensors, json.loads(json.dumps(described)))
        assert isinstance(again.transforms["text"], Tokeniser)
        assert torch.equal(again.batch(samples)["text"], preparation.batch(samples)["text"])

    @pytest.mark.parametrize(
        ("kind", "low", "high", "dtype", "unit"),
        [
            ("image", 0, 255, "uint8", 255),
            ("image", 0, 1, "uint8", 255),
            ("image", 0, 1, "float32", 1),
            ("image", 0, 200.5, "float32", 255),
            ("sequence", -0.7, 0.9, "float32", 1),
            ("sequence", -3000, 90, "int16", 32768),
        ],
    )
    def test_the_scale_is_found(self, kind, low, high, dtype, unit):
        shape = (3, 4, 4) if kind == "image" else (9, 1)
        assert full_scale(Modality("m", kind, shape), low, high, np.dtype(dtype)) == unit

    def test_a_scale_that_no_model_knows(self):
        with pytest.raises(
            InputError, match=r"'m' at its own scale: values must lie in \[0, 1\] or \[0, 255\].* -3 to"
        ):
            full_scale(Modality("m", "image", (3, 4, 4)), -3, 4, np.dtype("float32"))

    def test_raw_numbers_keep_their_scale_and_know_their_spread(self, folders):
        samples = captioned()
        transform = make_processor(samples, "photo", folders["resnet"])
        assert isinstance(transform, RawScale)
        scaled, _ = transform(samples["photo"], None)
        np.testing.assert_allclose(scaled, samples["photo"] / 255, rtol=1e-6)
        expected = samples["photo"].transpose(1, 0, 2, 3).reshape(3, -1).std(axis=1)
        np.testing.assert_allclose(transform.statistics().std, expected)

    def test_token_ids_are_not_for_a_tokeniser(self, folders):
        samples = Samples.of({"text": [[1, 2], [3]]}, [0, 1], kinds={"text": "tokens"})
        with pytest.raises(UnsupportedError, match=r"has a tokeniser of its own.*give the text itself"):
            make_processor(samples, "text", folders["bert"])


class TestInModels:
    @pytest.mark.parametrize("method", ["mmbt", "mmtm", "concat"])
    def test_a_saved_model_needs_no_folder(self, method, folders, tmp_path):
        bert = shutil.copytree(folders["bert"], tmp_path / "bert")
        data = captioned()
        encoders = {
            "text": {"name": "bert", "model": str(bert), "freeze": False},
            "photo": f"resnet:{folders['resnet']}",
        }
        trainer = Trainer(epochs=2, batch_size=8, device="cpu")
        model = Model.fit(method, data, encoders=encoders, trainer=trainer)
        if method == "mmbt":
            assert type(model.method.fusion.host).__name__ == "BertHost"
        saved = model.save(tmp_path / "model")
        shutil.rmtree(bert)
        read_tokeniser.cache_clear()
        again, _ = load_model(saved)
        assert torch.equal(again.predict(data, device="cpu").output, model.predict(data, device="cpu").output)
        assert again.encoders["text"] == encoders["text"]  # another fit would begin from the pretrained weights
        resaved, _ = load_model(again.save(tmp_path / "again"))
        assert torch.equal(resaved.predict(data, device="cpu").output, model.predict(data, device="cpu").output)

    def test_an_encoder_given_as_a_module_brings_its_tokeniser(self, folders):
        data = captioned(8)
        own = own_transforms(data.modalities, {"text": build_encoder(TITLE, f"bert:{folders['bert']}")})
        assert isinstance(own["text"](data, "text"), Tokeniser)

    def test_a_bert_hosts_the_other_modalities(self, folders):
        data = captioned(8)
        spec_encoders = {"text": {"name": "bert", "model": folders["bert"], "freeze": False}}
        preparation = Preparation.fit(data, Task.of(data.y), own_transforms(data.modalities, spec_encoders))
        torch.manual_seed(0)
        method = build("mmbt", Spec(preparation.modalities, preparation.task, spec_encoders)).eval()
        start = load_body(folders["bert"]).embeddings.word_embeddings.weight[2]
        torch.testing.assert_close(method.fusion.start, start)
        batch = preparation.batch(data)
        method(batch).output.square().sum().backward()
        assert [name for name, parameter in method.named_parameters() if parameter.grad is None] == []
        # With segments and image out of the way, it is BERT on [start, [CLS], words, [SEP]].
        with torch.no_grad():
            method.fusion.segments.zero_()
        alone = method(batch.hiding(torch.tensor([[False, True]] * 8)))
        body = load_body(folders["bert"]).eval()
        ids = token_ids(batch["text"][0, : batch.lengths["text"][0]]) - 1
        content = torch.cat([start[None], body.embeddings.word_embeddings(ids)])[None]
        positions = torch.tensor([[0, *range(len(ids))]])
        expected = body(inputs_embeds=content, position_ids=positions).last_hidden_state[0, 0]
        torch.testing.assert_close(alone.joint[0], expected, rtol=1e-4, atol=1e-5)


class TestErrors:
    def test_a_model_that_does_not_exist(self):
        with pytest.raises(
            InputError, match=r"'bert' of modality title.*'no/such-model' could not be loaded: no such folder"
        ):
            build_encoder(TITLE, "bert:no/such-model")

    def test_an_empty_folder(self, tmp_path):
        with pytest.raises(InputError, match="could not be loaded: it is not in that folder, or is damaged"):
            build_encoder(TITLE, f"bert:{tmp_path}")

    def test_an_image_model_without_a_processor_configuration(self, folders, tmp_path):
        folder = shutil.copytree(folders["vit"], tmp_path / "vit")
        (folder / "preprocessor_config.json").unlink()
        with pytest.raises(InputError, match=r"model .* has no processor configuration.* preprocessor_config\.json"):
            build_encoder(PHOTO, f"pretrained:{folder}")
        (folder / "processor_config.json").write_text(json.dumps({"image_processor": {"size": {"longest_edge": 9}}}))
        with pytest.raises(UnsupportedError, match=r"asks for images of size \{'longest_edge': 9\}"):
            build_encoder(PHOTO, f"pretrained:{folder}")(torch.rand(1, 3, 20, 20))
        (folder / "preprocessor_config.json").write_text("{")
        with pytest.raises(InputError, match=r"preprocessor_config\.json of .* is damaged"):
            build_encoder(PHOTO, f"pretrained:{folder}")

    def test_without_a_model(self):
        with pytest.raises(InputError, match="model must be given"):
            build_encoder(TITLE, "pretrained")

    def test_without_transformers(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(
            UnsupportedError, match=r"need the library transformers: pip install 'consilience\[pretrained\]'"
        ):
            load_pretrained("AutoModel", "anything")

    def test_a_kind_that_the_model_does_not_read(self, folders):
        with pytest.raises(UnsupportedError, match=r"reads pixel_values, which title \(tokens 5\) cannot be made into"):
            build_encoder(TITLE, f"pretrained:{folders['vit']}")

    def test_ids_that_are_not_the_model_s(self, folders):
        with pytest.raises(InputError, match=r"knows 18 tokens and .* 500 ids"):
            build_encoder(Modality("title", "tokens", (5,), vocabulary=500), f"bert:{folders['bert']}")

    def test_bad_pooling_and_an_argument_where_there_is_none(self, folders):
        with pytest.raises(InputError, match=r"unknown pooling 'max'\. Known: first, mean"):
            build_encoder(TITLE, {"name": "bert", "model": folders["bert"], "pooling": "max"})
        with pytest.raises(InputError, match="conv has no setting to give so"):
            build_encoder(PHOTO, "conv:3")
        with pytest.raises(InputError, match="bert is given model twice"):
            build_encoder(TITLE, {"name": "bert:one", "model": "two"})
        with pytest.raises(UnknownNameError, match="unknown encoder 'brt': did you mean 'bert'"):
            build_encoder(TITLE, "brt:folder")
