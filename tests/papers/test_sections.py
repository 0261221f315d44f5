"""The sections of papers: correlations over seeds, verdicts, ranks, gaps, constants, controls, builds."""

import gzip
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from consilience import compare
from consilience.comparison.comparison import Comparison, read_finished
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.sets.finance import GROUPS
from consilience.data.splits import draw_split
from consilience.report.drawing import looks_of
from consilience.reproduction.protocol import Part, read_protocol
from consilience.reproduction.protocol_sections import find_section
from consilience.reproduction.run_protocol import run_protocol
from consilience.reproduction.study import load_script
from documents import ROOT

PAPERS = ROOT / "papers"
qmf, finance, avmnist = (load_script(PAPERS / "sections" / f"{name}.py") for name in ("qmf", "finance", "avmnist"))


def protocol_of(name):
    return read_protocol(PAPERS / f"{name}.yaml")


def additions(name, comparisons):
    protocol = protocol_of(name)
    return [find_section(request)(protocol, comparisons, **request.settings) for request in protocol.sections]


def table_of(name, comparisons, section, place=0):
    found = [each for addition in additions(name, comparisons) for each in addition.sections if each.name == section]
    return found[0].tables[place]


def test_ranks_and_gaps_of_the_papers_table():
    tables = protocol_of("qmf-table1").tables
    nyu = tables["NYU Depth V2"]
    ranks = [
        [qmf.rank_of("Ours", {row: pairs[column][which] for row, pairs in nyu.items()}) for which in (0, 1)]
        for column in range(3)
    ]
    assert ranks[0] == [5, 4]  # without noise MMTM, TMC, Align and Concat are ahead; by the worst seed not Align
    assert [rank[0] for rank in ranks[1:]] == [1, 1]
    gaps = qmf.gaps_in_paper(tables, ["RGB", "Depth", "Bow", "Img", "Bert"])
    assert gaps["MVSA", "Late fusion"] == pytest.approx([76.88 - 75.61, 63.46 - 69.50, 55.16 - 47.41])


def diagnosed(by_method, seeds=8):
    """A comparison of which only r is known: method → its mean; two modalities lie to both sides of it."""
    rng = np.random.default_rng(0)
    rows = [
        {"corruption": "noise", "level": 10.0, "method": method, "seed": seed, "modality": name, "r": r + side + jitter}
        for method, r in by_method.items()
        for seed in range(seeds)
        for jitter in [rng.normal(scale=0.01)]
        for name, side in (("a", 0.1), ("b", -0.1))
    ]
    rows.append({"corruption": "noise", "level": 10.0, "method": "late", "seed": 0, "modality": "a", "r": None})
    findings = SimpleNamespace(
        diagnostics=pl.DataFrame(rows), corruptions=["noise"], methods=[*by_method, "late"], seeds=list(range(seeds))
    )
    return SimpleNamespace(findings=findings)


def test_correlations_are_means_over_modalities():
    found = qmf.correlations_at(diagnosed({"qmf": -0.6, "qmf@msp": 0.2}), 10.0)
    assert list(found) == ["qmf", "qmf@msp"]
    assert np.mean([*found["qmf"].values()]) == pytest.approx(-0.6, abs=0.02)
    assert np.std([*found["qmf"].values()]) < 0.03  # the modalities' own distance of 0.2 is averaged out


def test_verdicts_on_correlations_are_corrected_over_all_tests():
    comparison = diagnosed({"qmf": -0.6, "worse": -0.2, "better": -0.8})
    checks = [qmf.lower_correlation(f"QMF knows {name}", comparison, 10.0, "qmf", name) for name in ("worse", "better")]
    found, opposite = qmf.verdicts_on(checks)
    assert found.startswith("QMF knows worse. Found: r = −0.6")
    mean = {name: np.mean(list(seeds.values())) for name, seeds in qmf.correlations_at(comparison, 10.0).items()}
    assert f", apart by −{mean['worse'] - mean['qmf']:.3f} (−0." in found
    assert f", apart by {mean['qmf'] - mean['better']:.3f} (0." in opposite
    assert opposite.startswith("QMF knows better. The opposite is found: r = −0.6")
    assert found.endswith(
        "p = 0.016; the smallest effect that counts is 0.1."
    )  # 2 tests × the smallest p of 8 seeds, 2⁻⁷
    few = diagnosed({"qmf": -0.6, "worse": -0.2}, seeds=3)
    [undecided] = qmf.verdicts_on([qmf.lower_correlation("Anyhow", few, 10.0, "qmf", "worse")])
    assert undecided.startswith("Anyhow. Not decided: r = −0.6")


