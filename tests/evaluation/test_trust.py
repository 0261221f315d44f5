"""Trust from weights, and how well it tracks who is right, against SciPy, scikit-learn and brute force."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import pearsonr
from sklearn.metrics import roc_auc_score

from consilience.core.errors import InputError
from consilience.evaluation import trust_from_weights, trust_quality

weights_and_present = st.tuples(st.integers(1, 6), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(arrays(np.float64, shape, elements=st.floats(-1e308, 1e308)), arrays(np.bool_, shape))
)


@given(weights_and_present)
def test_trust_is_a_share_of_what_is_present(drawn):
    weights, present = drawn
    trust = trust_from_weights(weights, present)
    assert trust.dtype == np.float64
    assert (trust >= 0).all()
    assert (trust[~present] == 0).all()
    assert trust.sum(axis=1) == pytest.approx(present.any(axis=1).astype(float))


@given(weights_and_present)
def test_trust_agrees_with_a_loop(drawn):
    weights, present = drawn
    weights = weights / 1e300
    for row, there, trust in zip(weights, present, trust_from_weights(weights, present)):
        kept = [max(w, 0.0) if p else 0.0 for w, p in zip(row, there)]
        total = sum(kept)
        expected = [k / total for k in kept] if total else [p / max(sum(there), 1) for p in there]
        assert trust == pytest.approx(np.array(expected, dtype=float))


def test_missing_weights_may_be_anything_and_torch_stays_torch():
    weights = torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), -1.0, -2.0], [1.0, 1.0, 1.0]])
    present = torch.tensor([[True, False, True], [False, True, True], [False, False, False]])
    trust = trust_from_weights(weights, present)
    assert isinstance(trust, torch.Tensor)
    assert trust.dtype == torch.float32
    assert trust.tolist() == [[0.25, 0, 0.75], [0, 0.5, 0.5], [0, 0, 0]]
    assert trust_from_weights(weights.numpy(), present.numpy()).tolist() == trust.tolist()


def test_read_only_arrays_are_read_without_a_warning():
    weights, present = np.array([[1.0, 3.0]]), np.array([[True, True]])
    weights.flags.writeable = present.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trust_from_weights(weights, present).tolist() == [[0.25, 0.75]]


def test_trust_keeps_leading_dimensions_and_gradients():
    weights = torch.rand(2, 3, 4, requires_grad=True)
    trust = trust_from_weights(weights)
    assert trust.shape == (2, 3, 4)
    trust[..., 0].sum().backward()
    assert weights.grad is not None
    assert weights.grad.isfinite().all()
    assert weights.grad.abs().sum() > 0


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"present modalities must be finite .row 1"):
        trust_from_weights(np.array([[1.0, 2.0], [np.nan, 1.0]]))
    with pytest.raises(InputError, match=r"\[2, 2\], got \[2, 1\]"):
        trust_from_weights(np.ones((2, 2)), np.ones((2, 1), bool))


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_quality_agrees_with_scipy_and_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    losses = rng.exponential(size=(80, 3))
    weights = np.round(rng.normal(size=(80, 3)) - 0.5 * losses, 1)  # rounded, so that there are ties
    present, corrupted = rng.random((80, 3)) < 0.8, rng.random((80, 3)) < 0.5
    trust = trust_from_weights(weights, present)
    hidden = np.where(present, weights, np.nan), np.where(present, losses, np.nan)
    quality = trust_quality(*hidden, present, corrupted=corrupted, names=["a", "b", "c"])
    for m in range(3):
        seen = present[:, m]
        assert quality.correlation[m] == pytest.approx(pearsonr(weights[seen, m], losses[seen, m]).statistic)
        assert quality.auc[m] == pytest.approx(roc_auc_score(~corrupted[seen, m], trust[seen, m]))
    assert quality.pooled_auc == pytest.approx(roc_auc_score(~corrupted[present], trust[present]))


def test_perfect_trust_and_its_opposite():
    corrupted = np.array([[True, False], [False, True], [True, False], [False, True]])
    losses = np.where(corrupted, 2.0, 0.1)
    good = trust_quality(1.0 - corrupted, losses, corrupted=corrupted)
    assert good.correlation == pytest.approx([-1, -1])
    assert good.auc.tolist() == [1, 1]
    assert good.pooled_auc == 1
    bad = trust_quality(torch.tensor(corrupted, dtype=torch.float32), losses, corrupted=corrupted)
    assert bad.correlation == pytest.approx([1, 1])
    assert bad.pooled_auc == 0


def test_what_does_not_exist_is_nan():
    losses = np.random.default_rng(0).random((5, 3))
    present = np.array([[True, True, False]] * 5)
    quality = trust_quality(np.ones((5, 3)), losses, present, corrupted=np.zeros((5, 3), bool))
    assert np.isnan(quality.correlation).all()
    assert np.isnan(quality.auc).all()
    assert np.isnan(quality.pooled_auc)
    thirds = np.float32([1 / 3, 1 / 3, np.nextafter(np.float32(1 / 3), 1), 1 / 3, 1 / 3])  # a constant but for rounding
    assert np.isnan(trust_quality(np.stack([thirds] * 3, axis=1), losses).correlation).all()


def test_the_table_has_one_row_a_modality():
    losses = np.random.default_rng(0).random((5, 2))
    assert trust_quality(-losses, losses).table().columns == ["modality", "correlation"]
    corrupted = losses > np.median(losses, axis=0)
    table = trust_quality(1 - losses, losses, corrupted=corrupted, names=["image", "audio"]).table()
    assert table["modality"].to_list() == ["image", "audio"]
    assert table["correlation"].to_list() == pytest.approx([-1, -1])
    assert table.columns[-1] == "auc"


def test_quality_refuses_what_does_not_fit():
    ones = np.ones((4, 2))
    with pytest.raises(InputError, match=r"losses must have the weights' shape .*\[4, 2\], got \[4, 3\]"):
        trust_quality(ones, np.ones((4, 3)))
    with pytest.raises(InputError, match="2 modalities but there are 1 names"):
        trust_quality(ones, ones, names=["image"])
    with pytest.raises(InputError, match=r"weights must have shape \[n, modality\], got \[4\]"):
        trust_quality(np.ones(4), np.ones(4))
    broken = ones.copy()
    broken[2, 1] = np.nan
    with pytest.raises(InputError, match=r"losses of audio contain NaN or infinity .row 2"):
        trust_quality(ones, broken, names=["image", "audio"])
