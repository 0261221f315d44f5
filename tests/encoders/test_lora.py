"""LoRA against its formula; only adapters are trained; saved and loaded whole; merged into plain maps."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from consilience.core.errors import InputError, SavedModelError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.encoders import build_encoder
from consilience.encoders.lora import is_adapted, linear_maps, merge_lora
from consilience.encoders.pretrained_body import load_body
from consilience.exporting.export import export_model
from consilience.training import Model, Trainer, load_model
from consilience.training.parts import parts_of
from tiny_models import tiny_bert, tiny_resnet, tiny_vit, tiny_xlnet
from training.test_parts import pretrained
from training.toys import weights

pytest.importorskip("peft")
IMAGE = Modality("image", "image", (3, 16, 16))


def vit(folder, **given):
    torch.manual_seed(0)
    return build_encoder(IMAGE, {"name": "pretrained", "model": tiny_vit(folder), "lora": 3, **given}).eval()


def perturb(module):
    """Adapters that change something: B is zero at the start."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "lora_B" in name:
                weight.normal_()


@pytest.mark.parametrize(("alpha", "scale"), [(None, 2.0), (6.0, 6.0 / 3)])
def test_an_adapted_map_against_the_formula(alpha, scale, tmp_path):
    encoder = vit(tmp_path, lora_alpha=alpha)
    perturb(encoder)
    maps = [module for module in encoder.modules() if is_adapted(module)]
    assert len(maps) == 2 * 6  # two layers: query, key, value, output, and two of the feed-forward part
    for each in maps:
        base = each.base_layer
        x = torch.randn(4, base.in_features)
        a, b = each.lora_A["default"].weight, each.lora_B["default"].weight
        assert a.shape == (3, base.in_features)
        expected = x @ base.weight.T + base.bias + scale * (x @ a.T) @ b.T
        torch.testing.assert_close(each(x), expected)


def test_at_the_start_it_is_the_model(tmp_path):
    torch.manual_seed(0)
    x = torch.rand(2, 3, 16, 16)
    encoder = vit(tmp_path)
    plain = build_encoder(IMAGE, {"name": "pretrained", "model": str(tmp_path)}).eval()
    torch.testing.assert_close(encoder(x).pooled, plain(x).pooled)


@pytest.mark.parametrize("model", [tiny_bert, tiny_xlnet])
@pytest.mark.parametrize("method", ["concat", "mag"])
def test_adapters_and_nothing_else_of_the_model_are_trained(method, model, tmp_path):
    built, samples, preparation = pretrained(method, model, tmp_path, freeze=True, lora=2)
    before = weights(built)
    Trainer(preparation, epochs=3, batch_size=2, optimizer="adamw", weight_decay=0.1, device="cpu").run(built, samples)
    after = weights(built)
    adapters = {name for name in before if ".lora_" in name}
    parts = parts_of(built)
    body = {name for name, part in parts.items() if part == "text"} - adapters
    assert len(adapters) > 4
    assert len(body) > 10
    assert all(not torch.equal(before[name], after[name]) for name in adapters)
    assert all(torch.equal(before[name], after[name]) for name in body)
    assert all(not torch.equal(before[name], after[name]) for name, part in parts.items() if part == "head")


def test_dropout_acts_on_what_the_adapters_read(tmp_path):
    encoder = vit(tmp_path, lora_dropout=0.5)
    perturb(encoder)
    x = torch.rand(2, 3, 16, 16)
    encoder.train()
    assert not torch.equal(encoder(x).pooled, encoder(x).pooled)
    encoder.eval()
    assert torch.equal(encoder(x).pooled, encoder(x).pooled)


def test_targets_choose_maps_by_name(tmp_path):
    body = load_body(tiny_bert(tmp_path))
    tokens = Modality("text", "tokens", (12,), vocabulary=19)
    chosen = {"name": "pretrained", "model": str(tmp_path), "lora": 2, "lora_targets": ["query", "value"]}
    encoder = build_encoder(tokens, chosen)
    adapted = {name.rpartition(".")[2] for name, module in encoder.named_modules() if is_adapted(module)}
    assert adapted == {"query", "value"}
    assert len(linear_maps(body)) == 2 * 6
    with pytest.raises(InputError, match="has no 'querry'; it has dense, key, query, value"):
        build_encoder(tokens, {**chosen, "lora_targets": ["querry"]})


