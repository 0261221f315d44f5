"""What losing a modality costs, against predicting without it."""

import numpy as np
import polars as pl
import pytest

from consilience import Samples, compare, corrupt, load
from consilience.comparison import modality_costs
from consilience.comparison.comparison import reopen
from consilience.comparison.plan import Job
from consilience.data import DataSet, load_data
from consilience.data.splits import draw_split
from consilience.report.cost_section import cost_part, cost_sentences

CALL = {"seeds": 2, "levels": (0, 4), "training": {"epochs": 10, "device": "cpu"}, "verbose": 0}


def set_of(task="classification", n=300):
    """A strong modality, a weak one, and one that says nothing."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=n)
    values = {"strong": np.eye(3)[y] * 2, "weak": np.eye(3)[y][:, ::-1], "none": np.zeros((n, 3))}
    values = {name: value + rng.normal(scale=0.7, size=(n, 3)) for name, value in values.items()}
    target = y if task == "classification" else y + rng.normal(scale=0.1, size=n)
    return DataSet("rig", Samples.of(values, target), task, *draw_split(target, task))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "rig"
    return compare(set_of(), ["late", "linear", "majority"], refit=False, out=out, **CALL)


def test_they_are_those_of_predicting_without_a_modality_and_with_noise_on_it(finished):
    data, model = set_of(), load(finished.best)
    jobs = [Job(**described) for described in finished.store.read_plan()["jobs"]]
    job = next(job for job in jobs if finished.store.published(job, finished.best))
    split = data.resplit(job.seed)
    clean = np.mean(model.predict(split.test) == split.test.y)
    own = finished.findings.costs.filter(method=job.method, seed=job.seed)
    assert len(own) == 6
    for row in own.iter_rows(named=True):
        if row["corruption"] == "missing":
            rest = [name for name in split.test.names if name != row["modality"]]
            changed = split.test.only(rest)
        else:
            named = {row["modality"]: "gaussian"}
            changed = corrupt(split.test, named, 4, probability=1, random_state=job.seed, reference=split.train)
        right = model.predict(changed) == split.test.y
        assert row["cost"] == pytest.approx(clean - right.mean())
        moves = (model.predict(split.test) == split.test.y).astype(float) - right
        assert row["half_width"] == pytest.approx(1.96 * moves.std(ddof=1) / np.sqrt(len(moves)))
        assert row["clean"] == pytest.approx(clean)
        assert row["samples"] == len(split.test)


def test_over_seeds_the_strong_modality_costs_most(finished):
    [block] = modality_costs.costs_over_seeds(finished.findings)
    assert block.modalities == ("strong", "weak", "none")
    assert block.shown == finished.choice.method
    for method, costs in block.rows.items():
        lost = {cost.modality: cost.cost for cost in costs if cost.missing}
        if method == "majority":
            assert set(lost.values()) == {0}
        else:
            assert lost["strong"] > max(0.1, lost["weak"], lost["none"])
        cost = costs[0]
        table = finished.findings.costs.filter(method=method, modality=cost.modality, corruption=cost.corruption)
        assert cost.cost == pytest.approx(table["cost"].mean())
        assert cost.std == pytest.approx(table["cost"].std())


def test_it_is_said_and_drawn(finished):
    sentences = cost_sentences(finished.findings, "rig")
    assert sentences[0].startswith(f"On rig, losing strong costs `{finished.choice.method}` most: ")
    assert "points of accuracy" in sentences[0]
    assert sentences[1].startswith("With one modality at a time corrupted in all samples, at level 4, gaussian on")
    [block] = modality_costs.costs_over_seeds(finished.findings)
    part = cost_part(block)
    assert [table.header for table in part.tables] == [("method", "strong", "weak", "none")] * 2
    page = (finished.folder / "report.html").read_text()
    assert '<section id="costs">' in page
    assert "What losing a modality costs" in page
    assert "rig · modality missing in all samples" in page


def test_another_metric_has_its_own_costs(finished):
    by_loss = compare(
        set_of(), ["late", "linear", "majority"], metric="nll", refit=False, out=finished.folder, **CALL
    ).findings
    own = by_loss.costs.filter(method="linear", modality="strong", corruption="missing")
    assert (own["metric"] == "nll").all()
    assert (own["cost"] > 0).all()  # a larger loss is worse
    by_area = compare(
        set_of(), ["late", "linear", "majority"], metric="auroc", refit=False, out=finished.folder, **CALL
    ).findings
    assert by_area.costs["half_width"].is_null().all()  # no mean over samples
    assert "of AUROC" in cost_sentences(by_area, "rig")[0]


def test_the_intervals_of_one_seed_draw_whole_groups(tmp_path):
    rng = np.random.default_rng(0)
    group = np.arange(400) // 20  # the samples of a group are alike
    y = (group + rng.integers(0, 2, size=20)[group]) % 2
    spread = rng.normal(scale=0.6, size=(20, 2))[group] + rng.normal(scale=0.05, size=(400, 2))
    columns = {"a": y + spread[:, 0], "b": y + spread[:, 1], "subject": group, "y": y}
    grouped = load_data(pl.DataFrame(columns), target="y", modalities={"a": ["a"], "b": ["b"]}, group="subject")
    call = {**CALL, "levels": (), "seeds": 1}
    done = compare(grouped, ["linear"], refit=False, out=tmp_path / "run", **call)
    model, test = load(done.best), grouped.resplit(0).test
    _, of_group, sizes = np.unique(test.group, return_inverse=True, return_counts=True)
    right = model.predict(test) == test.y
    for row in done.findings.costs.iter_rows(named=True):
        lost = right.astype(float) - (model.predict(test.only([{"a": "b", "b": "a"}[row["modality"]]])) == test.y)
        deviations = np.bincount(of_group, lost) - sizes * lost.mean()
        expected = 1.96 * np.sqrt(len(sizes)) * deviations.std(ddof=1) / len(test)
        assert row["half_width"] == pytest.approx(expected)
        assert expected > 1.5 * 1.96 * lost.std(ddof=1) / np.sqrt(len(test))
    explained = model.explain(test, value="accuracy").contributions.values
    deviations = [np.bincount(of_group, value) - sizes * value.mean() for value in explained.T]
    expected = 1.96 * np.sqrt(len(sizes)) * np.std(deviations, axis=1, ddof=1) / len(test)
    np.testing.assert_allclose(done.findings.contributions["half_width"], expected, atol=1e-6)


def test_of_numbers_and_without_levels(tmp_path):
    call = {**CALL, "levels": (), "seeds": 1}
    found = compare(set_of("regression"), ["linear"], out=tmp_path / "run", **call).findings
    assert set(found.costs["corruption"]) == {"missing"}
    costs = dict(found.costs.select("modality", "cost").iter_rows())
    assert costs["strong"] > costs["weak"] > costs["none"] - 0.01
    [sentence] = cost_sentences(found, "rig")
    assert "of mean squared error" in sentence


def test_a_method_that_reads_nothing_loses_nothing(tmp_path):
    found = compare(set_of(), ["majority"], out=tmp_path / "run", **CALL).findings
    first, second = cost_sentences(found, "rig")
    assert first == "On rig, losing one modality costs `majority` nothing."
    assert second.endswith("it loses nothing.")


def test_a_single_modality_and_results_of_before_have_none(finished, tmp_path):
    whole = set_of()
    single = DataSet("one", whole.samples.only(["strong"]), "classification", *draw_split(whole.y, "classification"))
    alone = compare(single, ["linear"], out=tmp_path / "run", **{**CALL, "seeds": 1})
    assert not len(alone.findings.costs)
    assert cost_sentences(alone.findings, "one") == []
    assert '<section id="costs">' not in (alone.folder / "report.html").read_text()
    assert modality_costs.cost_rows({}, None, "accuracy", True) == []
    measured = {"clean": {"accuracy": 1.0}, "changed": []}
    assert modality_costs.cost_rows({}, measured, "a metric of before", True) == []
    assert len(reopen(finished.folder).findings.costs) == 36
