"""The progressive paper's tables on stocks and spoken opinions: protocols, areas, constants."""

import gzip
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from consilience.comparison.comparison import Comparison
from consilience.comparison.experiments import Part, find_experiment
from consilience.comparison.experiments.progressive_finance import published, sections
from consilience.comparison.experiments.progressive_mosi import TABLE8, metrics_table
from consilience.comparison.results import empty_table
from consilience.core.samples import Modality
from consilience.core.targets import Task
from consilience.data.sets.finance import GROUPS
from consilience.methods import Spec, build
from consilience.report import Findings

FINANCE = ("progressive-table6", "progressive-table6-large", "progressive-table7")


@pytest.mark.parametrize("name", FINANCE)
@pytest.mark.parametrize("quick", [False, True])
def test_every_model_of_a_finance_table_can_be_built(name, quick):
    asked = find_experiment(name).parts["tech"].arguments(quick)
    stocks = {one: Modality(one, "sequence", (6, 1)) for one in ("MSFT", "AMD")}
    spec = Spec(stocks, Task.of_numbers(np.random.default_rng(0).normal(size=(9, 2))))
    for method in asked["methods"]:
        built = build(method, spec, asked["settings"].get(method))
        assert getattr(built, "steps", 2) == 2
    assert asked["settings"].keys() <= set(asked["methods"])
    base = {method: settings for method, settings in asked["settings"].items() if not method.startswith("pro:")}
    assert all(asked["settings"].get(f"pro:{method}", chosen) == chosen for method, chosen in base.items())


def test_the_published_tables_are_whole():
    models = [f"{kind}{model}" for model in published.MODELS for kind in ("", "pro:")]
    assert published.TABLE6.keys() == {(sector, model) for sector in published.SECTORS for model in models}
    assert len(published.TABLE7) == 24
    assert published.TABLE7.keys() <= published.TABLE6.keys()
    assert find_experiment("progressive-table7").parts["food"].full["methods"] == models[:4] + models[6:10]


def findings(values, metric="mse"):
    """values: (method, seed, level, metric) → value."""
    rows = [
        {"set": "finance", "method": one, "seed": seed, "corruption": "noise", "level": level, "metric": of, "value": x}
        for (one, seed, level, of), x in values.items()
    ]
    methods = list(dict.fromkeys(one for one, *_ in values))
    tables = {name: empty_table(name) for name in ("trust", "reliability", "differences", "ranks", "timings")}
    return Findings(
        title="",
        command="",
        task="regression",
        metric=metric,
        larger_is_better=metric != "mse",
        reference=methods[0],
        sets={"finance": {}},
        methods=methods,
        corruptions=["noise"],
        levels=[0.0, 0.4, 0.8],
        seeds=[0, 1],
        values=pl.DataFrame(rows),
        skipped=empty_table("skipped"),
        failed=empty_table("failed"),
        **tables,
    )


def curve(method, seed, *errors):
    return {(method, seed, level, "mse"): error for level, error in zip((0.0, 0.4, 0.8), errors)}


def test_areas_are_of_the_gap_to_the_baseline_of_the_same_seed():
    found = findings(
        {
            **curve("ef-transformer", 0, 1.0, 1.0, 1.0),
            **curve("ef-transformer", 1, 2.0, 2.0, 2.0),
            **curve("ef-lstm", 0, 0.9, 1.0, 1.1),
            **curve("ef-lstm", 1, 1.9, 1.9, 1.9),
            **curve("pro:ef-lstm", 0, 0.8, 0.9, 1.0),
            **curve("pro:ef-lstm", 1, 1.95, 1.95, 1.95),
        }
    )
    gain, effective = (sections.areas_of(found, kind) for kind in ("gain", "effective"))
    assert gain["ef-transformer"] == {0: 0, 1: 0}
    # Trapezia of 0.4: gaps 0.1, 0, −0.1, then 0.1 throughout.
    assert [gain["ef-lstm"][seed] for seed in (0, 1)] == pytest.approx([0.0, 0.08])
    assert [effective["ef-lstm"][seed] for seed in (0, 1)] == pytest.approx([-0.08, 0.0])
    assert [gain["pro:ef-lstm"][seed] for seed in (0, 1)] == pytest.approx([0.08, 0.04])
    table = sections.area_table("food", found, {("food", "ef-lstm"): 0.35})
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.header == ("method", "ROBUSTAUC", "published", "difference", "gain over its base", "effective area")
    assert rows["ef-lstm"] == ("0.040 ± 0.057", "0.350", "−0.310", "–", "−0.040 ± 0.057")
    assert rows["pro:ef-lstm"][1:4] == ("–", "–", "+0.020, in 1 of 2 seeds")
    assert table.marked == (0,)


