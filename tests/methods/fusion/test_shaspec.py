"""`shaspec`: shared and specific features, what replaces a missing one, and the two losses, sample by sample."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.methods import Spec, Step
from consilience.methods.fusion.shaspec import Shaspec
from toy_batches import CLASSES, VECTORS, batch_of

SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False]])


def parts_of(method, batch):
    """The shared and the specific features of each modality by the equations: two of `[batch, modality, width]`."""
    encoded = {name: encoder(batch[name]).pooled for name, encoder in method.encoders.items()}
    shared = [method.shared(method.align[name](h)) for name, h in encoded.items()]
    specific = [method.specific[name](h) for name, h in encoded.items()]
    return torch.stack(shared, dim=1), torch.stack(specific, dim=1)


def test_a_missing_modality_is_the_mean_of_the_shared_features():
    method = Shaspec(Spec(VECTORS, CLASSES), width=6).eval()
    batch = batch_of(4, SOME)
    r, s = parts_of(method, batch)
    rows = []
    for i, there in enumerate(SOME):
        present = [m for m in range(2) if there[m]]
        mean = r[i, present].mean(0) if present else torch.zeros(6)
        f = [method.fusion.mix(torch.cat([r[i, m], s[i, m]])) + r[i, m] if m in present else mean for m in range(2)]
        rows.append(torch.cat(f))
    prediction = method(batch)
    torch.testing.assert_close(prediction.joint, torch.stack(rows), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(prediction.output, method.head(torch.stack(rows)), rtol=1e-4, atol=1e-5)


def test_the_losses_by_hand():
    weight = [1.0, 2.0, 0.5, 3.0]
    batch = batch_of(4, SOME, weight=weight)
    method = Shaspec(Spec(VECTORS, CLASSES), width=6, alignment=0.7, domain=0.3).eval()
    losses = method.objective(method(batch), batch, Step())
    r, s = parts_of(method, batch)
    apart = (r[:, 0] - r[:, 1]).abs().mean(1) * SOME.all(1)
    told = []
    for i, there in enumerate(SOME):
        own = [
            functional.cross_entropy(method.which(s[i, m])[None], torch.tensor([m])).item()
            for m in range(2)
            if there[m]
        ]
        told.append(np.mean(own) if own else 0.0)
    assert losses["alignment"].item() == pytest.approx(0.7 * np.average(apart.detach(), weights=weight), rel=1e-4)
    assert losses["domain"].item() == pytest.approx(0.3 * np.average(told, weights=weight), rel=1e-4)


def test_training_brings_shared_features_together_and_specific_ones_apart():
    torch.manual_seed(0)
    batch = batch_of(64)
    method = Shaspec(Spec(VECTORS, CLASSES), alignment=1.0, domain=1.0, dropout=0.0)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
    found = []
    for _ in range(40):
        losses = method.objective(method(batch), batch, Step())
        found.append((losses["alignment"].item(), losses["domain"].item()))
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
    assert found[-1][0] < 0.5 * found[0][0]
    assert found[-1][1] < 0.1 * found[0][1]
