import numpy as np
import torch
from torch import nn

from consilience.encoders import Encoded
from consilience.methods.fusion.parts import Steps, Windows, stack_steps
from toy_sequences import TIMED


def test_windows_are_a_convolution_over_time():
    torch.manual_seed(0)
    for kernel in (1, 2, 3, 5):
        windows = Windows(3, 4, kernel)
        convolution = nn.Conv1d(3, 4, kernel)
        convolution.weight.data = windows.project.weight.data.unflatten(1, (3, kernel))
        convolution.bias.data = windows.project.bias.data
        x = torch.randn(2, 6, 3)
        before = (kernel - 1) // 2
        padded = nn.functional.pad(x.transpose(1, 2), (before, kernel - 1 - before))
        torch.testing.assert_close(windows(x), convolution(padded).transpose(1, 2))


def test_steps_are_left_as_they_are_or_projected():
    torch.manual_seed(0)
    x, lengths = torch.randn(2, 6, 3), torch.tensor([6, 2])
    x[1, 2:] = torch.nan  # padding may hold anything
    plain = Steps(TIMED["sound"])(x, lengths)
    assert torch.equal(plain.sequence, x.nan_to_num(0))
    torch.testing.assert_close(plain.pooled[1], x[1, :2].mean(0))
    projected = Steps(TIMED["sound"], width=5, kernel=3)
    torch.testing.assert_close(projected(x, lengths).sequence[1, :2], projected(x[1:, :2]).sequence[0])
    assert not projected(x, lengths).sequence[1, 2:].any()


def test_a_stack_against_one_made_step_by_step():
    generator = np.random.default_rng(0)
    lengths = {"a": [3, 1, 2, 0], "b": [2, 2, 0, 0]}
    present = np.array([[True, True, True], [True, False, False], [True, True, True], [False, False, True]])
    features = {
        name: Encoded(
            torch.zeros(4, 2),
            torch.tensor(generator.normal(size=(4, steps, 2))),
            torch.arange(steps) < torch.tensor(lengths[name])[:, None],
        )
        for name, steps in (("a", 3), ("b", 5))
    }
    features["still"] = Encoded(torch.tensor(generator.normal(size=(4, 1)) * present[:, 2:]))
    stacked, mask = stack_steps(features, torch.tensor(present))
    assert stacked.shape == (4, 5, 5)
    for row in range(4):
        long = [lengths[name][row] * there for name, there in zip("ab", present[row])]
        last = max(*long, int(present[row, 2]))  # a vector alone lasts one step
        assert mask[row].tolist() == [step < last for step in range(5)]
        for step in range(5):
            expected = np.zeros(5)
            for place, name in enumerate("ab"):
                if step < long[place]:
                    expected[2 * place : 2 * place + 2] = features[name].sequence[row, step]
            if step < last:
                expected[4] = features["still"].pooled[row, 0]
            np.testing.assert_allclose(stacked[row, step], expected)
