"""Nothing of a fit outlives its model, and predictions take no memory; `make faults` measures a thousand fits."""

import gc

import pytest
import torch

import consilience as cs
from faults.memory import METHODS, growth

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def digits():
    data = cs.load_data("digits")
    return data.train[:60], data.test[:100]


def tensors():
    """How many tensors there are."""
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


@pytest.mark.parametrize("name", METHODS)
def test_a_fit_leaves_no_tensor(digits, name):
    train, test = digits

    def use():
        cs.FusionClassifier(name, epochs=1, device="cpu").fit(train, train.y).predict_proba(test)

    use()  # what a first call keeps for all others
    before = tensors()
    use()
    assert tensors() == before


def test_predictions_take_no_memory(digits):
    train, test = digits
    model = cs.FusionClassifier("late", epochs=1, device="cpu").fit(train, train.y)
    first, last, _ = growth(lambda _: model.predict_proba(test), 300)
    assert last - first < 2  # MB; 200 batches are more
