"""When a common class makes accuracies misleading, it is said."""

import numpy as np
import polars as pl
import pytest

from consilience import compare
from consilience.comparison.imbalance import LARGEST_SHARE, imbalance_notes, largest_class
from consilience.core.errors import InputError, UnknownNameError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.splits import draw_split


def described(*counts):
    total = sum(counts)
    return {"classes": [{"class": number, "share": count / total} for number, count in enumerate(counts)]}


def test_only_a_share_above_the_bound_is_said():
    assert imbalance_notes({"even": described(6, 4)}, "accuracy") == []
    [note] = imbalance_notes({"even": described(6, 4), "rare": described(1, 61, 38)}, "accuracy")
    assert note.startswith("On rare, 61.0 % of the samples are of class 1, and only 1.0 % of class 0: ")
    assert "--metric balanced_accuracy or auroc" in note
    assert imbalance_notes({"rare": described(1, 61, 38)}, "auroc") == []
    assert imbalance_notes({"numbers": {"targets": []}}, "mse") == []
    assert largest_class(described(1, 61, 38)) == ("1", 0.61)
    assert LARGEST_SHARE == 0.6


def test_a_rare_class_beside_others_is_said():
    """Five classes have an even share of 20 %, of which 5 % are a quarter."""
    assert imbalance_notes({"even": described(55, 15, 15, 10, 5)}, "accuracy") == []
    [note] = imbalance_notes({"rare": described(56, 15, 15, 10, 4)}, "accuracy")
    assert note.startswith("On rare, only 4.0 % of the samples are of class 4: an accuracy hardly depends on")
    assert "--metric balanced_accuracy or auroc" in note
    assert imbalance_notes({"rare": described(56, 15, 15, 10, 4)}, "balanced_accuracy") == []
    [note] = imbalance_notes({"both": described(80, 10, 5, 4, 1)}, "accuracy")  # one sentence is enough
    assert "80.0 % of the samples are of class 0, and only 1.0 % of class 4: always answering 0 has" in note


@pytest.fixture(scope="module")
def rare():
    rng = np.random.default_rng(0)
    y = np.array(["ok", "fault"])[(rng.random(200) < 0.1).astype(int)]
    values = {name: rng.normal((y == "fault")[:, None], 1, size=(200, 2)) for name in "ab"}
    return DataSet("pump", Samples.of(values, y), "classification", *draw_split(y, "classification"))


def test_a_comparison_says_it_and_knows_what_the_majority_reaches(rare, tmp_path):
    call = {"seeds": 2, "levels": (), "training": {"epochs": 2}, "verbose": 0}
    found = compare(rare, ["majority", "linear"], **call, out=tmp_path / "run").findings
    assert any("of the samples are of class ok" in note for note in found.notes)
    share = rare.describe()["classes"]
    expected = max(known["share"] for known in share)
    majority = found.values.filter(method="majority", metric="accuracy")["value"]
    assert majority.mean() == pytest.approx(expected, abs=0.03)
    by_area = compare(rare, ["majority", "linear"], metric="roc_auc", **call, out=tmp_path / "run").findings
    assert by_area.metric == "auroc"
    assert not any("of the samples are of class" in note for note in by_area.notes)
    areas = by_area.values.filter(metric="auroc")
    assert (areas.filter(method="majority")["value"] == 0.5).all()
    difference = by_area.differences.filter(method="linear").row(0, named=True)
    assert difference["difference"] > 0  # positive is better
    assert difference["low"] < difference["difference"] < difference["high"]

    by_loss = compare(rare, ["majority", "linear"], metric="log_loss", **call, out=tmp_path / "run")
    losses = by_loss.findings.values.filter(metric="nll", level=0).group_by("method").agg(pl.col("value").mean())
    means = dict(losses.iter_rows())
    difference = by_loss.statistics().filter(method="linear").row(0, named=True)
    assert difference["difference"] == pytest.approx(means["majority"] - means["linear"])  # positive: a lower loss


def test_class_weights_are_checked_before_training_and_part_of_the_comparison(rare, tmp_path):
    call = {"seeds": 1, "levels": (), "verbose": 0}
    with pytest.raises(UnknownNameError, match="unknown class 'faul': did you mean 'fault'"):
        compare(rare, ["linear"], class_weight={"faul": 2}, **call, out=tmp_path / "run")
    compare(rare, ["linear"], class_weight="balanced", **call, out=tmp_path / "run")
    with pytest.raises(InputError, match='class_weight was "balanced", now null'):
        compare(rare, ["linear"], **call, out=tmp_path / "run")
