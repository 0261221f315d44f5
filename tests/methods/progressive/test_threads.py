"""A looped model called by eight threads at once returns what it returns when called alone."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from consilience.core.samples import Modality
from consilience.methods import Spec, build
from methods.progressive.foreign import made, stir
from toy_batches import CLASSES, batch_of

MODALITIES = {"image": Modality("image", "image", (1, 8, 8)), "audio": Modality("audio", "vector", (2,))}


@pytest.fixture
def switch_often():
    """Let threads take turns as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def count_wrong(call, inputs):
    """Of 200 calls from eight threads, the number with another result than the same call alone."""
    with torch.no_grad():
        expected = [call(given) for given in inputs]

        def is_wrong(number):
            with torch.no_grad():
                return not torch.equal(call(inputs[number % len(inputs)]), expected[number % len(inputs)])

        with ThreadPoolExecutor(8) as threads:
            return sum(threads.map(is_wrong, range(200)))


@pytest.mark.usefixtures("switch_often")
@pytest.mark.parametrize("settings", [{}, {"mode": "concat", "statistics": "last"}], ids=["add", "concat"])
@pytest.mark.parametrize("family", ["pro", "unimodal-feedback"])
def test_methods(family, settings):
    loop = stir(build(f"{family}:concat", Spec(MODALITIES, CLASSES), {"steps": 3, **settings})).eval()
    batches = [batch_of(n, seed=n, modalities=MODALITIES) for n in (4, 5, 6)]
    loop.train()
    loop(batches[0])  # so that the running statistics of the passes differ
    loop.eval()
    assert count_wrong(lambda batch: loop(batch).output, batches) == 0


@pytest.mark.usefixtures("switch_often")
@pytest.mark.parametrize("mode", ["add", "concat"])
@pytest.mark.parametrize("case", ["plain", "packed"])
def test_modules(case, mode):
    _, loop, inputs = made(case, steps=3, mode=mode)
    stir(loop).train()
    loop(*inputs)
    loop.eval()
    others = [tuple(value.flip(1) if value.ndim > 2 else value for value in inputs), inputs]
    assert count_wrong(lambda given: loop(*given), others) == 0
