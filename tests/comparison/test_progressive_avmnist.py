"""Progressive fusion on AV-MNIST: protocols that can be run, pages that say what the numbers say; without any files."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from consilience import compare
from consilience.comparison.comparison import read_finished
from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments import progressive_avmnist as table9
from consilience.comparison.experiments.avmnist_components import BOTH, IMAGE, PUBLISHED, SOUND, means, placed, together
from consilience.comparison.experiments.progressive_avmnist.controls import (
    controls_section,
    gain_of_all,
    say_gain_of_all,
)
from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.data import DataSet
from consilience.data.splits import draw_split
from consilience.methods import Spec, build


@pytest.mark.parametrize(("side", "quick"), [(112, False), (28, True)])
def test_every_method_of_the_protocol_can_be_built(side, quick):
    protocol = find_experiment("progressive-table9").parts["av-mnist"].arguments(quick)
    shapes = {"image": (1, 28, 28), "audio": (1, side, side)}
    spec = Spec({name: Modality(name, "image", shape) for name, shape in shapes.items()}, Task.of_labels(np.arange(10)))
    for name in protocol["methods"]:
        if quick or not name.startswith("wide:"):  # which are slow to build
            build(name, spec, protocol["settings"].get(name))
    assert protocol["settings"].keys() <= set(protocol["methods"])


def test_every_base_is_claimed_against_its_loop_with_the_published_figures():
    experiment = find_experiment("progressive-table9")
    methods = experiment.parts["av-mnist"].arguments(False)["methods"]
    assert {(claim.method, claim.than) for claim in experiment.claims} == {(f"pro:{one}", one) for one in table9.TABLE9}
    assert {control + one for control in ("wide:", "unimodal-feedback:") for one in table9.CONTROLLED} <= set(methods)
    assert experiment.published["av-mnist", "lowrank", "clean", 0.0] == 0.711
    assert experiment.published["av-mnist", "pro:mfas", "clean", 0.0] == 0.725
    assert len(experiment.published) == 12


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    random = np.random.default_rng(0)
    y = np.arange(90) % 2
    values = {name: random.normal(y[:, None], 1.5, size=(90, 3)).astype(np.float32) for name in "ab"}
    data = DataSet("small", Samples.of(values, y), "classification", *draw_split(y, "classification"))
    encoder = {"name": "mlp", "hidden": [4], "dropout": 0.0}
    return compare(
        data,
        ["concat", "pro:concat", "wide:concat", "unimodal-feedback:concat", "align"],
        levels=(0,),
        seeds=2,
        reference="concat",
        encoders={"a": encoder, "b": encoder},
        settings={name: {"width": 4} for name in ("concat", "pro:concat", "wide:concat", "unimodal-feedback:concat")},
        training={"epochs": 1, "device": "cpu"},
        out=tmp_path_factory.mktemp("runs") / "small",
        verbose=0,
        side_by_side=True,
    )


def test_controls_stand_beside_the_loop(compared):
    section = controls_section(compared, {"concat": "LF", "align": "Other"}, table9.LOOP, table9.CONTROLS)
    first, second = section.tables[0].rows
    values = compared.findings.values.filter(metric="accuracy", level=0.0).unique(["method", "seed"])
    by_method = {method: table["value"].mean() for (method,), table in values.group_by("method")}
    for family, cell in zip(("pro", "wide", "unimodal-feedback"), first[2:], strict=True):
        gain = by_method[f"{family}:concat"] - by_method["concat"]
        assert float(cell.split(",")[0].replace("−", "-")) == pytest.approx(100 * gain, abs=0.051)
        assert "p = " in cell
    assert second[0] == "Other"
    assert set(second[2:]) == {"–"}  # of which nothing but the base was compared
    ahead = int(by_method["pro:concat"] > by_method["wide:concat"])
    assert f"The loop is ahead of `wide:` in {ahead} of 1 model" in section.words[1]


def test_models_taken_together_gain_the_mean_of_what_each_gains(compared, monkeypatch):
    # Of one model, what the comparison itself says of it.
    (row,) = compared.statistics("concat", ["pro:concat"]).filter(level=0).unique("method").iter_rows(named=True)
    gain, ahead = gain_of_all(compared, ["concat"], "pro")
    assert (gain.difference, gain.low, gain.high, gain.p) == pytest.approx(
        [row[one] for one in ("difference", "low", "high", "p")]
    )
    assert ahead == int(row["difference"] > 0)
    # Of two, of which the second stands in for a loop around align: the mean.
    methods = {"unimodal-feedback:concat": "pro:align"}
    finished = [
        (replace(job, method=methods.get(job.method, job.method)), one)
        for job, one in read_finished(compared.store, compared.store.read_plan())
    ]
    monkeypatch.setattr(sys.modules[gain_of_all.__module__], "read_finished", lambda *_: finished)
    value = {
        name: np.mean(
            [one.about["conditions"][0]["metrics"]["accuracy"] for job, one in finished if job.method == name]
        )
        for name in ("concat", "pro:concat", "align", "pro:align")
    }
    each = [value["pro:concat"] - value["concat"], value["pro:align"] - value["align"]]
    gain, ahead = gain_of_all(compared, ["concat", "align"], "pro")
    assert gain.difference == pytest.approx(np.mean(each))
    assert ahead == sum(one > 0 for one in each)
    (said,) = say_gain_of_all(compared, {"concat": "LF", "refnet": "not compared"}, "pro")
    assert said.startswith("1 model taken together are not significantly other with the loop than without: ")
    assert say_gain_of_all(compared, {"refnet": "not compared"}, "pro") == []


def accuracies(**methods):
    rows = [
        {"method": method, "seed": seed, "corruption": "clean", "level": 0.0, "metric": "accuracy", "value": value}
        for method, values in methods.items()
        for seed, value in enumerate(values)
    ]
    return SimpleNamespace(findings=SimpleNamespace(values=pl.DataFrame(rows)))


def test_builds_are_placed_by_their_fused_accuracy():
    comparisons = {
        "components-3": accuracies(**{IMAGE: [0.5, 0.6], BOTH: [0.6, 0.62]}),
        "components-4": accuracies(**{IMAGE: [0.63, 0.65], SOUND: [0.4, 0.44], BOTH: [0.7, 0.72]}),
        "components-5": accuracies(**{IMAGE: [0.7, 0.74], BOTH: [0.78, 0.8]}),
        "clean-sound": accuracies(**{SOUND: [0.99, 0.99], BOTH: [0.99, 1.0]}),
    }
    found = means(comparisons)
    assert found["components-3"][SOUND] == found["components-5"][SOUND] == pytest.approx((0.42, 0.04 / 2**0.5))
    assert found["clean-sound"][IMAGE] == found["components-4"][IMAGE]
    *builds, nearest = placed(comparisons)
    assert builds[0] == "3 components, noisy sound: image alone 55.0 %, sound alone 42.0 %, both 61.0 %."
    assert "is nearest to 4 components, noisy sound, which differs by −0.4" in nearest
    table = together(comparisons)[0].tables[0]
    assert table.rows[-1][2:] == ("99.0 ± 0.0", "99.5 ± 0.7", f"{100 * PUBLISHED:.1f}", "+28.1")
