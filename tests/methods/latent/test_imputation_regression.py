"""The regression that shares in imputed values, as far as held-out samples say."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from consilience import MultimodalVAE, load
from consilience.core.errors import SavedModelError
from consilience.methods.latent import imputation_regression
from consilience.methods.latent.imputation_regression import ImputationRegression, Sums, _pairs
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
    model = MultimodalVAE(latent=1, steps=150, device="cpu", regression_features=features, **settings)
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
    assert best < error(corrected, test) < 1.3 * best  # the toy is linear: nothing beats this here
    given = {"a": test["a"]}
    np.testing.assert_array_equal(corrected.generate(["b"], given)["b"], alone.generate(["b"], given)["b"])
    both = corrected.impute(test)
    np.testing.assert_array_equal(both["b"], test["b"])
    again = load(corrected.save(tmp_path / "model"))
    assert again.regression_features == 300
    np.testing.assert_allclose(again.impute({"a": test["a"]})["b"], corrected.impute({"a": test["a"]})["b"], rtol=1e-6)


def test_the_model_stays_alone_where_held_out_samples_say_so():
    """Nothing is better than expectations that are the values, and without held-out samples nobody can say."""
    ones = torch.ones(2, 1, dtype=torch.float64)
    sums = Sums(torch.eye(2, dtype=torch.float64), ones, ones, torch.full((3,), 5.0, dtype=torch.float64))
    assert imputation_regression._best(sums, sums, 10) is None
    wrong = sums._replace(expected=0 * ones, products=torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64))
    penalty, factors = imputation_regression._best(wrong, wrong, 10)
    assert penalty == min(imputation_regression.PENALTIES)
    assert factors[1] > 0.9
    assert fitted(shared(60, 1), 20, validation=None).trained_.regression is None


def test_what_is_learned_does_not_depend_on_how_many_modalities_are_learned_at_once(monkeypatch):
    model, present = model_of(3), torch.tensor(MIXED, dtype=torch.bool).repeat(30, 1)
    batch, held_out = batch_of(3, present=present), batch_of(3, 20)
    asked, sums = [], ImputationRegression._sums
    monkeypatch.setattr(ImputationRegression, "_sums", lambda *given: asked.append(given[-1]) or sums(*given))
    together = ImputationRegression.fit(model, batch, held_out, 16, seed=0)
    assert [list(names) for names in asked] == [list("abc")] * 2
    asked.clear()
    monkeypatch.setattr(imputation_regression, "SUMS_BYTES", 1)
    alone = ImputationRegression.fit(model, batch, held_out, 16, seed=0)
    assert [list(names) for names in asked] == [["a"], ["a"], ["b"], ["b"], ["c"], ["c"]]
    assert together.shares == alone.shares
    assert together.weights
    for name, weights in together.weights.items():
        torch.testing.assert_close(alone.weights[name], weights, rtol=0, atol=0)


def test_sums_are_those_of_ridge_regression():
    """On the values of all pairs of a sample and a proper subset of what it has, by scikit-learn."""
    model, present = model_of(3), torch.tensor(MIXED, dtype=torch.bool).repeat(30, 1)
    batch = batch_of(3, present=present)
    made = ImputationRegression.fit(model, batch, batch_of(3, 20), 16, seed=0)
    sums = made._sums(model, batch, _pairs(batch, torch.Generator()), "abc")
    rows = {name: ([], [], []) for name in "abc"}
    for row in range(len(batch)):
        one = batch.select(torch.tensor([row]))
        there = [place for place in range(3) if one.present[0, place]]
        for size in range(1, len(there)):
            for given in itertools.combinations(there, size):
                mask = torch.tensor([[place in given for place in range(3)]])
                z = model.encode(one, mask[None]).mean[0]
                for place in set(there) - set(given):
                    name = "abc"[place]
                    each = (made.features(one, mask)[0], one[name][0], model.decoders[name](z)[0].detach())
                    for kept, values in zip(rows[name], each):
                        kept.append(values.numpy())
    for centre, (name, parts) in zip(made._parts(made.centre), rows.items()):
        features, values, expected = map(np.stack, parts)
        values, expected = values - centre.numpy(), expected - centre.numpy()
        found = imputation_regression._solved(sums[name].gram, sums[name].values, 0.25)
        wanted = Ridge(0.25, fit_intercept=False, solver="svd").fit(features.astype(np.float64), values).coef_.T
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-4)
        of_all = [(values**2).sum(), (expected**2).sum(), (values * expected).sum()]
        np.testing.assert_allclose(sums[name].products.numpy(), of_all, rtol=1e-5)
        # The factors that are chosen have the least error, but for what holds them to the model alone.
        penalty, factors = imputation_regression._best(sums[name], sums[name], 10**9)
        predicted = [
            expected,
            *(
                features @ imputation_regression._solved(sums[name].gram, each, penalty).numpy()
                for each in sums[name][1:3]
            ),
        ]
        best = np.linalg.lstsq(np.stack([each.ravel() for each in predicted], axis=1), values.ravel(), rcond=None)[0]
        np.testing.assert_allclose(factors, best, atol=0.01)


def test_the_regression_shares_only_in_what_is_missing():
    model, batch = model_of(3), batch_of(3, present=[*MIXED, [0, 0, 0]])
    made = ImputationRegression.fit(model, batch_of(3, 40), batch_of(3, 20), 8, seed=0)
    made.weights = {name: torch.zeros(8 + 10, batch[name].shape[1]) for name in "ab"}
    made.shares = {"a": 0.25, "b": 1.0}
    expected = {name: torch.full_like(batch[name], 9.0) for name in "abc"}
    mixed, centres = made.combined(batch, expected), made._parts(made.centre)
    for place, name in enumerate("ab"):
        missing = torch.tensor([not row[place] and any(row) for row in [*MIXED, [0, 0, 0]]])
        wanted = centres[place].double() + made.shares[name] * (9 - centres[place].double())
        torch.testing.assert_close(mixed[name][missing], wanted.expand(int(missing.sum()), -1))
        assert (mixed[name][~missing] == 9).all()
    assert (mixed["c"] == 9).all()


def test_features_make_a_mixture_of_gaussian_kernels():
    rng = torch.Generator().manual_seed(0)
    batch = batch_of(3, 30)
    made = ImputationRegression._draw(list("abc"), batch, _pairs(batch, rng), 10**6, rng)
    assert len(made.phases) == 30 * 6  # no more features than pairs
    drawn = torch.randn(10, 60_000, generator=rng), 2 * torch.pi * torch.rand(60_000, generator=rng)
    wide = ImputationRegression(made.names, made.widths, made.centre, made.scale, *drawn, {}, {})
    one, read = wide.features(batch, batch.present).split([60_000, 10], dim=1)
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
    tensors["regression.phases"] = tensors["regression.phases"][:-1]
    with pytest.raises(SavedModelError, match="do not fit together"):
        type(model.trained_).from_state(tensors, described)
