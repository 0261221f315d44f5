"""`mla`: turns, the protected head and the weights, against the equations."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.core.samples import Samples
from consilience.data import load_data
from consilience.methods import Spec, Step
from consilience.methods.opinions.mla import Mla, decided_weights, protect
from consilience.training import Model, Trainer
from toy_batches import CLASSES, VECTORS, batch_of

SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False]])


def test_weights_are_a_softmax_of_negative_entropies():
    logits = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(2).numpy()
    entropy = -(p * np.log(p)).sum(2)
    share = np.exp(-entropy) * SOME.numpy()
    expected = share / np.maximum(share.sum(1, keepdims=True), 1e-9)
    np.testing.assert_allclose(decided_weights(logits, SOME), expected, rtol=1e-5)


def test_protection_keeps_the_output_for_mean_features():
    """Many batches with the same two means: a step of the head then leaves its outputs on them nearly as they are."""
    random = torch.Generator().manual_seed(0)
    means, matrix = torch.randn(2, 5, generator=random), torch.eye(5)
    for number in range(20):
        matrix = protect(matrix, means[number % 2], 0.1)
    assert torch.linalg.matrix_norm(matrix).item() == pytest.approx(5**0.5, rel=1e-5)
    torch.testing.assert_close(matrix, matrix.T)
    gradient = torch.randn(3, 5, generator=random)
    assert (gradient @ matrix @ means.T).abs().max() < 0.02 * (gradient @ means.T).abs().max()
    # What is orthogonal to both is not protected; the rest of the norm is there.
    other = torch.linalg.svd(means).Vh[2]
    assert (matrix @ other).norm() > 1


def test_the_gradient_of_the_head_is_projected_and_that_of_the_features_is_not():
    method = Mla(Spec(VECTORS, CLASSES), width=5, dropout=0.0)
    method.encoders.eval()  # without dropout
    method.turn.fill_(0)
    before = protect(torch.eye(5), torch.arange(5.0), 0.1)
    method.protected = before
    batch = batch_of(8)
    prediction = method(batch)
    sum(method.objective(prediction, batch, Step()).values()).backward()
    found = {name: parameter.grad for name, parameter in method.named_parameters() if parameter.grad is not None}
    assert not any("encoders.each.1" in name or "project.each.1" in name for name in found)

    features = method.project["image"](method.encoders["image"](batch["image"]).pooled)
    loss = functional.cross_entropy(method.head(features), batch.y)
    weights = [method.head.weight, next(method.project["image"].parameters())]
    head, projected = torch.autograd.grad(loss, weights)
    torch.testing.assert_close(found["head.weight"], head @ before)
    torch.testing.assert_close(weights[1].grad, projected)
    assert method.turn == 1
    torch.testing.assert_close(method.protected, protect(before, features.mean(0).detach(), 0.1))


def test_turns_go_round_and_use_only_samples_that_have_the_modality():
    method = Mla(Spec(VECTORS, CLASSES), dropout=0.0)
    method.turn.fill_(0)
    batch = batch_of(4, SOME, weight=[1.0, 2.0, 0.5, 3.0])
    for column, name in enumerate(("image", "audio", "image")):
        prediction = method(batch)
        (loss,) = method.objective(prediction, batch, Step()).values()
        own = functional.cross_entropy(prediction.output, batch.y, reduction="none") * SOME[:, column % 2]
        assert prediction.extra["turn"] == name
        assert loss.item() == pytest.approx(np.average(own.detach(), weights=batch.weight), rel=1e-5)


def test_a_training_has_as_many_epochs_as_modalities_for_each_one():
    data = load_data("digits")
    model = Model.fit("mla", data.train[:100], data.validation[:50], trainer=Trainer(epochs=2, device="cpu"))
    assert [row["epoch"] for row in model.logs[0].rows] == list(range(8))
    assert model.logs[0].rows[-1]["phase"] == "turns"


def test_separable_classes_end_its_turns_too():
    rng = np.random.default_rng(0)
    y = np.arange(130) % 2
    samples = Samples.of({name: rng.normal(size=(130, 3)) + 4.0 * y[:, None] for name in "ab"}, y)
    trainer = Trainer(device="cpu", steps=2400, lr=0.01)
    rows = Model.fit("mla", samples[:100], samples[100:], trainer=trainer).logs[0].rows
    assert rows[-1]["validation_loss"] < 0.01
    assert len(rows) < 2 * 1200, "of two modalities with 1200 epochs each"
