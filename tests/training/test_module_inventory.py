"""`ModuleInventory`, and predictions by models that were changed after their first prediction."""

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from consilience import FusionClassifier, load_data
from consilience.core.errors import InputError
from consilience.training.module_inventory import ModuleInventory


@pytest.fixture
def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.ReLU(), nn.Dropout(0.5)))


def test_an_unchanged_module_is_known(network):
    inventory = ModuleInventory(network)
    assert inventory.is_of(network)
    assert inventory.training
    network.eval()
    assert not inventory.training
    assert inventory.is_on(torch.device("cpu"))
    assert not inventory.is_on(torch.device("meta"))
    assert inventory.input_type == torch.float32
    assert ModuleInventory(network.double()).input_type == torch.float64


def test_weights_that_move_are_noticed():
    network = nn.Linear(3, 4)
    inventory = ModuleInventory(network)
    network.double()  # changes the weights in place
    assert inventory.is_of(network)
    assert inventory.input_type == torch.float64


@pytest.mark.parametrize(
    "change",
    [
        lambda network: network.append(nn.ReLU()),
        lambda network: setattr(network[0], "bias", None),
        lambda network: setattr(network[0], "weight", nn.Parameter(torch.zeros(4, 3))),
        lambda network: network[2].__setitem__(1, nn.Dropout(0.5)),
        lambda network: setattr(network[1], "running_mean", torch.ones(4)),
        lambda network: network[2][0].register_buffer("own", torch.zeros(1)),
        lambda network: network[2][0].add_module("own", nn.ReLU()),
    ],
)
def test_every_change_is_noticed(network, change):
    inventory = ModuleInventory(network)
    change(network)
    assert not inventory.is_of(network)


def test_another_module_is_not_the_same(network):
    assert not ModuleInventory(network).is_of(copy.deepcopy(network))


@pytest.fixture(scope="module")
def fitted():
    data = load_data("digits")
    return FusionClassifier("late", encoders="auto", epochs=2).fit(data.train), data.test


def test_a_part_that_is_set_to_training_does_not_change_predictions(fitted):
    model, test = fitted
    expected = model.predict_proba(test[:4])
    model.model_.method.encoders.train()
    np.testing.assert_array_equal(model.predict_proba(test[:4]), expected)


def test_a_replaced_part_is_used_and_evaluated():
    data = load_data("digits")
    model = FusionClassifier("concat", epochs=2).fit(data.train)
    before, whole = model.predict_proba(data.test[:4]), copy.deepcopy(model)
    method = model.model_.method
    method.head = nn.Sequential(nn.Dropout(0.9), nn.Linear(method.head.in_features, 10)).train()
    first = model.predict_proba(data.test[:4])
    assert not np.allclose(first, before)
    np.testing.assert_array_equal(model.predict_proba(data.test[:4]), first)
    np.testing.assert_array_equal(whole.predict_proba(data.test[:4]), before)  # a copy has parts of its own


def test_weights_in_64_bits_read_64_bits(fitted):
    model, test = copy.deepcopy(fitted[0]), fitted[1]
    expected = model.predict_proba(test[:4])
    model.model_.method.double()
    np.testing.assert_allclose(model.predict_proba(test[:4]), expected, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 64, 359])
def test_one_batch_and_many_give_the_same(fitted, rows):
    model, test = fitted
    whole = model.model_.predict(test[:rows])
    parts = model.model_.predict(test[:rows], batch_size=7)
    torch.testing.assert_close(whole.output, parts.output, atol=1e-6, rtol=0)
    torch.testing.assert_close(whole.weights, parts.weights, atol=1e-6, rtol=0)


def test_wrong_values_are_refused_in_one_row_too(fitted):
    model, test = fitted
    row = {name: np.array(test[name][:1], dtype=float) for name in test.names}
    model.predict_proba(row)
    name = test.names[0]
    broken = np.array(row[name])
    broken.flat[0] = np.nan
    with pytest.raises(InputError, match="NaN or infinity in part of row 0"):
        model.predict_proba({**row, name: broken})
    with pytest.raises(InputError, match="the model was trained on"):
        model.predict_proba({**row, name: row[name][..., :-1]})
    with pytest.raises(InputError, match="unknown modality"):
        model.predict_proba({**row, "other": row[name]})


def test_threads_may_share_a_new_model(fitted):
    model, test = copy.deepcopy(fitted[0]), fitted[1]
    expected, found = fitted[0].predict_proba(test[:3]), [None] * 8
    model.model_.method.train()
    model.model_._inventory = None

    def predict(place):
        found[place] = model.predict_proba(test[:3])

    threads = [threading.Thread(target=predict, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        np.testing.assert_array_equal(each, expected)
