from functools import partial

import pytest
import torch
from torch import nn

from consilience import methods
from consilience.core.errors import InputError, UnsupportedError
from consilience.core.samples import Modality
from consilience.encoders import Encoded
from consilience.methods import Spec, Step
from consilience.methods.fusion.early import Early, join_inputs, join_shapes
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of


def described(**shapes):
    """name="kind 1 2 3" → modalities."""
    split = {name: text.split() for name, text in shapes.items()}
    return {name: Modality(name, kind, tuple(map(int, shape))) for name, (kind, *shape) in split.items()}


@pytest.mark.parametrize(
    ("modalities", "kind", "shape"),
    [
        (described(a="vector 3", b="vector 2"), "vector", (5,)),
        (described(a="image 1 8 8", b="image 3 8 8"), "image", (4, 8, 8)),
        (described(a="image 1 8 8", b="image 1 4 16"), "vector", (128,)),
        (described(a="sequence 5 2", b="sequence 5 3"), "sequence", (5, 5)),
        (described(a="sequence 5 2", b="sequence 4 3"), "vector", (22,)),
        (described(a="sequence 5 2", b="vector 3"), "vector", (13,)),
        (described(a="image 2 3 4"), "image", (2, 3, 4)),
    ],
)
def test_what_the_inputs_join_to(modalities, kind, shape):
    joined = join_shapes(modalities)
    assert (joined.kind, joined.shape) == (kind, shape)
    batch = batch_of(4, modalities=modalities)
    batch.lengths = {
        name: torch.full((4,), modality.shape[0])
        for name, modality in modalities.items()
        if modality.kind == "sequence"
    }
    values, lengths = join_inputs(modalities, joined, batch)
    assert values.shape == (4, *shape)
    assert (lengths is not None) == (kind == "sequence")
    axis = {"vector": 1, "image": 1, "sequence": 2}[kind]
    start = 0
    for name in modalities:  # each modality is found again, unchanged
        own = batch[name].flatten(1) if kind == "vector" else batch[name]
        assert torch.equal(values.narrow(axis, start, own.shape[axis]), own)
        start += own.shape[axis]
    assert start == values.shape[axis]


def test_a_sample_lasts_as_long_as_its_longest_sequence():
    modalities = described(a="sequence 4 1", b="sequence 4 2")
    batch = batch_of(3, modalities=modalities)
    batch.lengths = {"a": torch.tensor([1, 4, 0]), "b": torch.tensor([3, 0, 0])}
    _, lengths = join_inputs(modalities, join_shapes(modalities), batch)
    assert lengths.tolist() == [3, 4, 1]  # one step of zeros where nothing is there


def test_shorter_sequences_are_padded_and_longer_ones_refused():
    modalities = described(a="sequence 4 1", b="vector 2")
    joined = join_shapes(modalities)
    for steps in (2, 4):
        batch = batch_of(3, modalities=described(a=f"sequence {steps} 1", b="vector 2"))
        batch.lengths = {"a": torch.full((3,), steps)}
        values, _ = join_inputs(modalities, joined, batch)
        assert torch.equal(values[:, :steps], batch["a"][:, :, 0])
        assert not values[:, steps:4].any()
        assert torch.equal(values[:, 4:], batch["b"])
    batch = batch_of(3, modalities=described(a="sequence 5 1", b="vector 2"))
    with pytest.raises(InputError, match="'a' had 4 time steps in training, got 5"):
        join_inputs(modalities, joined, batch)


def test_one_encoder_reads_all_of_it():
    spec = Spec(VECTORS, CLASSES)
    method = Early(spec, encoder=nn.Linear(5, 6)).eval()
    batch = batch_of(4)
    encoded = method.encoder(torch.cat([batch["image"], batch["audio"]], dim=1))
    assert isinstance(encoded, Encoded)
    prediction = method(batch)
    torch.testing.assert_close(prediction.joint, encoded.pooled)
    torch.testing.assert_close(prediction.output, method.head(encoded.pooled))
    images = Spec(described(a="image 1 8 8", b="image 2 8 8"), CLASSES)
    assert type(Early(images).encoder).__name__ == "Conv"
    assert type(Early(images, encoder="mlp").encoder).__name__ == "Mlp"


def test_encoders_per_modality_are_refused():
    spec = Spec(VECTORS, CLASSES, {"image": "mlp"})
    for build in (Early, partial(methods.build, "early")):
        with pytest.raises(UnsupportedError, match="one encoder for all modalities, its setting 'encoder'"):
            build(spec)
    assert Early.reason_against(Spec(VECTORS, CLASSES, {"image": None})) is None


def test_an_encoder_for_another_kind_is_refused():
    with pytest.raises(InputError, match="cannot read modality all"):
        Early(Spec(VECTORS, CLASSES), encoder="conv")


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize(
    "modalities",
    [VECTORS, described(a="image 1 8 8", b="image 1 8 8"), described(a="sequence 4 2", b="sequence 4 1")],
    ids=["vectors", "images", "sequences"],
)
def test_gradients_are_finite_when_everything_is_missing(task, modalities):
    batch = batch_of(4, torch.zeros(4, 2, dtype=torch.bool), task, modalities=modalities)
    batch.lengths = {name: torch.zeros(4, dtype=torch.int64) for name, modality in modalities.items() if modality.timed}
    method = Early(Spec(modalities, task))
    method.objective(method(batch), batch, Step())["task"].backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters())
