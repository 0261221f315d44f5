import numpy as np
import pytest
import torch
from torch import nn

from consilience.core.samples import Modality
from consilience.encoders import Encoded
from consilience.methods import (
    ExpertMethod,
    JointMethod,
    Method,
    Prediction,
    Spec,
    Step,
    encode,
    expert_losses,
    task_losses,
)
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

SPEC = Spec(VECTORS, CLASSES)


class Normed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.map, self.norm = nn.Linear(width, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.map(x))


def test_absent_rows_move_no_batch_statistics():
    present = torch.tensor([[True, True], [False, True], [True, True], [False, True], [True, True]])
    batch = batch_of(5, present)
    spec = Spec(VECTORS, CLASSES, {"image": Normed(3)})
    encoder, alone = spec.build_encoder("image"), spec.build_encoder("image")
    alone.load_state_dict(encoder.state_dict())
    encoded = encode(encoder, batch, "image")
    expected = alone(batch["image"][present[:, 0]])
    torch.testing.assert_close(encoded.pooled[present[:, 0]], expected.pooled)
    assert (encoded.pooled[~present[:, 0]] == 0).all()
    for name, value in alone.state_dict().items():
        assert torch.equal(encoder.state_dict()[name], value)
    # What an absent row holds reaches neither the features nor the gradients.
    garbage = batch_of(5, present)
    garbage.values["image"][~present[:, 0]] = float("nan")
    torch.testing.assert_close(encode(alone, garbage, "image").pooled[present[:, 0]], encoded.pooled[present[:, 0]])
    encode(alone, garbage, "image").pooled.sum().backward()
    assert all(torch.isfinite(one.grad).all() for one in alone.parameters())


def test_nothing_has_the_type_of_the_input_where_an_encoder_has_no_parameters():
    batch = batch_of(1, torch.tensor([[False, True]]))
    encoder = Spec(VECTORS, CLASSES, {"image": "linear"}).build_encoder("image")
    assert not list(encoder.parameters())
    batch.values["image"] = batch.values["image"].double()
    assert encode(encoder, batch, "image").pooled.dtype is torch.float64


def test_encoding_keeps_order_sequences_and_masks():
    modality = Modality("words", "sequence", (4, 2))
    present = torch.tensor([[False], [True], [False], [True]])
    batch = batch_of(4, present, modalities={"words": modality})
    batch.lengths = {"words": torch.tensor([0, 3, 0, 1])}
    encoder = Spec({"words": modality}, CLASSES, {"words": "gru"}).build_encoder("words").eval()
    encoded = encode(encoder, batch, "words")
    for row in (1, 3):
        single = encoder(batch["words"][row : row + 1], batch.lengths["words"][row : row + 1])
        torch.testing.assert_close(encoded.pooled[row], single.pooled[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(encoded.sequence[row], single.sequence[0], atol=1e-6, rtol=1e-5)
    assert encoded.mask.tolist() == [[False] * 4, [True] * 3 + [False], [False] * 4, [True] + [False] * 3]
    assert not encoded.pooled[[0, 2]].any()


def test_encoding_what_nobody_has():
    batch = batch_of(3, torch.zeros(3, 2, dtype=torch.bool))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        encoder = SPEC.build_encoder("image").to(dtype)
        before = {name: value.clone() for name, value in encoder.state_dict().items()}
        encoded = encode(encoder, batch, "image")
        assert (encoded.pooled.shape, encoded.pooled.dtype) == ((3, encoder.width), dtype)
        assert not encoded.pooled.any()
        assert not encoded.mask.any()
        assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_encoding_a_batch_that_is_whole_without_knowing_it():
    known, unknown = batch_of(4), batch_of(4)
    unknown.complete = frozenset()
    encoder = SPEC.build_encoder("image").eval()
    assert torch.equal(encode(encoder, known, "image").pooled, encode(encoder, unknown, "image").pooled)


class Loudest(ExpertMethod):
    def combine(self, opinions, batch):
        return opinions.sum(1), batch.present.float()


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_experts_learn_from_the_samples_that_have_their_modality(task):
    present = torch.tensor([[True, True], [False, True], [True, False], [False, False]])
    batch = batch_of(4, present, task, weight=[1.0, 2.0, 0.5, 3.0])
    method = Loudest(Spec(VECTORS, task), expert_loss=0.3).eval()
    prediction = method(batch)
    losses = method.objective(prediction, batch, Step())
    own = expert_losses(task, prediction.opinions, batch).detach().numpy()
    weight = batch.weight.numpy()
    # Divided by the whole batch's weight, so that batches of a step add up however their gaps fall.
    expected = sum(weight[i] * own[i, m] for i in range(4) for m in range(2) if present[i, m]) / weight.sum()
    assert losses["experts"].item() == pytest.approx(0.3 * expected, rel=1e-5)
    fused = task_losses(task, prediction.output, batch).detach().numpy()
    assert losses["task"].item() == pytest.approx(np.average(fused, weights=weight), rel=1e-5)
    assert list(Loudest(Spec(VECTORS, task), expert_loss=0).objective(prediction, batch, Step())) == ["task"]


def test_a_joint_method_is_encoders_fusion_head():
    class Sum(JointMethod):
        def __init__(self, spec):
            super().__init__(spec)
            self.head = nn.Linear(4, spec.task.outputs)

        def fusion(self, features, batch):
            return sum(one.pooled for one in features.values())

    method = Sum(Spec(VECTORS, CLASSES, {"image": nn.Linear(3, 4), "audio": nn.Linear(2, 4)}))
    batch = batch_of(5)
    prediction = method(batch)
    joint = method.encoders["image"](batch["image"]).pooled + method.encoders["audio"](batch["audio"]).pooled
    torch.testing.assert_close(prediction.joint, joint)
    torch.testing.assert_close(prediction.output, method.head(joint))
    assert isinstance(prediction.features["image"], Encoded)


def test_the_bare_contract_says_what_is_missing():
    with pytest.raises(NotImplementedError):
        Method(SPEC)(batch_of())
    with pytest.raises(NotImplementedError):
        ExpertMethod(SPEC)(batch_of())
    runs = []

    class Recorder:
        def run(self, *given):
            runs.append(given)

    method = Method(SPEC)
    method.fit("train", "validation", Recorder())
    assert runs == [(method, "train", "validation")]
    assert Method.arguments(["a"]) == []
    assert Prediction(torch.zeros(1)).extra == {}
