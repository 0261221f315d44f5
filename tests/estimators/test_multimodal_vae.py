"""`MultimodalVAE`: every question it answers, in the user's units, for partly observed samples of every kind."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeCV
from torch import nn

from consilience import FusionClassifier, MultimodalVAE, Samples, load, load_data
from consilience.core.errors import (
    CollapseWarning,
    ConsilienceError,
    InputError,
    SavedModelError,
    UnknownNameError,
    UnsupportedError,
)
from consilience.methods.latent import default_networks
from consilience.methods.latent.subset_encoders import SetEncoder, TrunkEncoder

QUICK = {"epochs": 2, "batch_size": 32, "lr": 0.01, "device": "cpu", "latent": 3, "validation": None}


def made(n=60, seed=0):
    """Numbers, an image, a sequence, counts, bits and a category, all of one hidden number."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1))
    return {
        "numbers": 100 + 20 * (z + 0.1 * rng.normal(size=(n, 3))),
        "image": z[:, None, None] + 0.1 * rng.normal(size=(n, 1, 6, 6)),
        "sequence": z[:, None] + 0.1 * rng.normal(size=(n, 5, 2)),
        "counts": rng.poisson(np.exp(z + 1) * np.ones((1, 2))),
        "bits": (z + rng.normal(size=(n, 4)) > 0).astype(float),
        "words": ["low red" if one < 0 else "high blue thing" for one in z[:, 0]],
    }


@pytest.fixture(scope="module")
def everything():
    X = made()
    return X, MultimodalVAE(likelihoods={"counts": "poisson"}, subsets="chain", **QUICK).fit(X)


