"""Groups and times in what an estimator holds out: the validation share and every cross-fitting."""

import numpy as np
import pytest

import consilience as cs
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.estimators import hold_out_rows
from consilience.estimators.hold_out import hold_out_unlabelled
from consilience.evaluation import evaluate
from consilience.methods.opinions import unimodal
from consilience.training import lockstep, trainer
from consilience.training.trainer import split_folds

PEOPLE, EACH = 40, 10


def recordings(seed=0, own=4.0):
    """Repeated recordings of people, whose own values say nothing of the class of others."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(PEOPLE), EACH)
    y = rng.integers(0, 2, PEOPLE)[person]
    values = own * rng.normal(size=(PEOPLE, 6))[person] + rng.normal(size=(len(y), 6)) * 0.3
    values[:, [0, 3]] += 2 * y[:, None]
    return {"voice": values[:, :3], "walk": values[:, 3:]}, y, person


def log_loss(model, X, y):
    return evaluate("classification", y, model.predict(X), model.predict_proba(X), classes=model.classes_)["nll"]


@pytest.mark.parametrize("seed", range(3))
def test_the_validation_share_is_of_whole_groups(seed):
    X, y, person = recordings()
    held = hold_out_rows(Samples.of(X, y, group=person), 0.2, "classification", seed)
    assert not set(person[held]) & set(person[~held])
    assert held.mean() == pytest.approx(0.2, abs=0.1)
    assert set(y[~held]) == {0, 1}


def test_the_validation_share_is_the_latest_with_times():
    X, y, _ = recordings()
    time = np.random.default_rng(0).permutation(len(y))
    held = hold_out_rows(Samples.of(X, y, time=time), 0.1, "classification", 0)
    assert set(time[held]) == set(range(360, 400))


def test_samples_of_weight_0_are_not_held_out_with_groups():
    X, y, person = recordings()
    weight = (np.arange(len(y)) % 2).astype(float)
    held = hold_out_rows(Samples.of(X, y, group=person, weight=weight), 0.2, "classification", 0)
    assert held.any()
    assert weight[held].all()


def test_unlabelled_samples_are_held_out_by_whole_groups_too():
    X, _, person = recordings()
    held = hold_out_unlabelled(Samples.of(X, group=person), 0.2, 0)
    assert not set(person[held]) & set(person[~held])
    assert held.mean() == pytest.approx(0.2, abs=0.1)
    before = np.random.default_rng(3).permutation(400) < 80
    assert (hold_out_unlabelled(Samples.of(X), 0.2, 3) == before).all()


def test_groups_of_one_class_each_are_trained_on_without_validation():
    X, _, person = recordings()
    y = person // (PEOPLE // 2)
    with pytest.raises(InputError, match=r"only one with some class.*set validation=None, which holds no samples out"):
        cs.FusionClassifier("late", epochs=1).fit(X, y, groups=y)
    assert cs.FusionClassifier("late", epochs=1, validation=None).fit(X, y, groups=y).score(X, y) > 0


def test_without_groups_the_share_is_drawn_as_before():
    X, y, person = recordings()
    plain = hold_out_rows(Samples.of(X, y), 0.2, "classification", 0)
    assert len(set(person[plain]) & set(person[~plain])) > PEOPLE / 2


@pytest.mark.parametrize("folds", [3, 5])
def test_cross_fitting_holds_out_whole_groups_or_blocks(folds):
    X, y, person = recordings()
    task = Task.of(y, "classification")
    fold_of = split_folds(Samples.of(X, y, group=person), task, folds, 0)
    assert all(len(set(fold_of[person == each])) == 1 for each in range(PEOPLE))
    in_time = split_folds(Samples.of(X, y, time=np.arange(len(y))), task, folds, 0)
    assert (np.diff(in_time) != 0).sum() == folds - 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bayes", "bayes-robust"])
def test_random_folds_leak_and_whole_groups_do_not(method):
    """Cross-fitted experts that know the people are far too sure of others; with groups they are not."""
    (X, y, person), (others, truth, _) = recordings(), recordings(seed=1)
    settings = {"epochs": 15, "random_state": 0, "encoders": None}
    leaking = cs.FusionClassifier(method, **settings).fit(X, y)
    grouped = cs.FusionClassifier(method, **settings).fit(X, y, groups=person)
    assert log_loss(grouped, others, truth) < log_loss(leaking, others, truth) - 0.1


@pytest.mark.slow
def test_calibration_by_folds_trains_on_other_groups(monkeypatch):
    from consilience.estimators import fusion

    X, y, person = recordings()
    seen = []
    fit = fusion.Model.fit.__func__

    def spy(cls, name, train, validation=None, **given):
        seen.append((train.group, None if validation is None else validation.group))
        return fit(cls, name, train, validation, **given)

    monkeypatch.setattr(fusion.Model, "fit", classmethod(spy))
    cs.FusionClassifier("late", epochs=1, calibration=3).fit(X, y, groups=person)
    assert len(seen) == 4
    # The folds are of the people that the model learned from.
    for train, validation in seen:
        assert not set(train) & set(validation)
    folds = [set(train) | set(validation) for train, validation in seen[1:]]
    assert all(sum(each in fold for fold in folds) == 2 for each in seen[0][0])


@pytest.mark.parametrize("given", [{}, {"impute": "m2vae"}, {"class_weight": "balanced"}])
@pytest.mark.parametrize("stacks", [True, False])
def test_a_refit_keeps_groups_together_in_its_own_folds(monkeypatch, given, stacks):
    """Folds in lockstep, and of copies that are trained one after another."""
    X, y, person = recordings()
    seen = []

    def spy(samples, task, folds, seed):
        fold_of = split_folds(samples, task, folds, seed)
        seen.append((samples.group, fold_of))
        return fold_of

    for module in (lockstep, trainer):
        monkeypatch.setattr(module, "split_folds", spy)
    monkeypatch.setattr(unimodal, "reason_alone", lockstep.reason_alone if stacks else lambda *_: "it is to be alone")
    settings = {"method": "bayes", "settings": {"folds": 3}, "steps": 5, "encoders": None, "device": "cpu"}
    model = cs.FusionClassifier(**settings, refit=True, **given).fit(X, y, groups=person)
    assert model.model_.rows == len(y)
    assert len(seen) == 2 * (1 if stacks and not given.get("impute") else 2)  # of two experts, and once more of a refit
    for group, fold_of in seen:
        assert all(len(set(fold_of[group == each])) == 1 for each in set(group))
    for group, _ in seen[-2:]:  # of the model that is kept, which learned from everyone
        assert len(group) == len(y)
        assert len(set(group)) == PEOPLE


def test_groups_of_samples_are_used_without_being_passed_again():
    X, y, person = recordings()
    one = cs.FusionClassifier("late", epochs=1).fit(X, y, groups=person)
    other = cs.FusionClassifier("late", epochs=1).fit(Samples.of(X, y, group=person))
    assert (one.predict_proba(X) == other.predict_proba(X)).all()


def test_bad_groups_are_refused():
    X, y, person = recordings()
    with pytest.raises(InputError, match="groups have 399 rows, the samples have 400"):
        cs.FusionClassifier("late").fit(X, y, groups=person[:-1])
    with pytest.raises(InputError, match="needs at least 2 groups, there are 1"):
        cs.FusionClassifier("late").fit(X, y, groups=np.zeros(400, int))
