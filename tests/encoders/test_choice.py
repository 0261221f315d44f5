import json

import pytest
import torch
from torch import nn

from consilience.core.errors import ConsilienceError, InputError, SavedModelError, UnknownNameError, UnsupportedError
from consilience.core.samples import Modality
from consilience.encoders import (
    Conv,
    CustomModule,
    Encoded,
    Encoder,
    Mlp,
    build_encoder,
    default_encoder,
    describe_choice,
    encoder_names,
    is_custom,
    register_encoder,
)
from consilience.encoders.choice import ENCODERS

VECTOR = Modality("v", "vector", (7,))
IMAGE = Modality("photo", "image", (1, 28, 28))
SEQUENCE = Modality("audio", "sequence", (6, 5))
TOKENS = Modality("title", "tokens", (6,), vocabulary=11)


@pytest.mark.parametrize(
    ("modality", "name"),
    [
        (VECTOR, "mlp"),
        (IMAGE, "conv"),
        (SEQUENCE, "gru"),
        (TOKENS, "bag"),
        (Modality("dot", "image", (3, 1, 1)), "mlp"),
        (Modality("patch", "image", (3, 2, 3)), "mlp"),
        (Modality("line", "image", (1, 1, 64)), "conv"),
    ],
)
def test_default_follows_kind_and_shape(modality, name):
    assert default_encoder(modality) == name
    encoder = build_encoder(modality)
    assert type(encoder) is ENCODERS[name]
    assert encoder.name == name


def test_a_name_or_settings_or_both():
    assert isinstance(build_encoder(IMAGE, "mlp"), Mlp)
    assert build_encoder(IMAGE, {"name": "mlp", "hidden": [32]}).width == 32
    assert isinstance(build_encoder(IMAGE, {"stages": 2}), Conv)


def test_unknown_encoder_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown encoder 'transfomer': did you mean 'transformer'.*'audio'"):
        build_encoder(SEQUENCE, "transfomer")
    with pytest.raises(UnknownNameError, match="unknown encoder None"):
        build_encoder(SEQUENCE, {"name": None})


def test_unknown_setting_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown setting 'hiden': did you mean 'hidden'.*'mlp' of modality v"):
        build_encoder(VECTOR, {"name": "mlp", "hiden": [3]})


def test_wrong_kind_names_what_would_read_it():
    with pytest.raises(UnsupportedError, match=r"'conv' cannot read modality audio \(sequence 6×5\).* gru or lstm"):
        build_encoder(SEQUENCE, "conv")
    with pytest.raises(UnsupportedError, match="Text must become tokens first"):
        build_encoder(Modality("note", "text", ()), "bag")
    with pytest.raises(UnsupportedError, match=r"note \(text\).*Preparation\.fit"):
        build_encoder(Modality("note", "text", ()))


@pytest.mark.parametrize(
    ("modality", "choice", "words"),
    [
        (VECTOR, {"hidden": "64"}, r"'mlp' of modality v \(vector 7\): hidden must be a whole number"),
        (VECTOR, {"hidden": [64, 0]}, "hidden must be a whole number ≥ 1 or a list, each a whole number ≥ 1"),
        (VECTOR, {"hidden": [1]}, r"hidden must be whole numbers ≥ 2 with normalise=True, got \[1\]"),
        (VECTOR, {"hidden": 0.5}, "hidden must be a whole number"),
        (VECTOR, {"dropout": 1.0}, "dropout must be a number ≥ 0 and < 1, got 1.0"),
        (VECTOR, {"dropout": "a lot"}, "dropout must be a number"),
        (IMAGE, {"stages": 5}, "28×28 pixels has room for at most 4 stages, got 5"),
        (IMAGE, {"stages": 0}, "stages must be a whole number ≥ 1 or None, got 0"),
        (IMAGE, {"channels": -1}, "channels must be a whole number ≥ 1"),
        (SEQUENCE, {"layers": True}, "layers must be a whole number ≥ 1, got True"),
        (SEQUENCE, {"name": "transformer", "width": 10}, "width 10 and 4 heads: use 1, 2, 5, 10"),
        (SEQUENCE, {"name": "transformer", "heads": 0}, "heads must be a whole number ≥ 1"),
        (Modality("t", "tokens", (6,)), "bag", "does not say how many different token ids"),
        (Modality("dot", "image", (3, 1, 1)), "conv", "one pixel cannot be convolved: choose mlp"),
    ],
)
def test_bad_settings_are_named(modality, choice, words):
    with pytest.raises(InputError, match=words):
        build_encoder(modality, choice)


def test_what_is_no_choice():
    with pytest.raises(InputError, match="instance, not the class"):
        build_encoder(VECTOR, nn.Linear)
    with pytest.raises(InputError, match="must be a name, a mapping"):
        build_encoder(VECTOR, 3)
    with pytest.raises(InputError, match="must be a name, a mapping"):
        describe_choice(3)


def test_a_module_is_copied():
    module = nn.Linear(7, 3)
    encoder = build_encoder(VECTOR, module)
    assert isinstance(encoder, CustomModule)
    with torch.no_grad():
        module.weight.zero_()
    assert encoder.stages["module"].weight.abs().sum() > 0


def test_an_encoder_is_copied_and_used_as_it_is():
    given = Mlp(VECTOR, hidden=5)
    encoder = build_encoder(VECTOR, given)
    assert isinstance(encoder, Mlp)
    assert encoder is not given
    x = torch.randn(3, 7)
    assert torch.equal(encoder.eval()(x).pooled, given.eval()(x).pooled)
    with pytest.raises(UnsupportedError, match="'Mlp' cannot read modality title"):
        build_encoder(TOKENS, given)


def test_registering():
    try:

        @register_encoder("twice")
        class Twice(Encoder):
            reads = ("vector",)

            def __init__(self, modality: Modality, *, times: int = 2):
                super().__init__()
                self.width, self.times, self.stages = modality.shape[0], times, nn.ModuleDict()

            def finish(self, hidden, mask):
                return Encoded(self.times * hidden)

        assert "twice" in encoder_names()
        assert torch.equal(
            build_encoder(VECTOR, {"name": "twice", "times": 3})(torch.ones(1, 7)).pooled, torch.full((1, 7), 3.0)
        )
        with pytest.raises(ConsilienceError, match="'twice' is registered twice"):
            register_encoder("twice")(Twice)
    finally:
        ENCODERS.remove("twice")
    with pytest.raises(ConsilienceError, match="lower-case"):
        register_encoder("My Encoder")


@pytest.mark.parametrize(
    "choice", [None, "conv", {"stages": 2}, {"name": "mlp", "hidden": (8, torch.tensor(4).numpy()[()]), "dropout": 0.0}]
)
def test_a_described_choice_builds_the_same_encoder(choice):
    described = json.loads(json.dumps(describe_choice(choice)))
    assert not is_custom(described)
    shapes = [
        {name: value.shape for name, value in build_encoder(IMAGE, one).state_dict().items()}
        for one in (choice, described)
    ]
    assert shapes[0] == shapes[1]


def test_a_described_module_must_be_passed_again():
    described = json.loads(json.dumps(describe_choice(nn.Linear(7, 3))))
    assert is_custom(described)
    with pytest.raises(SavedModelError, match=r"modality 'v'.*torch\.nn.*Linear.*encoders=\{'v': …\}"):
        build_encoder(VECTOR, described)


def test_a_setting_that_cannot_be_saved():
    with pytest.raises(InputError, match=r"'hidden' holds .* cannot be saved"):
        describe_choice({"name": "mlp", "hidden": {8}})
