import numpy as np
import pytest
import torch

from consilience.bayes.learned_buffers import Learned


class Toy(Learned):
    def __init__(self):
        super().__init__()
        self.learn(values=torch.zeros(2), one=torch.tensor(0.0))


def test_what_is_learned_keeps_the_type_it_had():
    toy = Toy()
    toy.learn(values=np.arange(5.0))
    assert toy.values.dtype == torch.float32
    assert toy.values.tolist() == [0, 1, 2, 3, 4]
    assert toy.double().values.dtype == torch.float64


def test_learning_copies():
    values = torch.ones(2)
    toy = Toy()
    toy.learn(values=values)
    values[0] = 7
    assert toy.values.tolist() == [1, 1]


def test_all_values_replace_the_old_ones_in_one_step(monkeypatch):
    toy, seen, as_tensor = Toy(), [], torch.as_tensor
    before = toy._buffers

    def looking(value):
        seen.append((toy.values.tolist(), toy.one.item()))
        return as_tensor(value)

    monkeypatch.setattr(torch, "as_tensor", looking)
    toy.learn(values=np.arange(3.0), one=5.0)
    assert seen == [([0, 0], 0)] * 2, "nothing is replaced before all is there"
    assert (toy.values.tolist(), toy.one.item()) == ([0, 1, 2], 5)
    assert before["values"].tolist() == [0, 0], "who read the buffers before keeps them all"


def test_a_value_that_cannot_be_stored_changes_nothing():
    toy = Toy()
    with pytest.raises((TypeError, ValueError)):
        toy.learn(values=np.arange(3.0), one="none")
    assert toy.values.tolist() == [0, 0]


def test_loading_takes_the_saved_sizes():
    fitted, fresh = torch.nn.Sequential(Toy()), torch.nn.Sequential(Toy())
    fitted[0].learn(values=np.arange(7.0), one=3.0)
    fresh.load_state_dict(fitted.state_dict())
    assert torch.equal(fresh[0].values, fitted[0].values)
    assert fresh[0].one == 3
