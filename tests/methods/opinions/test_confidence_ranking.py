import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.methods.opinions.confidence_ranking import RANKINGS, ranking_loss


def sign(x):
    return int(x > 0) - int(x < 0)


def by_hand(form, w_i, w_j, k_i, k_j):
    s = sign(k_i - k_j)
    if form == "reference":
        return max(0.0, s * (w_i - w_j) - abs(k_i - k_j))
    if form == "paper":
        return max(0.0, sign(w_i - w_j) * (k_i - k_j) + abs(w_i - w_j))
    return max(0.0, s * (w_i - w_j) + abs(k_i - k_j))


@pytest.mark.parametrize("form", RANKINGS)
@given(seed=st.integers(0, 1000), batch=st.integers(1, 7))
@settings(deadline=None, max_examples=25)
def test_every_form_against_a_loop_over_pairs(form, seed, batch):
    random = np.random.default_rng(seed)
    w, kappa = np.round(random.normal(size=(2, batch, 3)), 1)  # rounded, so that some are equal
    known = random.random((batch, 3)) < 0.7
    weight = random.integers(0, 3, size=batch).astype(float)
    expected = 0.0
    for m in range(3):
        total = counted = 0.0
        for i in range(batch):
            j = (i + 1) % batch
            if known[i, m] and known[j, m]:
                total += min(weight[i], weight[j]) * by_hand(form, w[i, m], w[j, m], kappa[i, m], kappa[j, m])
                counted += min(weight[i], weight[j])
        expected += total / counted if counted else 0.0
    found = ranking_loss(form, *map(torch.tensor, (w, kappa, known, weight)))
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_the_reference_form_is_the_margin_ranking_loss_of_the_published_code():
    random = np.random.default_rng(0)
    w, kappa = torch.tensor(random.random((2, 20)))
    target = torch.sign(kappa - kappa.roll(-1))
    published = torch.nn.functional.margin_ranking_loss(
        w, w.roll(-1) + (kappa - kappa.roll(-1)).abs() / target, -target
    )
    everyone = torch.ones(20, 1, dtype=torch.bool)
    found = ranking_loss("reference", w[:, None], kappa[:, None], everyone, torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(found, published)


def test_only_the_margin_form_drives_equal_weights_apart():
    gaps = {}
    for form, function in RANKINGS.items():
        gap = torch.zeros(1, requires_grad=True)
        function(gap, torch.tensor([0.5])).sum().backward()
        gaps[form] = gap.grad.item()
    assert gaps == {"reference": 0.0, "paper": 0.0, "margin": 1.0}  # descent makes the harder sample weigh less
