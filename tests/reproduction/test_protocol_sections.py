"""The sections that any protocol can ask for: areas, several metrics, tables of a paper."""

from types import SimpleNamespace

import polars as pl
import pytest

from consilience.comparison.results import Findings, empty_table
from consilience.core.errors import UnknownNameError
from consilience.reproduction.protocol import Part
from consilience.reproduction.protocol_sections import areas, areas_by_seed, metrics, table


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
    gain, effective = (areas_by_seed(found, "ef-transformer", kind) for kind in ("gain", "effective"))
    assert gain["ef-transformer"] == {0: 0, 1: 0}
    # Trapezia of 0.4: gaps 0.1, 0, −0.1, then 0.1 throughout.
    assert [gain["ef-lstm"][seed] for seed in (0, 1)] == pytest.approx([0.0, 0.08])
    assert [effective["ef-lstm"][seed] for seed in (0, 1)] == pytest.approx([-0.08, 0.0])
    assert [gain["pro:ef-lstm"][seed] for seed in (0, 1)] == pytest.approx([0.08, 0.04])
    [section] = areas(
        SimpleNamespace(parts={"food": Part({}, {}, "F&B")}),
        {"food": SimpleNamespace(findings=found)},
        baseline="ef-transformer",
        published={"food": {"ef-lstm": 0.35}},
    ).sections
    [table] = section.tables
    assert table.caption == "F&B"
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.header == ("method", "ROBUSTAUC", "published", "difference", "gain over its base", "effective area")
    assert rows["ef-lstm"] == ("0.040 ± 0.057", "0.350", "−0.310", "–", "−0.040 ± 0.057")
    assert rows["pro:ef-lstm"][1:4] == ("–", "–", "+0.020, in 1 of 2 seeds")
    assert table.marked == (0,)


def test_each_set_and_one_corruption_has_its_areas():
    both = findings(curve("late", 0, 1.0, 2.0, 3.0))
    other = both.values.with_columns(pl.lit("other").alias("corruption"), pl.col("value") * 2)
    both.values = pl.concat([both.values, other])
    protocol, done = SimpleNamespace(parts={"p": Part({}, {})}), {"p": SimpleNamespace(findings=both)}
    for corruption in ("", "other"):
        [section] = areas(protocol, done, baseline="late", corruption=corruption).sections
        assert [(each.caption, each.rows[0][1]) for each in section.tables] == [("p", "0.000")]
    both.sets = {"finance": {}, "second": {}}
    both.values = pl.concat([both.values, both.values.with_columns(pl.lit("second").alias("set"))])
    [section] = areas(protocol, done, baseline="late").sections
    assert [each.caption for each in section.tables] == ["p, finance", "p, second"]


def test_all_metrics_stand_beside_the_published():
    values = {
        ("ef-lstm", seed, 0.0, metric): value + seed
        for seed in (0, 1)
        for metric, value in (("acc7", 0.3), ("acc2_nonzero", 0.7), ("mae", 1.1), ("pearson", 0.6))
    }
    protocol = SimpleNamespace(parts={"mosei": Part({}, {}, "CMU-MOSEI"), "mosi": Part({}, {})})
    [section] = metrics(
        protocol,
        {"mosei": SimpleNamespace(findings=findings(values, "acc2_nonzero"))},
        title="All",
        metrics=["acc7", "acc2_nonzero", "mae", "pearson"],
        published={"mosi": {}, "mosei": {"ef-lstm": [0.441, 0.751, 0.72, 0.51]}},
    ).sections
    [made] = section.tables
    assert made.caption == "CMU-MOSEI"
    assert made.header[1:3] == ("seven-class accuracy, %", "published")
    [row] = made.rows
    assert row[0] == "ef-lstm"
    assert row[1].startswith("80.0 ±")
    assert [float(cell) for cell in row[2::2]] == pytest.approx([44.1, 75.1, 0.72, 0.51], abs=0.06)
    assert metrics(protocol, {}, title="All", metrics=["mae"], published={"mosi": {}}).sections == []


def test_a_table_of_the_paper_as_printed():
    protocol = SimpleNamespace(path="own.yaml", tables={"t": {"a": [[1, 0.5], [2, 1.5]], "b": [0.25, 0.5]}})
    [section] = table(protocol, {}, title="T", name="t", caption="C", columns=["row", "x", "y"]).sections
    assert section.tables[0].rows == (("a", "1.00 (0.50)", "2.00 (1.50)"), ("b", "0.250", "0.500"))
    with pytest.raises(UnknownNameError, match="unknown table 'u'"):
        table(protocol, {}, title="T", name="u", caption="C", columns=[])