def test_a_difference_of_correlations_that_nobody_would_notice_is_no_finding(monkeypatch):
    energy = {seed: -0.65 + 0.001 * seed for seed in range(8)}
    lower = {seed: r - 0.002 - 0.0001 * (seed % 2) for seed, r in energy.items()}
    monkeypatch.setattr(qmf, "correlations_at", lambda *_: {"energy": energy, "qmf": lower})
    comparison = SimpleNamespace(findings=SimpleNamespace(seeds=list(range(8))))
    check = qmf.lower_correlation("QMF knows", comparison, 10.0, "qmf", "energy")
    assert check.row["p"] == pytest.approx(2**-7)
    [said] = qmf.verdicts_on([check])
    assert said.startswith("QMF knows. Not found: r = −0.65")
    assert said.endswith("apart by −0.002 (−0.002 … −0.002), p = 0.008; the smallest effect that counts is 0.1.")


def test_accuracy_that_follows_correlation_is_noticed(monkeypatch):
    found = {f"m{place}": dict.fromkeys(range(8), -0.1 * place) for place in range(4)}
    comparison = SimpleNamespace(findings=SimpleNamespace(seeds=list(range(8))))
    monkeypatch.setattr(qmf, "correlations_at", lambda *_: found)
    for sign in (1, -1):
        right = {method: {seed: 0.5 - sign * r for seed, r in seeds.items()} for method, seeds in found.items()}
        monkeypatch.setattr(qmf, "accuracies_at", lambda *_, right=right: right)
        check = qmf.accuracy_follows("here", comparison, 10.0)
        assert check.row["difference"] == pytest.approx(sign)
        assert check.row["p"] == pytest.approx(2**-7)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """All methods of the QMF protocols on a set so small that it takes the place of all of theirs."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=90)
    folder = tmp_path_factory.mktemp("qmf")
    np.savez(
        folder / "small.npz",
        image=np.eye(3)[y] + rng.normal(scale=0.6, size=(90, 3)),
        text=np.eye(3)[y] + rng.normal(scale=0.9, size=(90, 3)),
        y=y,
    )
    settings = {
        method: chosen
        for name in ("qmf-table2", "qmf-table3")
        for method, chosen in protocol_of(name).parts["mvsa"].full["settings"].items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparison, "report", lambda *_: None)  # a page takes longer to draw than all of this to train
        return compare(
            folder / "small.npz",
            ["best-unimodal", "late", "qmf", *settings],
            corruption="qmf-gaussian",
            levels=(0, 5, 10, 20),
            seeds=2,
            settings=settings,
            encoders={name: {"name": "mlp", "hidden": [8]} for name in ("image", "text")},
            training={"epochs": 1},
            out=folder / "run",
            verbose=0,
        )


def test_sections_show_what_was_measured(small):
    assert not len(small.findings.failed)
    done = {"mvsa": small}
    values = small.findings.values.filter(method="qmf", metric="accuracy", level=10.0)["value"].to_numpy()
    beside = table_of("qmf-table1", done, "beside-mvsa")
    assert beside.header[:3] == ("method", "ε = 0", "paper")
    assert beside.rows[-1][0] == "qmf"
    assert beside.rows[-1][6] == "61.28 (57.61)"
    assert beside.rows[-1][5].startswith(f"{100 * values.mean():.1f} ±")
    clouds = table_of("qmf-figure3", done, "clouds")
    row = {line[0]: line for line in clouds.rows}["qmf"]
    assert [float(row[2]), float(row[3])] == pytest.approx([100 * values.mean(), 100 * values.min()], abs=0.06)
    r = small.trust().filter(method="qmf", level=10.0)["r"].mean()
    rows = {line[0]: line for line in table_of("qmf-table3", done, "correlations").rows}
    assert float(rows["qmf"][3].split(" ± ")[0].replace("−", "-")) == pytest.approx(r, abs=0.006)
    rows = {line[0] for line in table_of("qmf-table2", done, "correlations").rows}
    assert rows >= {"qmf", "qmf@weights", "qmf@paper"}
    assert not rows & {"qmf@neither", "qmf@ranking", "late"}  # equal weights have no correlation
    spread = table_of("qmf-table5", done, "spread").rows[0]
    stds = small.findings.values.filter(metric="accuracy", level=0.0).group_by("method").agg(pl.col("value").std())
    assert float(spread[1]) == pytest.approx(100 * stds["value"].mean(), abs=0.006)
    gap, _ = additions("qmf-figure1", done)[0].sections
    assert len(gap.figures) == 1


def test_the_rank_of_qmf_is_counted(small):
    [rank] = additions("qmf-table1", {"mvsa": small})[0].sections
    assert "in the paper's tables under 11 of 12 and 11 of 12." in rank.words[1]
    means = small.findings.values.filter(metric="accuracy", level=5.0).group_by("method").agg(pl.col("value").mean())
    by_method = dict(means.iter_rows())
    place = 1 + sum(value > by_method["qmf"] + 1e-12 for value in by_method.values())
    assert rank.tables[0].rows[1][0] == "mvsa, qmf-gaussian at level 5"
    assert rank.tables[0].rows[1][2] == str(place)


def test_verdicts_speak_of_every_part(small):
    for name in ("qmf-table2", "qmf-table3", "qmf-table5", "qmf-figure3"):
        made = additions(name, {"mvsa": small, "av-mnist": small})
        text = " ".join(verdict for addition in made for verdict in addition.verdicts).lower()
        assert text.count("on mvsa ") == text.count("on av-mnist ") > 0


@pytest.fixture
def prices(tmp_path, monkeypatch):
    """The small groups' prices, and none of the larger ones."""
    tickers = [ticker for group in finance.SECTORS for ticker in GROUPS[group][0]]
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
    assert finance.constant_error("tech", targets="one", window=500) == pytest.approx(expected)
    assert finance.constant_error("tech-large", targets="all", window=500) is None


