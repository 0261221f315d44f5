"""The refiner's loss against scikit-learn's cosine distance."""

import numpy as np
import torch
from sklearn.metrics.pairwise import paired_cosine_distances

from consilience.methods import Spec, Step, build
from toy_batches import CLASSES, VECTORS, batch_of


def test_loss_is_the_mean_cosine_distance_of_what_is_present():
    torch.manual_seed(0)
    method = build("refnet", Spec(VECTORS, CLASSES), {"width": 5, "strength": 2.0}).eval()
    present = torch.tensor([[True, True], [True, False], [True, True], [False, True]])
    batch = batch_of(4, present)
    prediction = method(batch)
    got = method.objective(prediction, batch, Step())["refine"]
    far = np.stack(
        [
            paired_cosine_distances(
                prediction.extra["refined"][name].detach(), prediction.features[name].pooled.detach()
            )
            for name in VECTORS
        ],
        axis=1,
    )
    mask = present.numpy()
    expected = 2.0 * np.mean((far * mask).sum(1) / mask.sum(1))
    np.testing.assert_allclose(got.detach(), expected, rtol=1e-5)
