import numpy as np
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


def test_loading_takes_the_saved_sizes():
    fitted, fresh = torch.nn.Sequential(Toy()), torch.nn.Sequential(Toy())
    fitted[0].learn(values=np.arange(7.0), one=3.0)
    fresh.load_state_dict(fitted.state_dict())
    assert torch.equal(fresh[0].values, fitted[0].values)
    assert fresh[0].one == 3