def test_a_finance_page_has_errors_areas_and_constants(prices, tmp_path, monkeypatch):
    monkeypatch.setattr(Comparison, "report", lambda self: None)  # its figures are tested elsewhere
    protocol = protocol_of("progressive-table6")
    arguments = protocol.parts["food"].quick
    methods = ["ef-lstm", "pro:ef-lstm", "ef-transformer"]
    smaller = {
        "methods": methods,
        "settings": {name: chosen for name, chosen in arguments["settings"].items() if name in methods},
        "window": 4,
        "train": 60,
        "seeds": 1,
        "levels": [0, 0.8],
        "training": {"epochs": 1, "batch_size": 64},
    }
    part = Part({**arguments, **smaller}, None, "F&B")
    done = run_protocol(replace(protocol, parts={"food": part}), out=tmp_path / "run", verbose=0)
    errors, areas, constants = done.document.tables
    assert [row[0] for row in errors.rows] == [row[0] for row in areas.rows] == methods
    assert [row[2] for row in errors.rows] == ["0.730", "0.700", "0.836"]
    assert areas.rows[2][1] == "0.000"
    assert areas.rows[0][2] == "0.350"
    assert constants.rows[0][1:] == ("0.836", "0.335", "0.755")
    assert all(cell == "–" for row in constants.rows if "appendix C" in row[0] for cell in row[1:])
    assert len(done.document.answer) == 1  # one loop was compared
    assert "published: 0.73 → 0.7" in done.document.answer[0]


@pytest.fixture(scope="module")
def looped(tmp_path_factory):
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


def test_controls_stand_beside_the_loop(looped):
    words = {"wide": "is wide", "unimodal-feedback": "hears itself"}
    models = {"concat": "LF", "align": "Other"}
    made = avmnist.controls(None, {"part": looped}, part="part", models=models, loop="pro", controls=words)
    [section] = made.sections
    first, second = section.tables[0].rows
    values = looped.findings.values.filter(metric="accuracy", level=0.0).unique(["method", "seed"])
    by_method = {method: table["value"].mean() for (method,), table in values.group_by("method")}
    for family, cell in zip(("pro", "wide", "unimodal-feedback"), first[2:], strict=True):
        gain = by_method[f"{family}:concat"] - by_method["concat"]
        assert float(cell.split(",")[0].replace("−", "-")) == pytest.approx(100 * gain, abs=0.051)
        assert "p = " in cell
    assert second[0] == "Other"
    assert set(second[2:]) == {"–"}  # of which nothing but the base was compared
    ahead = int(by_method["pro:concat"] > by_method["wide:concat"])
    assert f"The loop is ahead of `wide:` in {ahead} of 1 model" in section.words[1]
    assert made.verdicts == avmnist.say_gain_of_all(looped, models, "pro")


