import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

import consilience as cs
from consilience import methods
from consilience.core.errors import ConsilienceError, InputError, SavedModelError, TrustWarning, UnsupportedError
from consilience.core.samples import Modality, Samples
from consilience.core.targets import Task
from consilience.encoders import build_encoder
from consilience.methods import Spec
from consilience.methods.baselines.joined_columns import Baseline
from consilience.methods.opinions.bayes import Bayes
from consilience.methods.opinions.tree_expert import TreeExpert, TreeOpinion, training_seconds
from consilience.methods.opinions.unimodal import BestUnimodal, Unimodal
from consilience.preparation import Preparation
from consilience.training import Model, Trainer, load_model
from contracts.contract import some_missing
from resealed_models import reseal
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

KINDS = ("extra", "boosted")
TREES = {"extra": {"name": "trees", "trees": 20}, "boosted": {"name": "trees", "kind": "boosted", "trees": 10}}
SEPARATE = ("unimodal:a", "best-unimodal", "bayes", "bayes-robust")


def samples_of(n=160, seed=0, classes=3):
    """Two modalities whose class depends on a product, which no linear expert finds, and one of another kind."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(n, 4)), random.normal(size=(n, 3))
    score = a[:, 0] * a[:, 1] + 0.5 * b[:, 0]
    y = np.searchsorted(np.linspace(-0.6, 0.6, classes - 1), score)
    return Samples.of({"a": a, "b": b}, y)


def fit(name, samples, encoder, validation=None, **training):
    encoders = {"a": encoder} if name != "bayes-robust" else {"a": encoder, "b": encoder}
    trainer = Trainer(**{"epochs": 2, "device": "cpu", **training})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        return Model.fit(name, samples, validation, encoders=encoders, trainer=trainer)


def outputs(model, samples):
    return model.predict(samples, device="cpu").output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 4])
def test_the_opinion_is_that_of_scikit_learn(kind, classes):
    train, test = samples_of(classes=classes), samples_of(50, 1, classes=classes)
    model = fit("unimodal:a", train, TREES[kind])
    assert isinstance(model.method, TreeExpert)
    x, new = (model.preparation.batch(part)["a"].numpy() for part in (train, test))
    if kind == "extra":
        alone = ExtraTreesClassifier(20, min_samples_leaf=2, random_state=0).fit(x, train.y)
        mixed = 2 * classes / (20 + 2 * classes)
    else:
        alone = HistGradientBoostingClassifier(
            max_iter=10,
            max_leaf_nodes=8,
            min_samples_leaf=10,
            l2_regularization=1,
            max_features=0.3,
            early_stopping=False,
            random_state=0,
        ).fit(x, train.y)
        mixed = 1 / (len(train) + 1)
    shares = (np.bincount(train.y) + 1 / classes) / (len(train) + 1)
    expected = (1 - mixed) * alone.predict_proba(new) + mixed * shares
    np.testing.assert_allclose(outputs(model, test).softmax(dim=1).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_modality_an_expert_knows_the_class_shares(kind):
    train = some_missing(samples_of())
    model = fit("unimodal:a", train, TREES[kind])
    here = train.present_in("a")
    shares = (np.bincount(train.y[here]) + 1 / 3) / (here.sum() + 1)
    output = outputs(model, train)
    np.testing.assert_allclose(output[~here].exp().numpy(), np.tile(shares, ((~here).sum(), 1)), rtol=1e-5)
    garbage = train.replaced({"a": np.where(here[:, None], train["a"], np.nan)})
    assert torch.equal(outputs(model, garbage), output)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SEPARATE)
def test_methods_with_separate_experts(name, kind, tmp_path):
    """What the contract asks of every method: it learns, seeds, missing modalities, batches, saving, copies."""
    train, validation, test = samples_of(), samples_of(60, 1), samples_of(80, 2)
    model = fit(name, train, TREES[kind], validation)
    whole = outputs(model, test)
    experts = [model.method] if name == "unimodal:a" else list(model.method.experts.values())
    assert isinstance(experts[0], TreeExpert)
    assert (model.task.decode(whole.numpy()) == test.y).mean() > 0.5
    assert torch.equal(outputs(fit(name, train, TREES[kind], validation), test), whole)
    assert not torch.equal(outputs(fit(name, train, TREES[kind], validation, seed=1), test), whole)
    order = np.random.default_rng(0).permutation(len(test))
    torch.testing.assert_close(outputs(model, test[order]), whole[order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.predict(test, batch_size=7, device="cpu").output, whole, rtol=1e-5, atol=1e-5)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), whole)
    assert torch.equal(outputs(pickle.loads(pickle.dumps(model)), test), whole)
    assert torch.equal(outputs(copy.deepcopy(model), test), whole)
    missing = outputs(fit(name, some_missing(train), TREES[kind], validation), some_missing(test, seed=1))
    assert torch.isfinite(missing).all()
    nothing = test.replaced({}, present=np.zeros_like(test.present))
    assert torch.isfinite(outputs(model, nothing)).all()


@pytest.mark.parametrize("precision", ["64", "bf16", "bf16-true"])
def test_other_precisions(precision, tmp_path):
    model = fit("best-unimodal", samples_of(), TREES["extra"], precision=precision)
    test = samples_of(40, 1)
    plain = fit("unimodal:a", samples_of(), TREES["extra"])
    opinion = model.predict(test, device="cpu").opinions[:, 0]
    torch.testing.assert_close(opinion.float(), outputs(plain, test), rtol=0, atol=1e-5)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), outputs(model, test))


def test_the_estimator_saves_trees(tmp_path):
    data = cs.load_data("digits")
    encoders = {data.train.names[0]: "trees", data.train.names[1]: {"name": "trees", "kind": "boosted", "trees": 5}}
    model = cs.FusionClassifier("bayes", encoders=encoders, epochs=2, random_state=0).fit(data.train[:200])
    expected = model.predict_proba(data.test)
    again = cs.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(data.test), expected)
    assert np.array_equal(again.predict_set(data.test[:20]), model.predict_set(data.test[:20]))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_count_as_copies_of_samples(kind):
    """Classes of weight 0 are unknown, and only the ratios of weights matter."""
    train, test = samples_of(), samples_of(50, 1)
    weight = np.where(train.y == 1, 0.0, 2.0)
    one, other = (
        fit("unimodal:a", Samples.of(train, weight=weight * scale), TREES[kind], seed=3) for scale in (1.0, 50.0)
    )
    torch.testing.assert_close(outputs(one, test), outputs(other, test), rtol=1e-5, atol=1e-5)
    # The statistics of standardisation do not depend on weights.
    assert (outputs(one, test).softmax(dim=1)[:, 1] < 0.02).all()
    heavy = Model.fit(
        "unimodal:a",
        train,
        encoders={"a": TREES[kind]},
        class_weight={1: 20.0},
        trainer=Trainer(device="cpu"),
    )
    plain = fit("unimodal:a", train, TREES[kind])
    assert (outputs(heavy, test).argmax(1) == 1).sum() > (outputs(plain, test).argmax(1) == 1).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_with_few_samples(kind):
    """Some folds have none of them: the class keeps a small probability."""
    train = samples_of()
    y = train.y.copy()
    y[:2] = 7
    model = fit("bayes", Samples.of(train, y), TREES[kind])
    output = outputs(model, train)
    assert torch.isfinite(output).all()
    opinion = TreeOpinion(2, 4)
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    settings = build_encoder(VECTORS["audio"], TREES[kind], needs_features=False)
    opinion.fit(x, np.where(x[:, 0] > 0, 3, 1), np.ones(40), settings, seed=0)
    p = opinion(torch.from_numpy(x)).exp()
    torch.testing.assert_close(p.sum(dim=1), torch.ones(40, dtype=torch.float64))
    assert (p > 0).all()
    assert (p[:, [0, 2]] < 0.1).all()
    assert (p.argmax(1).numpy() == np.where(x[:, 0] > 0, 3, 1)).mean() > 0.9
    alone = opinion.fit(x, np.full(40, 2), np.ones(40), settings, seed=0)(torch.from_numpy(x)).exp()
    np.testing.assert_allclose(alone[0].numpy(), (np.array([0, 0, 40, 0]) + 0.25) / 41, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_modality_that_no_sample_of_a_fold_has(kind):
    train = samples_of()
    present = np.column_stack([np.isin(np.arange(len(train)), [5, 6]), np.ones(len(train), bool)])
    model = fit("bayes", train.replaced({}, present=present), TREES[kind])
    assert torch.isfinite(outputs(model, samples_of(30, 1))).all()


def test_noise_of_training_reaches_the_trees():
    train, test = samples_of(), samples_of(50, 1)
    plain, noisy = (fit("unimodal:a", train, TREES["extra"], augment=augment) for augment in (None, "gaussian:0..1"))
    assert not torch.equal(outputs(plain, test), outputs(noisy, test))
    elsewhere = fit("unimodal:a", train, TREES["extra"], augment={"b": "gaussian:0..1"})
    assert torch.isfinite(outputs(elsewhere, test)).all()


def test_the_log_of_trees_is_one_epoch():
    train, validation = samples_of(), samples_of(60, 1)
    model = fit("best-unimodal", train, TREES["extra"], validation)
    (row,) = model.logs[0].rows
    assert row["task"] < row["validation_loss"]
    expected = torch.nn.functional.cross_entropy(
        model.predict(validation, device="cpu").opinions[:, 0], torch.from_numpy(validation.y)
    )
    assert row["validation_loss"] == pytest.approx(float(expected), rel=1e-5)


def test_an_interruption_keeps_what_was_trained(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TreeOpinion, "fit", interrupt)
    model = fit("bayes", samples_of(), TREES["extra"])
    assert model.logs[0].interrupted
    with pytest.raises(KeyboardInterrupt):
        fit("bayes", samples_of(), TREES["extra"], on_interrupt="raise")


def test_methods_that_need_features_refuse_trees():
    spec = Spec(VECTORS, CLASSES, {"audio": "trees"})
    refused = 0
    for name, cls in methods.registry().items():
        full = name if not name.endswith(":") else name + next(iter(cls.arguments(VECTORS)))
        if cls.takes_trees or issubclass(cls, Baseline):  # which builds no encoder
            methods.build(full, spec)
            continue
        with pytest.raises(ConsilienceError) as caught:
            methods.build(full, spec)
        refused += "'trees' of modality 'audio' gives an opinion and no features" in str(caught.value)
    assert refused > 10
    message = (
        r"method 'concat' cannot be used here: the encoder 'trees' of modality 'audio' gives an opinion and no "
        r"features to train through. Methods with separate experts take it: "
        r"auto, bayes, bayes-robust, best-unimodal, unimodal:NAME"
    )
    with pytest.raises(UnsupportedError, match=message):
        methods.build("concat", spec)
    with pytest.raises(UnsupportedError, match="only methods that train their experts one by one"):
        build_encoder(VECTORS["audio"], "trees")


def test_regression_and_other_kinds_are_refused():
    for name in ("unimodal:audio", "bayes", "late"):
        with pytest.raises(UnsupportedError, match="'trees' of modality 'audio' serves classification, not regression"):
            methods.build(name, Spec(VECTORS, NUMBERS, {"audio": "trees"}))
    with pytest.raises(UnsupportedError, match="serves classification"):
        Bayes(Spec(VECTORS, NUMBERS, {"audio": "trees"}))
    image = {"photo": Modality("photo", "image", (1, 8, 8))}
    with pytest.raises(UnsupportedError, match="'trees' cannot read modality photo"):
        Unimodal(Spec(image, CLASSES, {"photo": "trees"}), "photo")


@pytest.mark.parametrize(
    "settings", [{"kind": "forest"}, {"trees": 0}, {"leaf": 0}, {"features": 1.5}, {"rate": 0}, {"leaves": 1}]
)
def test_settings_are_checked(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        BestUnimodal(Spec(VECTORS, CLASSES, {"audio": {"name": "trees", **settings}}))


def test_before_training_every_class_is_equally_probable():
    method = BestUnimodal(Spec(VECTORS, CLASSES, {"audio": "trees"})).eval()
    torch.testing.assert_close(method.experts["audio"](batch_of(4)).output.exp(), torch.full((4, 3), 1 / 3))


CHANGES = {
    "opinion.seen": lambda value: value + 1,
    "opinion.trees.child": lambda value: value.flip(0).contiguous(),
    "opinion.trees.feature": lambda value: value + 100,
    "opinion.trees.baseline": lambda value: value[:1],
    "opinion.log_prior": lambda value: value[:1],
    "opinion.mixed": lambda value: value[None],
    "opinion.trees.root": lambda value: value - 5,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CHANGES)
def test_changed_files_are_refused(name, kind, tmp_path):
    folder = fit("unimodal:a", samples_of(), TREES[kind]).save(tmp_path / "model")
    weights = load_file(folder / "weights.safetensors")
    weights["method." + name] = CHANGES[name](weights["method." + name])
    save_file(weights, folder / "weights.safetensors")
    with pytest.raises(SavedModelError, match="damaged"):
        load_model(reseal(folder))


def test_trees_find_what_a_linear_expert_does_not():
    train, test = samples_of(400), samples_of(300, 1)
    trees = fit("unimodal:a", train, "trees")
    linear = fit("unimodal:a", train, {"name": "mlp", "hidden": []}, epochs=30, lr=0.01)
    accuracy = [(outputs(model, test).argmax(1).numpy() == test.y).mean() for model in (trees, linear)]
    assert accuracy[0] > accuracy[1] + 0.1


def test_the_cost_grows_with_rows_features_and_classes():
    base = training_seconds("boosted", rows=1000, features=50, classes=10)
    assert training_seconds("boosted", rows=1000, features=50, classes=100) > 5 * base
    assert training_seconds("boosted", rows=10_000, features=500, classes=10) > 5 * base
    assert training_seconds("boosted", rows=1000, features=50, classes=2) < base / 4
    assert training_seconds("extra", rows=1000, features=50, classes=10) < base


def test_preparation_is_that_of_other_experts():
    """Trees see standardised values, so that a shift and a scale of the input change nothing but rounding."""
    train, test = samples_of(), samples_of(50, 1)
    moved = [part.replaced({"a": part["a"] * 4 + 8}) for part in (train, test)]
    one, other = fit("unimodal:a", train, TREES["extra"]), fit("unimodal:a", moved[0], TREES["extra"])
    difference = (outputs(one, test) - outputs(other, moved[1])).abs()
    assert difference.median() < 1e-5
    preparation = Preparation.fit(train, Task.of(train.y))
    assert preparation.batch(train)["a"].mean().abs() < 1e-5
