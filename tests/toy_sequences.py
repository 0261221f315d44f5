"""Batches with time steps made by hand: padding that holds garbage, as long as one likes, and missing modalities."""

import torch

from consilience import methods
from consilience.core.batches import Batch
from consilience.core.samples import Modality
from toy_batches import CLASSES

TIMED = {
    "sound": Modality("sound", "sequence", (6, 3)),
    "motion": Modality("motion", "sequence", (4, 2)),
    "title": Modality("title", "tokens", (5,), vocabulary=9),
}
MIXED = {
    **TIMED,
    "still": Modality("still", "vector", (4,)),
    "image": Modality("image", "image", (1, 16, 16)),
}
LENGTHS = {"sound": [6, 2, 3, 1], "motion": [4, 4, 1, 2], "title": [5, 1, 2, 3]}
SOME = [[True, True, False, True, True], [False, True, True, False, False], [True] * 5, [False] * 5]


def build(name, modalities, encoders=None, **settings):
    torch.manual_seed(0)
    return methods.build(name, methods.Spec(modalities, CLASSES, encoders or {}), settings).eval()


def timed_batch(modalities, present=None, padding=0):
    """Four samples; `padding` more steps than the modality has, all holding garbage."""
    generator = torch.Generator().manual_seed(1)
    there = torch.ones(4, len(modalities), dtype=torch.bool) if present is None else torch.tensor(present)
    values, lengths = {}, {}
    for (name, modality), column in zip(modalities.items(), there.T):
        x = torch.randn(4, *modality.shape, generator=generator)
        if modality.kind == "tokens":
            x = torch.randint(1, modality.vocabulary, (4, *modality.shape), generator=generator)
        if modality.timed:
            lengths[name] = torch.tensor(LENGTHS[name]) * column
            x = torch.cat([x, x.new_full((4, padding, *x.shape[2:]), 7)], dim=1)
            x[torch.arange(x.shape[1]) >= lengths[name][:, None]] = 7
        x[~column] = 0
        values[name] = x
    return Batch(
        values,
        there,
        index=torch.arange(4),
        weight=torch.ones(4),
        lengths=lengths,
        y=torch.tensor([0, 1, 2, 0]),
        complete=frozenset(values) if present is None else frozenset(),
    )


def columns(modalities):
    """Who is present in part of the `MIXED` modalities, sample 1 and 3 of them with little or nothing."""
    names = list(MIXED)
    return [[row[names.index(name)] for name in modalities] for row in SOME]


def check_padding_and_company(method, modalities):
    """Neither padding nor what others in the batch have changes a sample's output."""
    present = columns(modalities)
    together = method(timed_batch(modalities, present)).output
    assert together.isfinite().all()
    torch.testing.assert_close(method(timed_batch(modalities, present, padding=3)).output, together)
    for row in range(4):
        alone = timed_batch(modalities, present).select(torch.tensor([row]))
        torch.testing.assert_close(method(alone).output[0], together[row])


def check_loop(name, modalities, **settings):
    """`pro:NAME` starts as the base method to the last bit, and every link gets a gradient."""
    base, looped = build(name, modalities, **settings), build(f"pro:{name}", modalities, **settings)
    for present in (None, columns(modalities)):
        batch = timed_batch(modalities, present)
        prediction = looped(batch)
        assert torch.equal(prediction.output, base(batch).output)
        looped.zero_grad()
        torch.stack(list(looped.objective(prediction, batch, methods.Step()).values())).sum().backward()
        assert all(weight.grad.isfinite().all() and weight.grad.any() for weight in looped.link_parameters())