def test_models_taken_together_gain_the_mean_of_what_each_gains(looped, monkeypatch):
    # Of one model, what the comparison itself says of it.
    (row,) = looped.statistics("concat", ["pro:concat"]).filter(level=0).unique("method").iter_rows(named=True)
    gain, ahead = avmnist.gain_of_all(looped, ["concat"], "pro")
    assert (gain.difference, gain.low, gain.high, gain.p) == pytest.approx(
        [row[key] for key in ("difference", "low", "high", "p")]
    )
    assert ahead == int(row["difference"] > 0)
    # Of two, of which the second stands in for a loop around align: the mean.
    methods = {"unimodal-feedback:concat": "pro:align"}
    finished = [
        (replace(job, method=methods.get(job.method, job.method)), result)
        for job, result in read_finished(looped.store, looped.store.read_plan())
    ]
    monkeypatch.setattr(sys.modules[avmnist.__name__], "read_finished", lambda *_: finished)
    value = {
        name: np.mean(
            [result.about["conditions"][0]["metrics"]["accuracy"] for job, result in finished if job.method == name]
        )
        for name in ("concat", "pro:concat", "align", "pro:align")
    }
    each = [value["pro:concat"] - value["concat"], value["pro:align"] - value["align"]]
    gain, ahead = avmnist.gain_of_all(looped, ["concat", "align"], "pro")
    assert gain.difference == pytest.approx(np.mean(each))
    assert ahead == sum(difference > 0 for difference in each)
    (sentence,) = avmnist.say_gain_of_all(looped, {"concat": "LF", "refnet": "not compared"}, "pro")
    assert sentence.startswith("1 model taken together are not significantly other with the loop than without: ")
    assert avmnist.say_gain_of_all(looped, {"refnet": "not compared"}, "pro") == []


def accuracies(**methods):
    rows = [
        {"method": method, "seed": seed, "corruption": "clean", "level": 0.0, "metric": "accuracy", "value": value}
        for method, values in methods.items()
        for seed, value in enumerate(values)
    ]
    return SimpleNamespace(findings=SimpleNamespace(values=pl.DataFrame(rows)))


def test_builds_are_placed_by_their_fused_accuracy():
    image, sound, both = avmnist.WORDS
    comparisons = {
        "components-3": accuracies(**{image: [0.5, 0.6], both: [0.6, 0.62]}),
        "components-4": accuracies(**{image: [0.63, 0.65], sound: [0.4, 0.44], both: [0.7, 0.72]}),
        "components-5": accuracies(**{image: [0.7, 0.74], both: [0.78, 0.8]}),
        "clean-sound": accuracies(**{sound: [0.99, 0.99], both: [0.99, 1.0]}),
    }
    means = avmnist.means_by_build(comparisons, "components-4", "clean-sound")
    assert means["components-3"][sound] == means["components-5"][sound] == pytest.approx((0.42, 0.04 / 2**0.5))
    assert means["clean-sound"][image] == means["components-4"][image]
    [made] = additions("av-mnist-components", comparisons)
    *builds, nearest = made.verdicts
    assert builds[0] == "3 components, noisy sound: image alone 55.0 %, sound alone 42.0 %, both 61.0 %."
    assert "of LF is nearest to 4 components, noisy sound, which differs by −0.4" in nearest
    assert made.sections[0].tables[0].rows[-1][2:] == ("99.0 ± 0.0", "99.5 ± 0.7", "71.4", "+28.1")


def test_clouds_are_drawn_around_their_means():
    looks = looks_of(["a", "b"])
    clouds = [
        qmf.Cloud("a", looks["a"], [-0.5, -0.3], [80.0, 90.0]),
        qmf.Cloud("b", looks["b"], [0.1, 0.2], [60.0, 70.0]),
    ]
    figure = qmf.plot_clouds(clouds, "r", "accuracy, %", zero="r ≤ 0")
    marks = [tuple(line.get_xydata()[0]) for line in figure.axes[0].lines if line.get_markersize() == 7.5]
    assert marks == [pytest.approx((-0.4, 85.0)), pytest.approx((0.15, 65.0))]
    assert [text.get_text() for text in figure.texts][:2] == ["a", "b"]
