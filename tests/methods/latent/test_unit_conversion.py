"""Between the user's units and a likelihood's."""

import numpy as np
import pytest
import torch

from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods.latent.unit_conversion import AsIs, in_users_units, log_volume, own_transforms
from consilience.preparation import Preparation

RNG = np.random.default_rng(0)
X = {
    "vector": 5 + 3 * RNG.normal(size=(40, 4)),
    "image": 5 + 3 * RNG.normal(size=(40, 2, 3, 3)),
    "sequence": 5 + 3 * RNG.normal(size=(40, 6, 2)),
    "text": ["a red thing" if one else "blue" for one in np.arange(40) % 2],
}


@pytest.fixture(scope="module")
def preparation():
    return Preparation.fit(Samples.of(X), Task.none())


def test_there_and_back(preparation):
    batch = preparation.batch(Samples.of(X))
    for name in ("vector", "image", "sequence"):
        back = in_users_units(preparation.transforms[name], batch[name])
        np.testing.assert_allclose(back, X[name], rtol=1e-5, atol=1e-5)
    assert in_users_units(preparation.transforms["text"], batch["text"]).tolist() == X["text"]
    several = in_users_units(preparation.transforms["vector"], batch["vector"].expand(3, -1, -1))
    np.testing.assert_allclose(several[2], X["vector"], rtol=1e-5, atol=1e-5)


def test_volume_is_the_determinant_of_the_map(preparation):
    for name in ("vector", "image"):
        transform, size = preparation.transforms[name], int(np.prod(X[name].shape[1:]))
        ends = torch.zeros(1, *X[name].shape[1:]), torch.ones(1, *X[name].shape[1:])
        low, high = (in_users_units(transform, one).astype(np.float64).reshape(size) for one in ends)
        assert log_volume(transform, 3).tolist() == pytest.approx([np.log(high - low).sum()] * 3, rel=1e-5)
    transform = preparation.transforms["sequence"]
    one_step = log_volume(transform, 1, torch.tensor([1])).item()
    assert log_volume(transform, 2, torch.tensor([4, 0])).tolist() == pytest.approx([4 * one_step, 0])
    assert log_volume(preparation.transforms["text"], 2).tolist() == [0, 0]


def test_raw_likelihoods_get_raw_numbers_and_survive_saving():
    counts = Samples.of({"counts": RNG.poisson(3.0, size=(40, 2)), "numbers": X["vector"]})
    own = own_transforms(counts.modalities, {"counts": "poisson"})
    assert list(own) == ["counts"]
    preparation = Preparation.fit(counts, Task.none(), own)
    again = Preparation.from_state(*preparation.state())
    for one in (preparation, again):
        assert isinstance(one.transforms["counts"], AsIs)
        np.testing.assert_array_equal(one.batch(counts)["counts"], counts["counts"])
    assert log_volume(again.transforms["counts"], 1).item() == 0
    assert again.statistics()["counts"].std is not None
