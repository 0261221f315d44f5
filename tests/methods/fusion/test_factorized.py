"""Factorised representations: the prior's distance and the reconstruction losses, each against its definition."""

import numpy as np
import pytest
import torch

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.methods import Spec, Step, build
from consilience.methods.fusion.factorized import discrepancy, reconstruction_loss
from toy_batches import CLASSES, VECTORS, batch_of


def test_discrepancy_is_the_double_sum_over_pairs():
    torch.manual_seed(0)
    factor = torch.randn(7, 3)
    present = torch.tensor([True, True, False, True, True, False, True])
    torch.manual_seed(5)
    got = discrepancy(factor, present)
    torch.manual_seed(5)
    drawn = torch.randn(7, 3)

    def kernel(a, b):
        return np.exp(-((a - b) ** 2).sum() / (2 * 3))

    rows, draws = factor[present].numpy(), drawn[present].numpy()
    within = np.mean([kernel(a, b) for a in rows for b in rows]) + np.mean([kernel(a, b) for a in draws for b in draws])
    across = np.mean([kernel(a, b) for a in rows for b in draws])
    np.testing.assert_allclose(got, within - 2 * across, rtol=1e-5)


def test_discrepancy_of_the_prior_from_itself_vanishes_with_the_batch():
    torch.manual_seed(0)
    sizes = [float(discrepancy(torch.randn(n, 4), torch.ones(n, dtype=torch.bool))) for n in (50, 800)]
    assert sizes[1] < sizes[0] / 4


def test_tokens_are_scored_by_their_log_probability():
    modality = Modality("words", "tokens", (4,), vocabulary=5)
    batch = Batch(
        {"words": torch.tensor([[2, 3, 3, 0], [4, 0, 0, 0]])},
        torch.ones(2, 1, dtype=torch.bool),
        index=torch.arange(2),
        weight=torch.ones(2),
        lengths={"words": torch.tensor([3, 1])},
    )
    decoded = torch.randn(2, 5)
    got = reconstruction_loss(modality, decoded, batch)
    p = torch.softmax(decoded, 1).double().numpy()
    expected = [-np.log(p[0, [2, 3, 3]]).mean(), -np.log(p[1, 4])]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_an_absent_modality_is_neither_reconstructed_nor_asked():
    method = build("mfm", Spec(VECTORS, CLASSES), {"latent": 4, "prior": 0.0}).eval()
    present = torch.tensor([[True, True], [True, False]]).repeat(3, 1)
    batch = batch_of(6, present)
    prediction = method(batch)
    got = method.objective(prediction, batch, Step())["reconstruction"]
    decoded = prediction.extra["reconstruction"]
    image = (decoded["image"] - batch["image"]).square().mean(1)
    audio = (decoded["audio"] - batch["audio"]).square().mean(1) * present[:, 1]
    torch.testing.assert_close(got, 0.1 * (image + audio).mean())


def test_factors_can_follow_the_prior_and_bad_weights_are_named():
    torch.manual_seed(0)
    method = build("mfm", Spec(VECTORS, CLASSES), {"latent": 8})
    joint = method(batch_of(40)).joint
    assert joint.min() < 0 < joint.max()  # a normal has both signs
    for setting in ("reconstruction", "prior"):
        with pytest.raises(InputError, match=f"{setting} must be a number ≥ 0, got -1"):
            build("mfm", Spec(VECTORS, CLASSES), {setting: -1})
