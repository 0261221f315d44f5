"""Blending weights by hand, and that they are found without looking at validation samples."""

import numpy as np
import torch

from consilience.core.targets import Task
from consilience.data import load_data
from consilience.methods import Spec, Step, build
from consilience.methods.fusion.gradient_blending import blending_weights
from consilience.preparation import Preparation
from consilience.training import Trainer
from methods.progressive.foreign import stir
from toy_batches import CLASSES, VECTORS, batch_of


def test_weights_by_hand():
    # Head 1: gains 1.0, overfits 0.5 → 1 / .25 = 4. Head 2: gains .5, overfits 1 → .5. Head 3: loses → the least, .04.
    got = blending_weights(
        torch.tensor([2.0, 2.0, 2.0]),
        torch.tensor([2.1, 2.0, 2.0]),
        torch.tensor([0.5, 0.5, 1.0]),
        torch.tensor([1.1, 1.5, 2.5]),
    )
    np.testing.assert_allclose(got, np.array([4, 0.5, 0.04]) / 4.54, rtol=1e-6)


def test_a_head_that_does_not_overfit_does_not_outweigh_without_bound():
    start = torch.tensor([1.0, 1.0])
    got = blending_weights(start, start, torch.tensor([0.5, 0.4]), torch.tensor([0.5, 0.5]))
    assert torch.isfinite(got).all()
    assert 0 < got[1] < got[0]


def test_nothing_gained_means_equal_weights():
    start = torch.tensor([1.0, 1.0])
    np.testing.assert_allclose(blending_weights(start, start, start, start + 1), [0.5, 0.5])


def test_the_objective_is_the_blend_of_the_heads_losses():
    method = build("gradient-blend", Spec(VECTORS, CLASSES)).eval()
    method.blend.copy_(torch.tensor([0.2, 0.3, 0.5]))
    present = torch.tensor([[True, True], [True, False], [False, True], [True, True]])
    batch = batch_of(4, present)
    prediction = method(batch)
    got = method.objective(prediction, batch, Step())
    logs = torch.log_softmax(prediction.opinions, 2)[torch.arange(4), :, batch.y]
    np.testing.assert_allclose(got["image"].detach(), 0.2 * -(logs[:, 0] * present[:, 0]).mean().detach(), rtol=1e-5)
    np.testing.assert_allclose(got["audio"].detach(), 0.3 * -(logs[:, 1] * present[:, 1]).mean().detach(), rtol=1e-5)


def test_in_a_loop_each_modality_is_asked_before_it_has_heard_of_the_others():
    torch.manual_seed(0)
    loop = stir(build("pro:gradient-blend", Spec(VECTORS, CLASSES)).eval())
    batch = batch_of(4)
    before = loop(batch)
    batch.values["audio"] += 1.0
    after = loop(batch)
    assert torch.equal(after.opinions[:, 0], before.opinions[:, 0])
    assert not torch.equal(after.features["image"].pooled, before.features["image"].pooled)
    torch.testing.assert_close(before.opinions[:, 0], loop.heads["image"](loop.represent(batch)["image"].pooled))
    # What is held against a modality alone teaches its encoder and its head, no link.
    losses = loop.objective(after, batch, Step())
    (losses["image"] + losses["audio"]).backward()
    assert not any(parameter.grad.any() for parameter in loop.link_parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in loop.heads.parameters())


def test_weights_are_found_from_the_training_samples():
    data = load_data("digits")
    train = data.train[:120]
    task = Task.of(train.y, "classification")
    preparation = Preparation.fit(train, task)
    torch.manual_seed(0)
    method = build("gradient-blend", Spec(preparation.modalities, task), {"probe_epochs": 2})
    trainer = Trainer(preparation, epochs=1, device="cpu")
    before = {name: value.clone() for name, value in method.state_dict().items()}
    found = method.find_blend(train, trainer)
    assert found.shape == (len(train.names) + 1,)
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())  # probes are copies
    assert not trainer.logs
