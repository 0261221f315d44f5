import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Prediction
from consilience.training import Model, Trainer
from consilience.training.class_weights import weigh_classes
from training.toys import make_samples

SAMPLES = make_samples(60)
LABELS = np.array(["rare"] * 3 + ["common"] * 30 + ["some"] * 27)
NAMED = Samples.of(SAMPLES, y=LABELS)


def weigh(samples, class_weight):
    return weigh_classes(samples, Task.of(samples.y), class_weight)


def test_balanced_is_scikit_learns():
    np.testing.assert_allclose(weigh(NAMED, "balanced"), compute_sample_weight("balanced", LABELS))


def test_balanced_with_sample_weights_gives_every_class_the_same_total():
    weight = np.random.default_rng(0).random(60)
    found = weigh(Samples.of(NAMED, weight=weight), "balanced")
    totals = [found[label == LABELS].sum() for label in np.unique(LABELS)]
    np.testing.assert_allclose(totals, weight.sum() / 3)
    # Whole weights are repetitions: as scikit-learn weighs the repeated labels.
    times = np.random.default_rng(1).integers(1, 4, size=60)
    per_class = compute_class_weight("balanced", classes=np.unique(LABELS), y=np.repeat(LABELS, times))
    expected = times * per_class[np.searchsorted(np.unique(LABELS), LABELS)]
    np.testing.assert_allclose(weigh(Samples.of(NAMED, weight=times), "balanced"), expected)


def test_a_class_that_weighs_nothing_does_not_divide_by_zero():
    found = weigh(Samples.of(NAMED, weight=LABELS != "rare"), "balanced")
    assert (found[LABELS == "rare"] == 0).all()
    assert np.isfinite(found).all()


def test_a_mapping_multiplies():
    weight = np.random.default_rng(0).random(60)
    found = weigh(Samples.of(NAMED, weight=weight), {"rare": 5, "common": 0.5})
    expected = weight * np.select([LABELS == "rare", LABELS == "common"], [5.0, 0.5], 1.0)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(weigh(SAMPLES, {np.int64(1): 2.0}), np.where(SAMPLES.y == 1, 2.0, 1.0))


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("balance", "class_weight must be 'balanced'"),
        ({"rear": 2}, "names 'rear', which is not a class; the classes are .*'rare'"),
        ({"rare": -1}, "class_weight of 'rare' must be a number ≥ 0"),
        ({"rare": float("nan")}, "class_weight of 'rare' must be a number ≥ 0"),
    ],
)
def test_wrong_class_weights(class_weight, message):
    with pytest.raises(InputError, match=message):
        weigh(NAMED, class_weight)


def test_a_regression_has_no_classes():
    numbers = make_samples(20, regression=True)
    with pytest.raises(InputError, match="a regression has no classes"):
        Model.fit("concat", numbers, class_weight="balanced")


def test_class_weights_reach_training():
    plain, weighted = (
        Model.fit("concat", NAMED, class_weight=one, trainer=Trainer(epochs=2, device="cpu"))
        for one in (None, {"rare": 50.0})
    )
    rare = plain.task.classes.tolist().index("rare")
    odds = [model.predict(NAMED, device="cpu").output.softmax(1)[:, rare].mean() for model in (plain, weighted)]
    assert odds[1] > 2 * odds[0]
    assert NAMED.weight is None


@pytest.mark.parametrize("settings", [{"dropout": 0.0}, {"dropout": 0.5}])
def test_the_seed_decides_everything(settings):
    torch.manual_seed(5)
    first, second, other = (
        Model.fit("concat", SAMPLES, settings=settings, trainer=Trainer(epochs=1, seed=seed, device="cpu"))
        for seed in (0, 0, 1)
    )
    outputs = [model.predict(SAMPLES, device="cpu").output for model in (first, second, other)]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_a_trainer_can_serve_several_models():
    trainer = Trainer(epochs=1, device="cpu")
    first = Model.fit("late", SAMPLES, trainer=trainer)
    second = Model.fit("best-unimodal", SAMPLES, SAMPLES, trainer=trainer)
    assert (len(first.logs), len(second.logs), trainer.logs, trainer.preparation) == (1, 2, [], None)
    assert not trainer._loaders


def test_errors_come_before_training():
    bare = Samples.of(dict(SAMPLES.values))
    for given, error, message in [
        ({"train": bare}, InputError, "the training samples have no y"),
        ({"validation": bare}, InputError, "the validation samples have no y"),
        ({"name": "conct"}, UnknownNameError, "did you mean 'concat'"),
        ({"settings": {"wdth": 3}}, UnknownNameError, "did you mean 'width'"),
        ({"encoders": {"c": "mlp"}}, UnknownNameError, "unknown modality 'c'"),
        ({"name": "late-probs", "task": "regression"}, UnsupportedError, "serves classification, not regression"),
    ]:
        arguments = {"name": "concat", "train": SAMPLES, "trainer": Trainer(epochs=1, device="cpu"), **given}
        with pytest.raises(error, match=message):
            Model.fit(**arguments)


def test_predictions_have_all_a_method_has():
    model = Model.fit("late", SAMPLES, trainer=Trainer(epochs=1, device="cpu"))
    prediction = model.predict(SAMPLES[:7], device="cpu")
    assert prediction.output.shape == (7, 3)
    assert prediction.opinions.shape == (7, 2, 3)
    assert prediction.weights.tolist() == [[0.5, 0.5]] * 7
    assert not prediction.output.requires_grad
    joint = Model.fit("concat", SAMPLES, settings={"width": 9}, trainer=Trainer(epochs=1, device="cpu"))
    assert joint.predict(SAMPLES[:7], device="cpu").joint.shape == (7, 9)


def test_the_reference_is_the_training_sets_spread():
    model = Model.fit("late", SAMPLES, trainer=Trainer(epochs=1, device="cpu"))
    statistics = model.reference()["a"]
    np.testing.assert_allclose(statistics.std, SAMPLES["a"].std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(statistics.low, SAMPLES["a"].min(axis=0))
    np.testing.assert_allclose(statistics.high, SAMPLES["a"].max(axis=0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_output_that_is_not_finite_is_an_error(value):
    model = Model.fit("late", SAMPLES, None, trainer=Trainer(epochs=1, device="cpu"))
    with torch.no_grad():
        for expert in model.method.parameters():
            expert.fill_(value)
    with pytest.raises(
        InputError, match=r"prediction: the output of method 'late' is not finite in rows 0, 1, .*too large"
    ):
        model.predict(SAMPLES[:3], device="cpu")


def test_a_class_may_be_excluded_but_not_all_of_them():
    class Excludes(torch.nn.Module):
        def forward(self, batch):
            return Prediction(torch.tensor([[0.0, -torch.inf]] * len(batch.present)))

    model = Model.fit("late", SAMPLES, None, trainer=Trainer(epochs=1, device="cpu"))
    model.method = Excludes()
    assert model.predict(SAMPLES[:2], device="cpu").output.isneginf().sum() == 2