@pytest.fixture
def prices(tmp_path, monkeypatch):
    """The small groups' prices, and none of the larger ones."""
    tickers = [one for group in published.SECTORS for one in GROUPS[group][0]]
    walk = np.exp(np.cumsum(0.01 * np.random.default_rng(0).standard_t(4, size=(620, len(tickers))), axis=0))
    lines = ["Date," + ",".join(tickers)]
    lines += [f"{2000 + day // 300}-{day % 300:03}," + ",".join(map(str, row)) for day, row in enumerate(walk)]
    folder = tmp_path / "finance"
    folder.mkdir()
    (folder / "open_2000-06-01_2021-02-28.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    return dict(zip(tickers, np.diff(np.log(walk), axis=0).T))


def test_a_constant_scores_the_distance_to_the_training_mean(prices):
    squared = prices["MSFT"][500:] ** 2  # 119 windows: 83 train, 12 validate, 24 test
    y = squared / squared[:83].std()
    expected = np.mean((y[95:] - y[:83].mean()) ** 2)
    assert sections.constant_error("tech", targets="one", window=500) == pytest.approx(expected)
    assert sections.constant_error("tech-large", targets="all", window=500) is None


def test_a_finance_page_has_errors_areas_and_constants(prices, tmp_path, monkeypatch):
    monkeypatch.setattr(Comparison, "report", lambda self: None)  # its figures are tested elsewhere
    experiment = find_experiment("progressive-table6")
    protocol = experiment.parts["food"].arguments(quick=True)
    methods = ["ef-lstm", "pro:ef-lstm", "ef-transformer"]
    smaller = {
        "methods": methods,
        "settings": {name: chosen for name, chosen in protocol["settings"].items() if name in methods},
        "window": 4,
        "train": 60,
        "seeds": 1,
        "levels": (0, 0.8),
        "training": {"epochs": 1, "batch_size": 64},
    }
    short = replace(experiment, parts={"food": Part({**protocol, **smaller}, title="F&B")})
    done = short.run(out=tmp_path / "run", verbose=0)
    errors, areas, constants = done.account.tables
    assert [row[0] for row in errors.rows] == [row[0] for row in areas.rows] == methods
    assert [row[2] for row in errors.rows] == ["0.730", "0.700", "0.836"]
    assert areas.rows[2][1] == "0.000"
    assert constants.rows[0][1:] == ("0.836", "0.335", "0.755")
    assert all(cell == "–" for row in constants.rows if "appendix C" in row[0] for cell in row[1:])
    assert len(done.account.answer) == 1  # one loop was compared
    assert "published: 0.73 → 0.7" in done.account.answer[0]


def test_all_metrics_of_sequences_stand_beside_the_published():
    values = {
        ("ef-lstm", seed, 0.0, metric): value + seed
        for seed in (0, 1)
        for metric, value in (("acc7", 0.3), ("acc2_nonzero", 0.7), ("mae", 1.1), ("pearson", 0.6))
    }
    table = metrics_table("mosei", findings(values, "acc2_nonzero"))
    assert table.header[1:3] == ("seven-class accuracy, %", "published")
    [row] = table.rows
    assert row[0] == "ef-lstm"
    assert row[1].startswith("80.0 ±")
    said = TABLE8["mosei", "ef-lstm"]
    assert [float(cell) for cell in row[2::2]] == pytest.approx([44.1, 75.1, said.mae, said.pearson], abs=0.06)
