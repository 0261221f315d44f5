"""Contributions in a comparison: those of `explain`, gathered over seeds; results of earlier versions have none."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from consilience import FusionClassifier, Samples, compare, load
from consilience.comparison import modality_contributions as measured
from consilience.comparison.comparison import reopen
from consilience.comparison.plan import Job
from consilience.data import load_data


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=240)
    heat = np.eye(3)[y] + rng.normal(scale=0.6, size=(240, 3))
    sound = np.eye(3)[y][:, ::-1] + rng.normal(scale=0.9, size=(240, 3))
    sound[::7] = np.nan
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, heat=heat, sound=sound, y=y)
    return path


def run(data, out, **options):
    settings = {"seeds": 2, "levels": (0,), "training": {"epochs": 3}, "verbose": 0}
    return compare(data, ["late", "concat"], out=out, **settings, **options)


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    return run(small, tmp_path_factory.mktemp("runs") / "small", refit=False)


def jobs_of(comparison):
    return [Job(**described) for described in comparison.store.read_plan()["jobs"]]


def test_they_are_those_that_the_best_model_explains(finished, small):
    model = load(finished.best)
    job = next(job for job in jobs_of(finished) if finished.store.published(job, finished.best))
    found = finished.store.read(job).about["contributions"]
    expected = model.explain(load_data(small).resplit(job.seed).test, value="accuracy").mean()
    np.testing.assert_allclose(found["values"], expected.values, atol=1e-6)
    np.testing.assert_allclose(found["interactions"], expected.interactions, atol=1e-6)
    assert found["all"] == pytest.approx(expected.all)


def test_means_over_seeds_sum_to_what_they_explain(finished):
    (block,) = measured.contributions_over_seeds(finished.findings)
    assert block.modalities == ("heat", "sound")
    assert block.metric == "accuracy"
    assert block.leader in ("late", "concat")
    for row in block.rows:
        assert row.mean.values.sum() == pytest.approx(row.mean.all - row.mean.none)
        own = finished.findings.contributions.filter(method=row.method, modality="sound")["contribution"].to_numpy()
        assert row.mean.values[1] == pytest.approx(own.mean())
        interval = stats.t.interval(0.95, len(own) - 1, own.mean(), stats.sem(own))
        assert row.mean.errors[1] == pytest.approx((interval[1] - interval[0]) / 2)


def test_accuracies_with_all_modalities_are_those_of_the_table(finished):
    for job in jobs_of(finished):
        result = finished.store.read(job)
        clean = next(each for each in result.about["conditions"] if each["part"] == "test")
        assert result.about["contributions"]["all"] == pytest.approx(clean["metrics"]["accuracy"])


def test_results_of_an_earlier_version_are_reported_without_them(small, tmp_path):
    done = run(small, tmp_path / "old")
    for job in jobs_of(done):
        result = done.store.read(job)
        del result.about["contributions"]
        done.store.write(job, result)
    (tmp_path / "old" / "report.stamp").unlink()
    again = reopen(tmp_path / "old")
    assert len(again.findings.contributions) == 0
    assert measured.contributions_over_seeds(again.findings) == []
    page = (tmp_path / "old" / "report.html").read_text()
    assert "older than this measurement" in page


def test_one_seed_has_the_interval_over_its_samples(small, tmp_path):
    options = {"levels": (0,), "training": {"epochs": 1}, "verbose": 0}
    done = compare(small, ["late"], seeds=1, out=tmp_path / "one", **options)
    (block,) = measured.contributions_over_seeds(done.findings)
    stored = done.store.read(jobs_of(done)[0]).about["contributions"]
    np.testing.assert_allclose(block.rows[0].mean.errors, stored["errors"])
    assert block.rows[0].stds == (None, None)


def test_errors_of_a_regression_are_in_the_units_of_the_target(tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 200, 2))
    np.savez(tmp_path / "line.npz", a=a, b=b, y=50 + 10 * a[:, 0] + 5 * b[:, 0])
    done = compare(
        tmp_path / "line.npz", ["late"], seeds=1, levels=(0,), training={"epochs": 2}, verbose=0, out=tmp_path / "r"
    )
    result = done.store.read(jobs_of(done)[0])
    clean = next(each for each in result.about["conditions"] if each["part"] == "test")
    assert result.about["contributions"]["metric"] == "mse"
    assert -result.about["contributions"]["all"] == pytest.approx(clean["metrics"]["mse"], rel=1e-4)
    assert "A positive contribution lowers the mean squared error" in (tmp_path / "r" / "report.html").read_text()


@pytest.mark.parametrize("modalities", [3, 10, 12])
def test_the_number_of_predictions_is_bounded(modalities):
    rng = np.random.default_rng(0)
    X = {f"m{place}": rng.normal(size=(700, 1)) for place in range(modalities)}
    y = (X["m0"][:, 0] > 0).astype(int)
    model = FusionClassifier("concat", epochs=1).fit(X, y).model_
    predicted = []

    class Counting:
        preparation, task = model.preparation, model.task

        def predict(self, samples, **options):
            predicted.append(len(samples))
            return model.predict(samples, **options)

    found = measured.measure_contributions(Counting(), Samples.of(X, y))
    assert sum(predicted) <= 8192
    assert found["samples"] >= 8
    assert (found["interactions"] is None) == (modalities > 10)


def hide(samples, keep):
    """The samples with only these modalities present."""
    there = np.array([name in keep for name in samples.names])
    return samples.replaced({}, present=samples.present & there)


def test_they_are_to_the_metric_of_the_comparison(small, tmp_path):
    """Against scikit-learn's AUROC of the saved model on samples with modalities hidden, averaged over both orders."""
    done = run(small, tmp_path / "auroc", refit=False, metric="auroc")
    (block,) = measured.contributions_over_seeds(done.findings)
    assert block.metric == "auroc"
    assert not block.error
    job = next(job for job in jobs_of(done) if done.store.published(job, done.best))
    test, model = load_data(small).resplit(job.seed).test, load(done.best)

    def value(*keep):
        probabilities = model.predict_proba(hide(test, keep))
        return roc_auc_score(test.y, probabilities, multi_class="ovr", average="macro")

    none, heat, sound, both = value(), value("heat"), value("sound"), value("heat", "sound")
    own = done.findings.contributions.filter(method=job.method, seed=job.seed)
    expected = {"heat": (heat - none + both - sound) / 2, "sound": (sound - none + both - heat) / 2}
    assert dict(zip(own["modality"], own["contribution"])) == pytest.approx(expected, abs=1e-6)
    assert own["none"][0] == pytest.approx(none)
    assert own["all"][0] == pytest.approx(both)
    pair = done.findings.interactions.filter(method=job.method, seed=job.seed)["interaction"]
    assert pair[0] == pytest.approx(both - heat - sound + none, abs=1e-6)
    page = (tmp_path / "auroc" / "report.html").read_text()
    section = page[page.index('<section id="contributions">') : page.index('<section id="trust">')]
    assert "The AUROC of" in section
    assert "accuracy" not in section