def test_convolutions_are_adapted_too(tmp_path):
    encoder = build_encoder(IMAGE, {"name": "resnet", "model": tiny_resnet(tmp_path), "lora": 2}).eval()
    perturb(encoder)
    x = torch.rand(2, 3, 16, 16)
    expected = encoder(x).pooled
    assert merge_lora(encoder) > 3
    torch.testing.assert_close(encoder(x).pooled, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lora": 2, "freeze": False}, "freeze must be True, got False"),
        ({"lora": 2, "freeze": 1}, "freeze must be True, got 1"),
        ({"lora": 0}, "lora must be a whole number ≥ 1 or None"),
        ({"lora": None, "lora_dropout": 0.1}, "need lora, the rank"),
        ({"lora": None, "lora_targets": ["query"]}, "need lora, the rank"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given, said, tmp_path):
    with pytest.raises(InputError, match=said):
        vit(tmp_path, **given)


def test_without_peft_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'consilience\[lora\]'"):
        vit(tmp_path)


def test_merged_it_is_plain_and_computes_the_same(tmp_path):
    encoder = vit(tmp_path)
    perturb(encoder)
    x = torch.rand(5, 3, 16, 16)
    expected, base = encoder(x).pooled, copy.deepcopy(encoder)
    assert merge_lora(encoder) == 12
    assert not any("peft" in type(module).__module__ for module in encoder.modules())
    torch.testing.assert_close(encoder(x).pooled, expected, atol=1e-5, rtol=1e-4)
    assert any(is_adapted(module) for module in base.modules())
    assert merge_lora(nn.Linear(2, 2)) == 0


def fitted(folder):
    random = np.random.default_rng(0)
    images = random.random((12, 3, 16, 16), dtype=np.float32)
    samples = Samples.of({"image": images, "size": random.normal(size=(12, 2))}, np.arange(12) % 2)
    encoders = {"image": {"name": "pretrained", "model": tiny_vit(folder), "lora": 2, "lora_alpha": 3.0}}
    model = Model.fit("concat", samples, trainer=Trainer(epochs=2, lr=0.05, device="cpu"), encoders=encoders)
    return model, samples


def test_a_saved_model_needs_nothing_but_its_folder(tmp_path):
    """Read in a process of its own, in which no pretrained model can be loaded by name or folder."""
    source = tmp_path / "source"
    source.mkdir()
    model, samples = fitted(source)
    model.save(tmp_path / "saved")
    for file in source.iterdir():
        file.unlink()
    np.save(tmp_path / "image.npy", samples["image"])
    np.save(tmp_path / "size.npy", samples["size"])
    code = (
        "import sys, numpy as np, transformers\n"
        "transformers.AutoModel.from_pretrained = None\n"
        "from consilience.core.samples import Samples\n"
        "from consilience.training import load_model\n"
        "folder = sys.argv[1]\n"
        "model, _ = load_model(folder + '/saved')\n"
        "samples = Samples.of({n: np.load(f'{folder}/{n}.npy') for n in ('image', 'size')})\n"
        "np.save(folder + '/found.npy', model.predict(samples).output.numpy())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), model.predict(samples).output.numpy(), atol=1e-6)


def test_a_folder_without_some_adapter_is_not_loaded(tmp_path):
    model, _ = fitted(tmp_path)
    model.save(tmp_path / "saved")
    (path,) = (tmp_path / "saved").glob("*.safetensors")
    tensors = load_file(path)
    lost = next(name for name in tensors if "lora_B" in name)
    save_file({name: value for name, value in tensors.items() if name != lost}, path)
    with pytest.raises(SavedModelError):
        load_model(tmp_path / "saved")


def test_an_exported_model_has_merged_maps(tmp_path):
    """`export` compares the graph with the adapted model itself, and refuses a difference above 1e-5."""
    model, _ = fitted(tmp_path)
    path = export_model(model, tmp_path / "model.pt2", gives_weights=False)
    program = torch.export.load(path)
    assert not [name for name in program.state_dict if "lora" in name]
    assert any(is_adapted(module) for module in model.method.modules())
