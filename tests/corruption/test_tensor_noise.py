"""Noise as tensors is the noise of numpy, bit for bit: computed by torch, and for several streams at once."""

import numpy as np
import pytest
import torch

from consilience.corruption import tensor_noise
from consilience.corruption.seeded_noise import Noise
from consilience.corruption.tensor_noise import TensorNoise, hash_words

INDEX = np.array([5, 0, 123_456, 2**40, -3])


@pytest.mark.parametrize("count", [1, 7, 5001])
def test_what_torch_computes_is_what_numpy_computes(count):
    # On a CPU these functions are not used; they are those of a CUDA device.
    noise = Noise(7, "image", "gaussian")
    key = torch.from_numpy(noise.key.view(np.int64))
    words = hash_words(torch.from_numpy(INDEX), key, count)
    np.testing.assert_array_equal(tensor_noise._to_uniform(words), noise.uniform(INDEX, (count,)))
    np.testing.assert_array_equal(tensor_noise._to_normal(words), noise.normal(INDEX, (2 * count,)))


def test_streams_side_by_side_are_the_streams_alone():
    noises = [Noise(seed, "audio") for seed in (3, 4)]
    both = TensorNoise(noises)
    index = torch.tensor([[0, 1, 2], [9, 1, 5]])
    for trial, noise in enumerate(noises):
        own = index[trial].numpy()
        np.testing.assert_array_equal(both.normal(index, (2, 3))[trial], noise.normal(own, (2, 3)))
        np.testing.assert_array_equal(both.within("level").uniform(index)[trial], noise.within("level").uniform(own))
    # The same through the functions of a CUDA device.
    key = torch.from_numpy(Noise.joined(noises, 3).key.view(np.int64))
    words = tensor_noise._to_uniform(hash_words(index.reshape(-1), key, 4)).reshape(2, 3, 4)
    np.testing.assert_array_equal(words, both.uniform(index, (4,)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares a CUDA device with the processor")
def test_a_cuda_device_draws_the_same_numbers():
    noise = TensorNoise([Noise(3, "audio"), Noise(4, "audio")])
    index = torch.tensor([[0, 1, 2], [9, 1, 5]])
    for draw in (noise.uniform, noise.normal):
        assert torch.equal(draw(index.cuda(), (3, 7)).cpu(), draw(index, (3, 7)))