def test_contributions_to_a_loss_are_to_its_negative(small, tmp_path):
    done = run(small, tmp_path / "nll", refit=False, metric="nll")
    (block,) = measured.contributions_over_seeds(done.findings)
    assert block.error
    for row in block.rows:
        assert row.mean.none < row.mean.all < 0
        assert row.mean.values.sum() == pytest.approx(row.mean.all - row.mean.none)
    assert (
        "A positive contribution lowers the negative log-likelihood" in (tmp_path / "nll" / "report.html").read_text()
    )


def test_a_mean_over_samples_has_its_interval_over_samples(small, tmp_path):
    """A contribution's interval is that of the mean of the samples' own contributions to the Brier score."""
    call = {"levels": (0,), "training": {"epochs": 2}, "verbose": 0, "seeds": 1, "refit": False, "metric": "brier"}
    done = compare(small, ["late"], out=tmp_path / "brier", **call)
    test, model = load_data(small).resplit(0).test, load(done.best)
    truth = test.y[:, None] == model.classes_

    def terms(*keep):
        return -((model.predict_proba(hide(test, keep)) - truth) ** 2).sum(axis=1)

    own = (terms("heat") - terms() + terms("heat", "sound") - terms("sound")) / 2
    row = done.findings.contributions.filter(modality="heat")
    assert row["contribution"][0] == pytest.approx(own.mean(), abs=1e-5)
    assert row["half_width"][0] == pytest.approx(1.96 * stats.sem(own), rel=1e-3)


def test_with_too_few_samples_for_a_metric_the_page_says_so(small, tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "_MOST_SAMPLES", 20)
    done = run(small, tmp_path / "few", refit=False, metric="auroc")
    (block,) = measured.contributions_over_seeds(done.findings)
    assert block.metric == "accuracy"
    assert (
        "They are contributions to the accuracy, a mean over samples" in (tmp_path / "few" / "report.html").read_text()
    )
