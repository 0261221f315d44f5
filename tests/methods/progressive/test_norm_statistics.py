"""Batch norms in a loop: whose statistics are kept."""

import pytest
import torch

from consilience.core.samples import Modality
from consilience.methods import Spec, build
from consilience.methods.progressive.progressive import progressive
from methods.progressive.foreign import made, stir
from toy_batches import CLASSES, batch_of

MODALITIES = {"image": Modality("image", "image", (1, 8, 8)), "audio": Modality("audio", "vector", (2,))}


def passes_of(loop, inputs, norm):
    """What a batch norm saw in each pass: (mean, variance) over batch and positions."""
    seen = []
    handle = norm.register_forward_pre_hook(lambda norm, given: seen.append(given[0].detach()))
    loop(*inputs)
    handle.remove()
    return [(one.mean((0, 2, 3)), one.var((0, 2, 3))) for one in seen]


@pytest.mark.parametrize(("statistics", "kept"), [("first", 0), ("last", 2)])
def test_one_pass_updates_the_running_statistics(statistics, kept):
    _, loop, inputs = made("plain", steps=3, statistics=statistics)
    stir(loop).train()
    norm = loop.base.sight[1]
    mean, variance = passes_of(loop, inputs, norm)[kept]
    torch.testing.assert_close(norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance)
    assert norm.num_batches_tracked == 1
    assert norm.track_running_stats


def test_every_pass_may_keep_its_own():
    _, loop, inputs = made("plain", steps=3, statistics="per-step")
    stir(loop).train()
    norm = loop.base.sight[1]
    found = passes_of(loop, inputs, norm)
    kept = [norm.running_mean, loop.norms.running_mean_0_1, loop.norms.running_mean_0_2]
    for (mean, _), running in zip(found, kept):
        torch.testing.assert_close(running, 0.1 * mean)
    assert len({tuple(one.tolist()) for one in kept}) == 3
    loop.eval()
    before = loop(*inputs)
    with torch.no_grad():
        loop.norms.running_mean_0_2 += 1.0
    assert not torch.allclose(loop(*inputs), before)
    assert norm.running_mean is kept[0]


def test_what_runs_once_keeps_what_it_saw():
    loop = stir(build("pro:concat", Spec(MODALITIES, CLASSES), {"into": {"image": "conv2"}})).train()
    stages = loop.encoders["image"].stages
    loop(batch_of(modalities=MODALITIES))
    assert [stages[name][1].num_batches_tracked.item() for name in ("conv1", "conv2")] == [1, 1]
    assert stages["conv1"][1].running_mean.any()


def test_a_reading_on_the_way_updates_nothing():
    loop = build("pro:concat", Spec(MODALITIES, CLASSES), {"step_loss": 1.0, "steps": 3, "statistics": "last"})
    loop.head = torch.nn.Sequential(torch.nn.BatchNorm1d(256), loop.head)
    loop.norms.norms = (*loop.norms.norms, loop.head[0])
    loop.norms.attach()
    loop.train()
    assert len(loop(batch_of(modalities=MODALITIES)).extra["readings"]) == 2
    assert loop.head[0].num_batches_tracked == 1


class Around(torch.nn.Module):
    """A model that contains a looped one."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.head = inner, torch.nn.Linear(2, 2)

    def forward(self, sound, sight):
        return self.head(self.inner(sound, sight))


def test_norms_of_an_inner_loop_stay_with_it():
    _, inner, inputs = made("plain", steps=2)
    norm = inner.base.sight[1]
    outer = progressive(Around(inner), encoders={"sound": "inner"}, fusion="inner", example=inputs)
    stir(outer).train()(*inputs)
    assert norm.num_batches_tracked == 2  # the first pass of the inner loop, in both passes of the outer one
    assert inner.norms.num_batches_tracked_0_1 == 2
    outer.remove()
    assert "forward" in vars(norm)
    inner.remove()
    assert "forward" not in vars(norm)
