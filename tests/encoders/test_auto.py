"""The encoders `linear` and `auto`: what they compute where they are not experts of their own kind."""

import numpy as np
import pytest
import torch
from torch import nn

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.encoders import Auto, build_encoder, expert_kind
from consilience.encoders.auto import Linear
from consilience.methods import Spec
from consilience.methods.fusion.concat import Concat
from consilience.training import Model, Trainer
from toy_batches import CLASSES, VECTORS, batch_of

TABLE = Modality("table", "vector", (6,))


def test_linear_passes_values_on():
    encoder = build_encoder(TABLE, "linear")
    assert isinstance(encoder, Linear)
    x = torch.randn(5, 6)
    assert torch.equal(encoder(x).pooled, x)
    assert encoder.width == 6
    assert not list(encoder.parameters())
    assert encoder.size is None


def test_auto_is_a_wide_network_with_dropout():
    torch.manual_seed(0)
    encoder = build_encoder(TABLE, "auto").eval()
    assert isinstance(encoder, Auto)
    assert (encoder.width, encoder.hidden, encoder.dropout) == (256, (256,), 0.3)
    block = encoder.stages["block1"]
    assert [type(part) for part in block] == [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Dropout]
    x = torch.randn(5, 6)
    by_hand = nn.functional.layer_norm(x @ block[0].weight.T + block[0].bias, (256,)).relu()
    torch.testing.assert_close(encoder(x).pooled, by_hand)
    other = build_encoder(TABLE, {"name": "auto", "hidden": [8, 4], "dropout": 0.5})
    assert (other.width, other.dropout) == (4, 0.5)
    assert [part.p for part in other.modules() if isinstance(part, nn.Dropout)] == [0.5, 0.5]


@pytest.mark.parametrize("name", ["linear", "auto"])
def test_other_kinds_are_refused(name):
    for modality in (Modality("photo", "image", (1, 8, 8)), Modality("sound", "sequence", (5, 2))):
        with pytest.raises(UnsupportedError, match=f"encoder '{name}' cannot read modality.*it reads vector"):
            build_encoder(modality, name)


def test_wrong_settings_are_named():
    with pytest.raises(UnknownNameError, match="hidden"):
        build_encoder(TABLE, {"name": "linear", "hidden": [3]})
    with pytest.raises(InputError, match="dropout must be"):
        build_encoder(TABLE, {"name": "auto", "dropout": 1.5})


@pytest.mark.parametrize(
    ("choice", "kind"),
    [("linear", "linear"), ("auto", "pool"), ({"name": "auto", "hidden": 9}, "pool"), ("mlp", None), (None, None)],
)
def test_kinds_of_experts(choice, kind):
    assert expert_kind(TABLE, choice) == kind
    assert expert_kind(TABLE, build_encoder(TABLE, choice)) == kind


def test_a_joint_method_with_linear_encoders_sees_the_values_side_by_side():
    method = Concat(Spec(VECTORS, CLASSES, dict.fromkeys(VECTORS, "linear")))
    batch = batch_of()
    features = method.represent(batch)
    for name in VECTORS:
        assert torch.equal(features[name].pooled, batch[name])
    assert method(batch).output.shape == (6, 3)


@pytest.mark.parametrize("name", ["linear", "auto"])
def test_a_joint_method_learns_with_it(name):
    random = np.random.default_rng(0)
    y = np.arange(90) % 3
    train = Samples.of({"a": random.normal(size=(90, 4)) + y[:, None], "b": random.normal(size=(90, 2))}, y)
    trainer = Trainer(epochs=20, lr=0.02, device="cpu")
    model = Model.fit("concat", train, encoders=dict.fromkeys("ab", name), trainer=trainer)
    assert (model.predict(train, device="cpu").output.argmax(1).numpy() == y).mean() > 0.6