@pytest.fixture(scope="module")
def pair():
    """Two modalities, trained long enough for one to tell of the other."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(240, 1))
    X = {name: 100 + 20 * (z @ rng.normal(size=(1, 3)) + 0.3 * rng.normal(size=(240, 3))) for name in "ab"}
    return X, MultimodalVAE(**QUICK | {"epochs": 15}).fit(X)


def test_a_model_that_learned_nothing_says_so(pair):
    X, _ = pair
    with pytest.warns(CollapseWarning, match=r"has collapsed: after 20 epochs z holds 0\.000 nats"):
        MultimodalVAE(beta=1000.0, **QUICK | {"epochs": 20}).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        MultimodalVAE(**QUICK | {"epochs": 20}).fit(X)


def test_what_is_not_trained_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        MultimodalVAE().save(tmp_path / "model")


def test_every_kind_is_generated_as_it_came(everything):
    X, model = everything
    found = model.generate(given={"numbers": X["numbers"][:7]})
    assert {name: values.shape for name, values in found.items()} == {
        "numbers": (7, 3),
        "image": (7, 1, 6, 6),
        "sequence": (7, 5, 2),
        "counts": (7, 2),
        "bits": (7, 4),
        "words": (7,),
    }
    assert 60 < found["numbers"].mean() < 140
    assert ((found["bits"] >= 0) & (found["bits"] <= 1)).all()
    assert (found["counts"] > 0).all()
    assert all(isinstance(text, str) and text for text in found["words"])
    drawn = model.generate(["counts", "bits"], given={"numbers": X["numbers"][:7]}, samples=4)
    assert drawn["counts"].shape == (4, 7, 2)
    assert np.array_equal(drawn["counts"], np.round(drawn["counts"]))
    assert set(np.unique(drawn["bits"])) <= {0.0, 1.0}
    assert model.sample(3)["image"].shape == (3, 1, 6, 6)


def test_likelihoods_of_every_kind_are_finite(everything):
    X, model = everything
    part = {name: values[:9] for name, values in X.items()}
    for of, given in ((None, ()), (["counts", "words"], ["image"]), (["sequence"], ["bits", "numbers"])):
        found = model.estimate_log_likelihood(part, of, given, importance_samples=20)
        assert found.value.shape == (9,)
        assert torch.isfinite(found.value).all()
        assert (found.standard_error > 0).all()
        assert ((found.effective_samples >= 1) & (found.effective_samples <= 20 + 1e-6)).all()


def test_what_is_missing_changes_nothing_and_nothing_is_the_prior(everything):
    X, model = everything
    hidden = {"image": np.zeros(60, bool)}
    mean, variance = model.encode(X, present=hidden)
    without, _ = model.encode({name: values for name, values in X.items() if name != "image"})
    np.testing.assert_array_equal(mean, without)
    np.testing.assert_array_equal(mean, model.encode(X, given=[name for name in X if name != "image"])[0])
    assert (variance > 0).all()
    nothing = model.encode(X, given=[])
    assert (nothing[0] == 0).all()
    assert (nothing[1] == 1).all()


def test_units_change_likelihoods_by_their_volume(pair):
    X, model = pair
    scaled = {name: values / 20 for name, values in X.items()}
    other = MultimodalVAE(**QUICK | {"epochs": 15}).fit(scaled)
    ours = model.log_likelihood(X, importance_samples=50)
    theirs = other.log_likelihood(scaled, importance_samples=50)
    np.testing.assert_allclose(ours, theirs - 6 * math.log(20), rtol=1e-3, atol=1e-2)


def test_one_modality_tells_of_the_other(pair):
    X, model = pair
    spread = X["b"].std(axis=0).mean()
    assert model.generation_errors(X, ["b"], ["a"])["b"] < 0.8 * spread
    assert model.generation_errors(X, ["b"], [])["b"] > 0.9 * spread
    alone = model.log_likelihood(X, ["b"], importance_samples=100).mean()
    assert model.log_likelihood(X, ["b"], ["a"], importance_samples=100).mean() > alone + 0.5
    few = {name: values[:20] for name, values in X.items()}
    joint, first = (model.log_likelihood(few, of, importance_samples=2000).mean() for of in (None, ["a"]))
    assert joint == pytest.approx(
        first + model.log_likelihood(few, ["b"], ["a"], importance_samples=2000).mean(), abs=0.1
    )
    information = model.variation_of_information(X, "a", "b", importance_samples=100)
    conditional = [
        model.log_likelihood(X, [one], [other], importance_samples=100).mean() for one, other in ("ab", "ba")
    ]
    assert information.value == pytest.approx(-sum(conditional), abs=0.1)
    alone = {name: model.entropy(X, [name], importance_samples=100).value for name in "ab"}
    shared = model.mutual_information(X, "a", ["b"], importance_samples=100)
    assert shared.value == pytest.approx(alone["b"] + conditional[1], abs=0.1)  # H(B) - H(B|A)
    assert model.entropy(X, given=["a"], importance_samples=100).value == pytest.approx(-conditional[1], abs=0.1)
    assert information.value == pytest.approx(sum(alone.values()) - 2 * shared.value, abs=0.1)
    # With nothing given the learned posterior is the prior, so that both likelihoods are the same.
    both = [model.log_likelihood(few, ["b"], learned_posterior=learned).mean() for learned in (True, False)]
    assert both[0] == pytest.approx(both[1], abs=0.05)


def test_tensors_come_back_as_tensors(pair):
    X, model = pair
    given = {name: torch.tensor(values[:5], dtype=torch.float32) for name, values in X.items()}
    assert all(isinstance(one, torch.Tensor) for one in model.encode(given))
    assert isinstance(model.log_likelihood(given, importance_samples=5), torch.Tensor)
    assert isinstance(model.generate(["a"], given=given)["a"], torch.Tensor)


def test_seeds_reproduce_and_leave_the_global_state_alone(pair):
    X, model = pair
    state = torch.get_rng_state()
    again = MultimodalVAE(**QUICK | {"epochs": 15}).fit(X)
    np.testing.assert_array_equal(again.encode(X)[0], model.encode(X)[0])
    first, second = (model.generate(["a"], given=X, samples=2)["a"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_saving_keeps_every_number(everything, tmp_path):
    X, model = everything
    again = load(model.save(tmp_path / "model"))
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.encode(X)[0], model.encode(X)[0])
    np.testing.assert_array_equal(
        again.log_likelihood(X, importance_samples=3), model.log_likelihood(X, importance_samples=3)
    )


@pytest.mark.parametrize("subset_encoder", ["trunk", "own", "poe", "set"])
def test_an_encoder_alone_says_what_it_said_in_company(subset_encoder, tmp_path):
    X = {name: values for name, values in made().items() if name in ("numbers", "counts", "bits")}
    model = MultimodalVAE(likelihoods={"counts": "poisson"}, subset_encoder=subset_encoder, **QUICK).fit(X)
    encoder = load(model.export_encoder("counts", tmp_path / "encoder"))
    for mine, theirs in zip(encoder.encode(X["counts"]), model.encode(X, given=["counts"])):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_an_encoder_that_was_never_trained_alone_is_not_exported(tmp_path):
    model = MultimodalVAE("joint", **QUICK).fit({name: made()[name] for name in ("numbers", "bits")})
    with pytest.raises(UnsupportedError, match="no encoder for 'bits' alone"):
        model.export_encoder("bits", tmp_path / "encoder")


def test_modules_of_ones_own_are_asked_for_again(tmp_path):
    X = {name: made()[name] for name in ("numbers", "bits")}
    decoders = {"numbers": nn.Linear(3, 3)}
    model = MultimodalVAE(encoders={"bits": nn.Linear(4, 6)}, decoders=decoders, **QUICK).fit(X)
    path = model.save(tmp_path / "model")
    with pytest.raises(SavedModelError, match="encoders of your own for 'bits'"):
        load(path, decoders=decoders)
    with pytest.raises(SavedModelError, match="decoders of your own for 'numbers'"):
        load(path, encoders={"bits": nn.Linear(4, 6)})
    again = load(path, encoders={"bits": nn.Linear(4, 6)}, decoders={"numbers": nn.Linear(3, 3)})
    np.testing.assert_array_equal(again.generate(given=X)["numbers"], model.generate(given=X)["numbers"])


def test_pictures(everything):
    X, model = everything
    some, others = ({name: values[rows] for name, values in X.items()} for rows in (slice(3), slice(3, 6)))
    walk = model.interpolate(some, others, ["numbers"], steps=5)["numbers"]
    assert walk.shape == (3, 5, 3)
    ends = [model.generate(["numbers"], given=one)["numbers"] for one in (some, others)]
    np.testing.assert_allclose(walk[:, 0], ends[0], rtol=1e-5)
    np.testing.assert_allclose(walk[:, -1], ends[1], rtol=1e-5)
    assert len(model.interpolation_picture(some, others, "image", steps=4).axes) == 12
    assert len(model.traversal_picture(X, "words", dimensions=2, steps=3).axes) == 6
    with pytest.raises(InputError, match=r"dimension 3 is not among those of the latent, 0 … 2"):
        model.traversal_picture(X, "image", dimensions=[3])
    with pytest.raises(InputError, match="3 to start and 60 to end"):
        model.interpolate(some, X)


def test_coherence_and_probe(pair):
    X, model = pair
    y = (X["a"][:, 0] > 100).astype(int)
    samples = Samples.of(X, y)
    classifier = FusionClassifier("late", epochs=5, device="cpu").fit(samples)
    assert model.coherence(samples, classifier, ["b"], ["a"]) > 0.8
    blind = model.coherence(samples, classifier, ["b"], [], y)  # generated from nothing: always the same
    assert blind == pytest.approx(max(y.mean(), 1 - y.mean()), abs=0.2)
    assert model.linear_probe(samples[:180], samples[180:]) > 0.6


def test_imputation_keeps_what_is_there(pair):
    X, model = pair
    present = np.ones((240, 2), bool)
    present[:100, 0] = False
    present[100:110] = False
    filled = model.impute(Samples.of(X, np.arange(240)), present=present, draws=0)
    np.testing.assert_array_equal(filled["a"][110:], X["a"][110:])
    np.testing.assert_array_equal(filled["b"], X["b"])
    assert filled.present[:100].all()
    assert not filled.present[100:110].any()  # of nothing, nothing follows
    np.testing.assert_allclose(filled["a"][:100], model.generate(["a"], given={"b": X["b"][:100]})["a"], rtol=1e-5)
    whole = model.impute({"b": X["b"]})
    assert whole.names == ("a", "b")
    assert whole.present.all()
    assert filled.y is not None


def test_imputation_is_the_mean_over_draws_and_does_not_depend_on_other_samples(pair):
    X, model = pair
    given = {"b": X["b"][:40]}
    filled = model.impute(given, draws=4000)["a"]
    drawn = model.generate(["a"], given=given, samples=4000, noise=False)["a"].mean(axis=0)
    apart = model.generate(["a"], given=given)["a"]  # at the posterior's mean
    np.testing.assert_allclose(filled, drawn, atol=0.05 * drawn.std())
    assert np.abs(apart - drawn).mean() > 3 * np.abs(filled - drawn).mean()
    each = np.concatenate([model.impute({"b": X["b"][row : row + 1]})["a"] for row in range(40)])
    np.testing.assert_allclose(model.impute(given)["a"], each, rtol=1e-4, atol=1e-5)


def test_sequences_and_texts_are_filled(everything):
    X, model = everything
    present = {name: np.arange(60) >= 5 for name in ("sequence", "words")}
    filled = model.impute(X, present=present)
    assert (filled.lengths["sequence"] == 5).all()
    assert all(filled["words"][:5])
    assert list(filled["words"][5:]) == X["words"][5:]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"objective": "m2va"}, "did you mean 'm2vae'"),
        ({"objective": "mvae", "bound": "paper"}, "unknown setting 'bound'"),
        ({"latent": 0}, "latent must be a whole number ≥ 1"),
        ({"likelihoods": {"a": "bernoulli"}}, r"modality 'a' does not fit the likelihood 'bernoulli'.*\[0, 1\]"),
        ({"likelihoods": {"c": "gaussian"}}, "unknown modality 'c'"),
        ({"validation": 1.5}, "validation must be a share"),
        ({"epochs": 2, "training": {"epochs": 3}}, "'epochs' is given twice"),
    ],
)
def test_wrong_parameters(pair, changed, message):
    with pytest.raises(ConsilienceError, match=message):
        MultimodalVAE(**QUICK | changed).fit(pair[0])


def test_wrong_questions(pair):
    X, model = pair
    with pytest.raises(UnknownNameError, match="unknown modality 'c'"):
        model.generate(["c"], given=X)
    with pytest.raises(InputError, match="given=X"):
        model.generate(["a"])
    with pytest.raises(InputError, match="of must be a list, each a string or None, got 'a'"):
        model.log_likelihood(X, "a")
    with pytest.raises(InputError, match="beside those given"):
        model.log_likelihood(X, ["a"], ["a"])
    with pytest.raises(InputError, match="nothing of a in rows 0, 1"):
        model.log_likelihood(X, ["a"], present={"a": np.arange(240) > 1})
    with pytest.raises(InputError, match="importance_samples must be a whole number ≥ 1"):
        model.log_likelihood(X, importance_samples=0)
    with pytest.raises(InputError, match="at least 2 parts, each of modalities that no other has"):
        model.variation_of_information(X, "a", ["a"])
    with pytest.raises(InputError, match="at least 2 parts"):
        model.variation_of_information(X, "a")
    with pytest.raises(InputError, match="mutual_information needs parts"):
        model.mutual_information(X, "a", "b", given=["a"])
    with pytest.raises(UnknownNameError, match="unknown modality 'c'"):
        model.entropy(X, ["c"])
    with pytest.raises(InputError, match="every modality is missing"):
        MultimodalVAE(**QUICK).fit(X, present=np.arange(480).reshape(240, 2) > 5)


@pytest.mark.parametrize("row", [3, 117, 239])
def test_a_bad_row_has_the_users_number_though_some_are_held_out(row):
    X = made()
    present = np.arange(len(X["bits"]))[:, None] != row % len(X["bits"])
    with pytest.raises(InputError, match=rf"every modality is missing \(row {row % len(present)}\)"):
        MultimodalVAE(**QUICK).fit({"bits": X["bits"], "numbers": X["numbers"]}, present=np.tile(present, 2))
    X["bits"][row % len(present), 1] = 2
    with pytest.raises(InputError, match=rf"must lie in \[0, 1\], got 2 \(row {row % len(present)}\)"):
        MultimodalVAE(likelihoods={"bits": "bernoulli"}, **QUICK).fit({"bits": X["bits"], "numbers": X["numbers"]})


def test_a_column_of_classes_unseen_in_training(pair):
    X = {"a": pair[0]["a"], "kind": np.eye(3)[np.arange(240) % 3]}
    model = MultimodalVAE(likelihoods={"kind": "categorical"}, **QUICK).fit(X)
    np.testing.assert_allclose(model.generate(["kind"], given={"a": X["a"]})["kind"].sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(InputError, match="must be one-hot"):
        model.log_likelihood({"kind": np.zeros((2, 3))})


def test_too_many_subsets_are_refused():
    X = {f"m{place}": np.random.default_rng(place).normal(size=(20, 2)) for place in range(13)}
    with pytest.raises(UnsupportedError, match=r"13 modalities have 8191 subsets.*subsets='chain'"):
        MultimodalVAE(subsets="all", **QUICK).fit(X)
    MultimodalVAE(**QUICK | {"epochs": 1}).fit(X)


def test_the_defaults_are_the_tight_bound_on_chains_with_a_set_encoder():
    X = {name: values for name, values in made().items() if name in ("numbers", "counts")}
    model = MultimodalVAE(likelihoods={"counts": "poisson"}, **QUICK | {"epochs": 1}).fit(X).trained_.model
    assert model.criterion.tight
    assert model.criterion.subsets == "chain"
    assert isinstance(model.subset_encoder, SetEncoder)
    paper = {"bound": "paper", "subsets": "all", "subset_encoder": "trunk"}
    model = MultimodalVAE(likelihoods={"counts": "poisson"}, **paper, **QUICK | {"epochs": 1}).fit(X).trained_.model
    assert not model.criterion.tight
    assert model.criterion.subsets == "all"
    assert isinstance(model.subset_encoder, TrunkEncoder)


def test_a_saved_model_does_not_depend_on_the_default_networks(pair, tmp_path, monkeypatch):
    X, model = pair
    path = model.save(tmp_path / "model")
    for name in ("ENCODER", "DECODER"):
        monkeypatch.setattr(default_networks, name, {"name": "mlp", "hidden": [7]})
    again = load(path)
    np.testing.assert_array_equal(again.encode(X)[0], model.encode(X)[0])
    assert again.encoders["a"]["hidden"] == [256, 128]  # named, since it is no longer the default


def test_one_row_is_generated_as_among_others(pair):
    X, model = pair
    row = {"a": X["a"][3:4]}
    np.testing.assert_allclose(
        model.generate(["b"], given=row)["b"][0], model.generate(["b"], given={"a": X["a"]})["b"][3], rtol=1e-5
    )
    model.trained_.model.train()  # what a user may have done
    np.testing.assert_allclose(model.generate(["b"], given=row)["b"], model.generate(["b"], given=row)["b"])
    assert not model.trained_.model.training


@pytest.mark.slow
def test_with_few_samples_the_default_imputes_better_than_ridge_regression():
    data = load_data("digits")
    names, few = list(data.train.names), data.train[:200].without_targets()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        model = MultimodalVAE(device="cpu").fit(few)
    given, rest = names[:2], names[2:]

    def side_by_side(samples, chosen):
        return np.concatenate([samples[name] for name in chosen], axis=1)

    ridge = RidgeCV(np.logspace(-2, 6, 17)).fit(side_by_side(few, given), side_by_side(few, rest))
    truth = side_by_side(data.test, rest)
    error = np.mean((side_by_side(model.impute(data.test.only(given)), rest) - truth) ** 2)
    assert error < np.mean((ridge.predict(side_by_side(data.test, given)) - truth) ** 2)


@pytest.mark.slow
def test_more_evidence_helps():
    data = load_data("digits")
    names = list(data.train.names)
    model = MultimodalVAE(steps=1500, device="cpu").fit(data.train.without_targets())
    densities = [
        model.log_likelihood(data.test, names[3:], names[:count], importance_samples=60, learned_posterior=True)
        for count in range(4)
    ]
    # Medians: a pixel inked that is blank in all training samples costs thousands of nats.
    assert np.all(np.diff(np.median(densities, axis=1)) > 0)
