"""The correction of imputed values: a ridge regression of residuals, chosen on held-out samples."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from consilience import MultimodalVAE, load
from consilience.core.errors import SavedModelError
from consilience.methods.latent import residual_regression
from consilience.methods.latent.residual_regression import ResidualRegression, _pairs
from methods.latent.latent_toys import batch_of, model_of

MIXED = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]]


def shared(n, seed, noise=0.1):
    """Two modalities with six causes in common, more than the latent of these tests has dimensions."""
    mixing = np.random.default_rng(0).normal(size=(2, 6, 8)) / 6**0.5
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(n, 6))
    values = {name: causes @ part + noise * rng.normal(size=(n, 8)) for name, part in zip("ab", mixing)}
    return {name: (50 + 10 * part).astype(np.float32) for name, part in values.items()}


def fitted(X, features, **settings):
    model = MultimodalVAE(latent=1, steps=150, device="cpu", residual_features=features, **settings)
    return model.fit(X)


def error(model, test):
    made = model.impute({"a": test["a"]})["b"]
    return float(np.sqrt(np.mean((made - test["b"]) ** 2)))


def test_details_that_the_latent_leaves_out_are_imputed(tmp_path):
    train, test = shared(800, 1), shared(200, 2)
    alone, corrected = fitted(train, 0), fitted(train, 300)
    linear = Ridge(1.0).fit(train["a"], train["b"]).predict(test["a"])
    best = float(np.sqrt(np.mean((linear - test["b"]) ** 2)))
    assert error(corrected, test) < 0.6 * error(alone, test)
    assert error(corrected, test) > best  # the toy is linear: nothing beats this here
    given = {"a": test["a"]}
    np.testing.assert_array_equal(corrected.generate(["b"], given)["b"], alone.generate(["b"], given)["b"])
    both = corrected.impute(test)
    np.testing.assert_array_equal(both["b"], test["b"])
    again = load(corrected.save(tmp_path / "model"))
    assert again.residual_features == 300
    np.testing.assert_allclose(again.impute({"a": test["a"]})["b"], corrected.impute({"a": test["a"]})["b"], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::consilience.core.errors.CollapseWarning")
def test_nothing_is_corrected_where_that_does_not_help_held_out_samples():
    rng = np.random.default_rng(3)
    X = {name: rng.normal(size=(60, 5)).astype(np.float32) for name in "ab"}
    model = fitted(X, 200, validation={name: rng.normal(size=(300, 5)).astype(np.float32) for name in "ab"})
    assert not model.trained_.residuals.weights
    alone = fitted(X, 0, validation=None)
    assert alone.trained_.residuals is None


def test_weights_are_those_of_ridge_regression(monkeypatch):
    """On the residuals of all pairs of a sample and a proper subset of what it has, by scikit-learn."""
    monkeypatch.setattr(residual_regression, "PENALTIES", (0.25,))
    model = model_of(3)
    present = torch.tensor(MIXED, dtype=torch.bool).repeat(30, 1)
    train, held_out = batch_of(3, present=present[:80]), batch_of(3, present=present[80:], seed=2)
    made = ResidualRegression.fit(model, train, held_out, 16, seed=0)
    made.weights = {}
    rows = {name: ([], []) for name in "abc"}
    samples = [part.select(torch.tensor([row])) for part in (train, held_out) for row in range(len(part))]
    for one in samples:
        there = [place for place in range(3) if one.present[0, place]]
        for size in range(1, len(there)):
            for given in itertools.combinations(there, size):
                mask = torch.tensor([[place in given for place in range(3)]])
                with torch.no_grad():
                    z = model.encode(one, mask[None]).mean[0]
                    for place in set(there) - set(given):
                        name = "abc"[place]
                        rows[name][0].append(made.features(one, mask)[0].numpy())
                        rows[name][1].append((one[name] - model.decoders[name](z))[0].numpy())
    learned = made._sums(model, train, _pairs(train, torch.Generator()), "abc")
    held = made._sums(model, held_out, _pairs(held_out, torch.Generator()), "abc")
    for name, (features, residuals) in rows.items():
        gram, both, squares = (first + second for first, second in zip(learned[name], held[name]))
        found = residual_regression._solved(gram, both, 0.25)
        wanted = Ridge(0.25, fit_intercept=False).fit(np.stack(features), np.stack(residuals)).coef_.T
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-4)
        assert squares.item() == pytest.approx(np.square(np.stack(residuals)).sum(), rel=1e-5)


def test_only_what_is_missing_is_corrected():
    model, batch = model_of(3), batch_of(3, present=[*MIXED, [0, 0, 0]])
    made = ResidualRegression.fit(model, batch_of(3, 40), batch_of(3, 20), 8, seed=0)
    made.weights = {name: torch.ones(8, batch[name].shape[1]) for name in "ab"}
    added = made.corrections(batch, "abc")
    assert list(added) == ["a", "b"]
    for place, name in enumerate("ab"):
        missing = torch.tensor([not row[place] and any(row) for row in [*MIXED, [0, 0, 0]]])
        assert torch.equal(added[name].abs().sum(1) > 0, missing)


def test_features_make_a_mixture_of_gaussian_kernels():
    rng = torch.Generator().manual_seed(0)
    batch = batch_of(3, 30)
    made = ResidualRegression._draw(list("abc"), batch, _pairs(batch, rng), 10**6, rng)
    assert len(made.phases) == 30 * 6  # no more features than pairs
    wide = ResidualRegression(made.names, made.centre, torch.randn(10, 60_000, generator=rng), torch.rand(60_000), {})
    wide.phases *= 2 * torch.pi
    one = wide.features(batch, batch.present)
    read = wide._read(batch, batch.present)
    kernel = (-0.5 * torch.cdist(read, read).square()).exp()
    assert (one @ one.T - kernel).abs().max() < 0.04


def test_pairs_are_proper_subsets_of_what_a_sample_has():
    batch = batch_of(3, present=MIXED)
    rows, given = _pairs(batch, torch.Generator().manual_seed(0))
    assert (given <= batch.present[rows]).all()
    assert given.any(1).all()
    assert (given.sum(1) < batch.present[rows].sum(1)).all()
    assert 3 not in rows  # it has one modality
    assert len(rows) == len(torch.cat([rows[:, None], given], dim=1).unique(dim=0)) == 6 + 2 + 2


def test_damaged_tensors_are_refused(tmp_path):
    train = shared(100, 1)
    model = fitted(train, 20)
    tensors, described = model.trained_.state()
    tensors["residuals.phases"] = tensors["residuals.phases"][:-1]
    with pytest.raises(SavedModelError, match="do not fit together"):
        type(model.trained_).from_state(tensors, described)
