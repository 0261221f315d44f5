"""Trust diagnostics: against SciPy on what the model says, in words, with gaps, under noise, on every sort of model."""

import json
import math
import warnings

import numpy as np
import polars as pl
import pytest
import torch
from scipy.stats import pearsonr
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy

from consilience import BayesFusion, FusionClassifier, FusionRegressor, Samples, trust_diagnostics
from consilience.core.errors import InputError, UnsupportedError
from consilience.evaluation.diagnostics import diagnose
from consilience.evaluation.rademacher import head_complexity
from consilience.evaluation.trust import ExpertRecord
from consilience.training import Model, Trainer

QUICK = {"epochs": 8, "lr": 0.01, "batch_size": 64, "device": "cpu", "validation": None, "patience": None}
UNBOUNDED = {name: {"name": "mlp", "hidden": [16], "normalise": False} for name in ("image", "audio")}


def make(n=240, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    image = np.eye(3)[y] + rng.normal(scale=0.5, size=(n, 3))
    audio = np.eye(3)[y][:, ::-1] + rng.normal(scale=0.7, size=(n, 3))
    return {"image": image, "audio": audio}, np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module")
def data():
    return make(), make(seed=1)


@pytest.fixture(scope="module")
def qmf(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it fails under noise is what is tested here
        return FusionClassifier("qmf", encoders=UNBOUNDED, **QUICK).fit(*data[0])


def gappy(X):
    image = X["image"].copy()
    image[::3] = np.nan
    return {**X, "image": image}


def test_every_figure_is_that_of_its_definition(qmf, data):
    X, y = gappy(data[1][0]), data[1][1]
    found = trust_diagnostics(qmf, X, y)
    said = qmf.model_.predict(Samples.of(X))
    target = torch.tensor(np.searchsorted(["a", "b", "c"], y))
    own = np.stack([cross_entropy(said.opinions[:, m], target, reduction="none").numpy() for m in range(2)], axis=1)
    trust = qmf.trust(X)
    there = np.stack([~np.isnan(X["image"][:, 0]), np.ones(len(y), bool)], axis=1)
    equal = there / there.sum(axis=1, keepdims=True)
    for m, trusted in enumerate(found.modalities):
        rows = there[:, m]
        assert trusted.samples == rows.sum()
        assert trusted.share == pytest.approx(rows.mean())
        weights = said.weights.numpy()[rows, m]
        assert trusted.correlation.r == pytest.approx(pearsonr(weights, own[rows, m]).statistic, abs=1e-5)
        assert trusted.trust_correlation.r == pytest.approx(pearsonr(trust[rows, m], own[rows, m]).statistic, abs=1e-5)
        assert trusted.weight == pytest.approx(weights.mean(), rel=1e-5)
        assert (trusted.trust, trusted.static_trust) == pytest.approx((trust[rows, m].mean(), equal[rows, m].mean()))
        assert trusted.loss == pytest.approx(own[rows, m].mean(), rel=1e-5)
        assert trusted.covariance == pytest.approx(np.cov(weights, own[rows, m], ddof=0)[0, 1], abs=1e-6)
        assert trusted.trust_covariance == pytest.approx(np.cov(trust[rows, m], own[rows, m], ddof=0)[0, 1], abs=1e-6)
    w = said.weights.double().numpy() * there
    assert found.term_loss + found.term_covariance == pytest.approx((w * own).sum(axis=1).mean(), rel=1e-5)
    of_trust = ((trust - equal) * own * there).sum(axis=1).mean()
    assert sum(trusted.trust_gap for trusted in found.modalities) == pytest.approx(of_trust, abs=1e-6)
    assert found.loss == pytest.approx(cross_entropy(said.output, target).item(), rel=1e-5)
    means = np.where(there[:, :1], w[there[:, 0]].mean(axis=0), w[~there[:, 0]].mean(axis=0))
    static = torch.einsum("nm,nmc->nc", torch.tensor(means), said.opinions.double())
    assert found.static_loss == pytest.approx(cross_entropy(static, target).item(), rel=1e-5)
    short = [np.maximum(1 - total.sum(axis=1), 0).mean() * math.log(3) for total in (w, means)]
    assert found.sum_bound.total == pytest.approx((w * own).sum(axis=1).mean() + short[0], rel=1e-5)
    moving = ((w - means) * own * there).sum(axis=1).mean()
    assert found.gap == pytest.approx(moving + short[0] - short[1], abs=1e-6)


def test_weights_that_rise_with_the_noise_are_found_out(qmf, data):
    clean = trust_diagnostics(qmf, *data[1])
    noisy = trust_diagnostics(qmf, *data[1], corruption="gaussian", level=10)
    assert clean.meets_condition
    assert clean.verdict.startswith("meets theorem 2's condition (r ≤ 0) on all 2 modalities")
    assert noisy.meets_condition is False
    assert {modality.reading for modality in noisy.modalities} == {"fails"}
    r = noisy.modalities[1].correlation.r
    assert f"on audio r = +{r:.2f} (" in noisy.verdict
    assert "): this method trusts them more when they are wrong. Theorem 1 does not bound its loss" in noisy.verdict
    measured = noisy.comparison
    assert f"its loss is {noisy.loss:.3f}, with static weights {noisy.static_loss:.3f}; each at its" in noisy.verdict
    assert noisy.verdict.endswith(f"temperature, {measured.best_loss:.3f} and {measured.best_static_loss:.3f}.")
    assert clean.gap < 0
    assert f"{-clean.gap:.3f} lower than with static weights of the same means: Term-Cov is −" in clean.verdict
    assert (noisy.corruption, noisy.level) == ("gaussian", 10.0)
    again = trust_diagnostics(qmf, *data[1], corruption="gaussian", level=10, random_state=1)
    assert again.modalities[1].correlation.r != r
    assert trust_diagnostics(qmf, *data[1], corruption="gaussian", level=10).to_dict() == noisy.to_dict()


@pytest.mark.parametrize("X", [lambda X: X, gappy], ids=["whole", "with gaps"])
def test_static_weights_have_no_correlation_and_are_not_nan(data, X):
    model = FusionClassifier("late", **{**QUICK, "epochs": 1}).fit(*data[0])
    found = trust_diagnostics(model, X(data[1][0]), data[1][1])
    assert found.meets_condition is None
    assert found.verdict.startswith("the weights are static: they do not depend on what a sample looks like")
    table = found.table()
    assert table["r"].to_list() == [None, None]
    assert set(table["reading"]) == {"static: no correlation"}
    assert abs(found.gap) < 1e-9
    assert "static" in str(found)
    assert "nan" not in str(found).lower() + json.dumps(found.to_dict()).lower()


def test_the_whole_bound_is_made_of_its_terms(qmf, data):
    train = Samples.of(data[0][0], data[0][1])
    found = trust_diagnostics(qmf, *data[1], train=train, delta=0.1)
    assert found.to_dict() == trust_diagnostics(qmf, *data[1], train=data[0], delta=0.1).to_dict()
    learned = trust_diagnostics(qmf, *data[0])
    mean = np.array([modality.weight for modality in found.modalities])
    bound = found.bound
    assert bound.loss == pytest.approx(mean @ [modality.loss for modality in learned.modalities])
    assert bound.shortfall == found.sum_bound.shortfall
    parts = bound.loss + bound.complexity + bound.covariance + bound.confidence + bound.shortfall
    assert bound.total == pytest.approx(parts)
    assert bound.covariance == pytest.approx(found.term_covariance)
    assert bound.confidence == pytest.approx(2 * math.sqrt(math.log(10) / (2 * 240)))
    assert bound.guessing == pytest.approx(math.log(3))
    method, batch = qmf.model_.method, qmf.model_.preparation.batch(train)
    each = [
        head_complexity(method.encoders[name](batch[name]).pooled, method.heads[name].weight, method.heads[name].bias)
        for name in ("image", "audio")
    ]
    assert bound.complexity == pytest.approx(mean @ [complexity.estimate for complexity in each], rel=1e-5)
    assert found.verdict.endswith(f"{bound.words[1:]}.")


def test_the_bound_is_given_where_the_output_is_a_weighted_sum_only(data):
    (X, y), test = data
    quick = {**QUICK, "epochs": 1}
    for method in ("late", "qmf", "pdf"):
        found = trust_diagnostics(FusionClassifier(method, **quick).fit(X, y), *test)
        assert found.no_bound is None
        assert found.loss <= found.sum_bound.total
        assert "Its output is Σ w·f, whose loss theorem 1 bounds by" in found.verdict
    for method in ("tmc", "bayes", "late-probs"):
        model = FusionClassifier(method, **quick).fit(X, y)
        found = trust_diagnostics(model, *test)
        assert (found.sum_bound, found.gap) == (None, None)
        assert "Theorem 1 does not bound its loss: its output is not the weighted sum" in found.verdict
        assert found.to_dict()["sum_bound"] is None
    tmc = FusionClassifier("tmc", **quick).fit(X, y)
    with pytest.raises(UnsupportedError, match=r"eq\. 2 does not bound the loss of 'tmc': its output is not"):
        trust_diagnostics(tmc, *test, train=data[0])


def test_negative_weights_have_no_bound(data):
    settings = {"beta": -0.4}
    model = FusionClassifier("qmf", settings=settings, **{**QUICK, "epochs": 1}).fit(*data[0])
    found = trust_diagnostics(model, *data[1])
    below = (model.full_prediction(data[1][0]).weights < 0).any(axis=1).sum()
    assert found.no_bound.startswith(f"a weight is below 0 in {below} of 240 samples")
    assert found.sum_bound is None


def test_every_sort_of_model_is_read(data, qmf, tmp_path):
    (X, y), (X_test, y_test) = data
    wanted = trust_diagnostics(qmf, X_test, y_test).to_dict()
    assert trust_diagnostics(qmf.model_, X_test, y_test).to_dict() == wanted
    assert trust_diagnostics(qmf.model_, Samples.of(X_test, y_test)).to_dict() == wanted
    bayes = BayesFusion(experts=LogisticRegression(), reliability="auto").fit(X, y)
    heard = trust_diagnostics(bayes, X_test, y_test, level=10, reference=X)
    assert [modality.reading for modality in heard.modalities] == ["meets", "meets"]
    experts = {name: bayes.experts_[name].predict_log_proba(X_test[name]) for name in X_test}
    column = np.searchsorted(["a", "b", "c"], y_test)
    assert trust_diagnostics(bayes, X_test, y_test).modalities[0].loss == pytest.approx(
        -experts["image"][np.arange(len(y_test)), column].mean(), rel=1e-6
    )
    opinions = BayesFusion(classes=["c", "a", "b"]).fit({n: x[:, [2, 0, 1]] for n, x in experts.items()}, y_test)
    given = trust_diagnostics(opinions, {name: x[:, [2, 0, 1]] for name, x in experts.items()}, y_test)
    assert given.modalities[0].loss == pytest.approx(-experts["image"][np.arange(len(y_test)), column].mean(), rel=1e-6)


def test_an_expert_that_rules_out_the_truth_has_a_finite_loss():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    opinions = {name: np.stack([-2.0 * y, 2.0 * y], axis=1) + rng.normal(size=(60, 2)) for name in "ab"}
    model = BayesFusion().fit(opinions, y)
    opinions["a"][3, y[3]] = -np.inf
    found = trust_diagnostics(model, opinions, y)
    assert 1 < found.modalities[0].loss < 5
    assert np.isfinite(found.loss)


def test_a_regression_is_measured_by_squared_errors(data):
    X = data[0][0]
    y = 100 + 10 * X["image"][:, 0]
    model = FusionRegressor("late", **{**QUICK, "epochs": 1}).fit(X, y)
    found = trust_diagnostics(model, X, y)
    said = model.model_.predict(Samples.of(X)).opinions.double().numpy()[:, :, 0]
    standardised = (y - y.mean()) / y.std()
    assert [modality.loss for modality in found.modalities] == pytest.approx(
        ((said - standardised[:, None]) ** 2).mean(axis=0)
    )
    with pytest.raises(UnsupportedError, match="for classifiers whose experts have linear heads"):
        trust_diagnostics(model, X, y, train=(X, y))


@pytest.mark.parametrize(
    ("method", "said"),
    [("concat", "and 'concat' has no weights and no opinions of single modalities: use a method that joins opinions")],
)
def test_methods_without_weights_are_refused_in_a_sentence(data, method, said):
    with pytest.raises(UnsupportedError, match=said):
        trust_diagnostics(FusionClassifier(method, **{**QUICK, "epochs": 1}).fit(*data[0]), *data[1])
    model = Model.fit(method, Samples.of(*data[0]), trainer=Trainer(epochs=1, device="cpu"))
    with pytest.raises(UnsupportedError, match=said):
        trust_diagnostics(model, *data[1])


def test_what_does_not_fit_is_refused(qmf, data):
    X, y = data[1]
    for call, said in (
        (lambda: trust_diagnostics(qmf, X), "need the targets of X, and the samples carry none"),
        (lambda: trust_diagnostics(qmf, X, y[:-1]), "there are 239 targets but 240 samples"),
        (lambda: trust_diagnostics(qmf, X, y, level=-1), "level must be a number ≥ 0, got -1"),
        (lambda: trust_diagnostics(qmf, X, y, confidence=95), "confidence must be a number > 0 and < 1, got 95"),
        (lambda: trust_diagnostics(qmf, X, y, clip=True), "clip belongs to a corruption; give a level above 0"),
        (lambda: trust_diagnostics(LogisticRegression(), X, y), "read a fitted FusionClassifier.*LogisticRegression"),
        (lambda: trust_diagnostics(qmf, {"image": np.full((3, 3), np.nan)}, y[:3]), "at least one modality"),
        (lambda: trust_diagnostics(qmf, X, y, train=X), r"train must be Samples with y, or a pair \(X, y\), got dict"),
        (lambda: trust_diagnostics(qmf, X, y, train=Samples.of(X)), "need the targets of train"),
    ):
        with pytest.raises(InputError, match=said):
            call()


def record(weights, losses, present=None):
    weights, losses = np.asarray(weights, float), np.asarray(losses, float)
    there = np.ones(weights.shape, bool) if present is None else np.asarray(present)
    names = tuple("abcde"[: weights.shape[1]])
    return ExpertRecord(names, weights, losses, there, losses.mean(axis=1), summed=True, guessing=math.log(2))


def test_the_verdict_tells_the_cases_apart():
    rng = np.random.default_rng(0)
    loss, n = rng.exponential(size=200), 200
    wrong, right = loss + rng.normal(size=n), -loss + 10
    unrelated = rng.normal(size=n)
    unrelated -= np.cov(unrelated, loss, ddof=0)[0, 1] / loss.var() * loss
    drift = 10 + unrelated / unrelated.std() + 0.05 * loss / loss.std()
    found = diagnose(record(np.stack([right, wrong, drift, np.full(n, 0.5)], 1), np.repeat(loss[:, None], 4, axis=1)))
    assert [modality.reading for modality in found.modalities] == ["meets", "fails", "chance", "static"]
    assert found.verdict.startswith(
        "meets theorem 2's condition (r ≤ 0) on 1 of 3 modalities with a correlation; on b r"
    )
    assert "this method trusts b more when it is wrong; on c r = +" in found.verdict
    assert "which chance explains; on d its weights are static." in found.verdict
    few = diagnose(record([[0.4, 0.6], [0.5, 0.5]], [[1.0, 2.0], [1.0, 2.0]]))
    assert few.verdict.startswith("there is no correlation to measure")
    assert set(few.table()["reading"]) == {"no correlation: too few samples, or losses all alike"}


def test_the_interval_is_printed_with_its_confidence():
    rng = np.random.default_rng(0)
    given = record(rng.random((30, 2)), rng.exponential(size=(30, 2)))
    usual, narrow = diagnose(given), diagnose(given, confidence=0.8)
    assert "95 % interval" in str(usual)
    assert "80 % interval" in str(narrow)
    assert narrow.to_dict()["confidence"] == 0.8
    ends = [found.modalities[0].correlation for found in (usual, narrow)]
    assert ends[0].low < ends[1].low < ends[1].high < ends[0].high


def test_the_printed_table_is_even(qmf, data):
    lines = str(trust_diagnostics(qmf, *data[1])).splitlines()
    assert lines[0].split()[:2] == ["modality", "samples"]
    assert len({len(line) for line in lines[:4]}) == 1
    assert lines[4] == ""
    assert repr(trust_diagnostics(qmf, *data[1])).startswith("TrustDiagnostics(meets theorem 2's condition")


def test_noise_on_dataframes_is_that_on_what_the_model_reads(data):
    X, y = data[0]
    frames = {name: pl.DataFrame(values, schema=["u", "v", "w"]) for name, values in X.items()}
    frames["audio"] = frames["audio"].with_columns(z=np.array(["no", "yes"])[(y == "a").astype(int)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FusionClassifier("late", **QUICK).fit(frames, y)
    noisy = trust_diagnostics(model, frames, y, corruption="gaussian", level=10)
    turned = {name: frame.select(frame.columns[::-1]) for name, frame in frames.items()}
    assert trust_diagnostics(model, turned, y, corruption="gaussian", level=10).to_dict() == noisy.to_dict()
    assert noisy.to_dict() != trust_diagnostics(model, frames, y).to_dict()
