"""The experiments of the QMF paper: its figures as typed, correlations over seeds, verdicts, sections of the pages."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from consilience import compare
from consilience.comparison.comparison import Comparison
from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments.qmf_tables import ablation, estimators, gap, paper, protocol, robustness
from consilience.comparison.experiments.qmf_tables.correlations import correlations, follows_closer, verdicts_on
from consilience.report.palette import looks_of
from consilience.report.scatter import Cloud, plot_clouds

NAMES = ("qmf-table1", "qmf-table2", "qmf-table3", "qmf-table5", "qmf-table6", "qmf-figure1", "qmf-figure3")


def test_typed_figures_agree_with_each_other():
    pairs = [pair for rows in paper.TABLE_1.values() for row in rows.values() for pair in row]
    pairs += [pair for row in paper.TABLE_2.values() for pair in row]
    assert all(0 < worst <= mean < 100 for mean, worst in pairs)
    means = {name: [[pair[0] for pair in row] for row in table.values()] for name, table in _mvsa().items()}
    np.testing.assert_allclose(means["5"], means["1"], atol=0.011)  # rounded twice
    np.testing.assert_allclose(np.array(means["6"])[:, 0], np.array(means["1"])[:, 0], atol=0.031)


def _mvsa():
    return {"1": paper.TABLE_1["MVSA"], "5": paper.TABLE_5, "6": paper.TABLE_6}


def test_what_is_set_beside_ours_is_free_of_noise_unless_the_noise_is_the_papers():
    known = find_experiment("qmf-table1").published
    noisy = {(part, method) for part, method, _, level in known if level}
    assert noisy == {(protocol.WORDS, "unimodal:text")}
    assert known["mvsa", "qmf", "clean", 0.0] == 0.7807
    assert known[protocol.WORDS, "unimodal:text", protocol.GAUSSIAN, 10.0] == 0.4157
    assert find_experiment("qmf-table1").published_worst["mvsa", "tmc", "clean", 0.0] == 0.7110


def test_ranks_and_gaps_of_the_papers_table():
    places = robustness.places_in_paper()
    assert len(places) == 12
    assert places[0] == (5, 4)  # NYU without noise: MMTM, TMC, Align and Concat are ahead; by the worst seed not Align
    assert [place[0] for place in places[1:3]] == [1, 1]
    assert gap.gaps_in_paper()["MVSA", "Late fusion"] == pytest.approx([76.88 - 75.61, 63.46 - 69.50, 55.16 - 47.41])


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
    found = correlations(diagnosed({"qmf": -0.6, "qmf@msp": 0.2}), 10.0)
    assert list(found) == ["qmf", "qmf@msp"]
    assert np.mean([*found["qmf"].values()]) == pytest.approx(-0.6, abs=0.02)
    assert np.std([*found["qmf"].values()]) < 0.03  # the modalities' own distance of 0.2 is averaged out


def test_verdicts_on_correlations_are_corrected_over_all_tests():
    comparison = diagnosed({"qmf": -0.6, "worse": -0.2, "better": -0.8})
    checks = [follows_closer(f"QMF knows {name}", comparison, 10.0, "qmf", name) for name in ("worse", "better")]
    found, opposite = verdicts_on(checks)
    assert found.startswith("QMF knows worse. Found: r = −0.6")
    mean = {name: np.mean(list(seeds.values())) for name, seeds in correlations(comparison, 10.0).items()}
    assert f", apart by −{mean['worse'] - mean['qmf']:.3f} (−0." in found
    assert f", apart by {mean['qmf'] - mean['better']:.3f} (0." in opposite
    assert opposite.startswith("QMF knows better. The opposite is found: r = −0.6")
    assert found.endswith("p = 0.016.")  # 2 tests × the smallest p of 8 seeds, 2⁻⁷
    few = diagnosed({"qmf": -0.6, "worse": -0.2}, seeds=3)
    [undecided] = verdicts_on([follows_closer("Anyhow", few, 10.0, "qmf", "worse")])
    assert undecided.startswith("Anyhow. Not decided: r = −0.6")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """All methods of these experiments on a set so small that it takes the place of all of theirs."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=90)
    folder = tmp_path_factory.mktemp("qmf")
    np.savez(
        folder / "small.npz",
        image=np.eye(3)[y] + rng.normal(scale=0.6, size=(90, 3)),
        text=np.eye(3)[y] + rng.normal(scale=0.9, size=(90, 3)),
        y=y,
    )
    settings = ablation.SETTINGS | estimators.SETTINGS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparison, "report", lambda *_: None)  # a page takes longer to draw than all of this to train
        return compare(
            folder / "small.npz",
            ["best-unimodal", "late", "qmf", *settings],
            corruption=protocol.GAUSSIAN,
            levels=ablation.LEVELS,
            seeds=2,
            settings=settings,
            encoders={name: {"name": "mlp", "hidden": [8]} for name in ("image", "text")},
            training={"epochs": 1},
            out=folder / "run",
            verbose=0,
        )


def table_of(sections, name, place=0):
    return next(section for section in sections if section.name == name).tables[place]


def test_sections_show_what_was_measured(compared):
    assert not len(compared.findings.failed)
    values = compared.findings.values.filter(method="qmf", metric="accuracy", level=10.0)["value"].to_numpy()
    sections = {name: find_experiment(name).more({"mvsa": compared}) for name in NAMES}
    beside = table_of(sections["qmf-table1"], "paper-noise")
    assert beside.header[:3] == ("method", "ε = 0", "paper")
    assert beside.rows[-1][0] == "qmf"
    assert beside.rows[-1][6] == "61.28 (57.61)"
    assert beside.rows[-1][5].startswith(f"{100 * values.mean():.1f} ±")
    assert float(table_of(sections["qmf-figure3"], "clouds").rows[-1][2]) == pytest.approx(
        100 * values.mean(), abs=0.06
    )
    assert float(table_of(sections["qmf-figure3"], "clouds").rows[-1][3]) == pytest.approx(100 * values.min(), abs=0.06)
    r = compared.trust().filter(method="qmf", level=10.0)["r"].mean()
    told = table_of(sections["qmf-table3"], "correlations").rows[-1][3].split(" ± ")[0].replace("−", "-")
    assert float(told) == pytest.approx(r, abs=0.006)
    rows = {row[0]: row[1:] for row in table_of(sections["qmf-table2"], "correlations").rows}
    assert set(rows) >= {"qmf", "qmf@weights", "qmf@paper"}
    assert not set(rows) & {"qmf@neither", "qmf@ranking", "late"}  # equal weights have no correlation
    spread = dict(zip(("set", 0.0, 1.0), table_of(sections["qmf-table5"], "spread").rows[0]))
    stds = compared.findings.values.filter(metric="accuracy", level=0.0).group_by("method").agg(pl.col("value").std())
    assert float(spread[0.0]) == pytest.approx(100 * stds["value"].mean(), abs=0.006)
    assert len(next(one for one in sections["qmf-figure1"] if one.name == "gap").figures) == 1


def test_verdicts_speak_of_every_part(compared):
    for name in ("qmf-table2", "qmf-table3", "qmf-table5", "qmf-figure3"):
        told = " ".join(find_experiment(name).verdicts({"mvsa": compared, "av-mnist": compared})).lower()
        assert told.count("on mvsa ") == told.count("on av-mnist ") > 0


def test_accuracy_that_follows_correlation_is_noticed(monkeypatch):
    found = {f"m{place}": dict.fromkeys(range(8), -0.1 * place) for place in range(4)}
    comparison = SimpleNamespace(findings=SimpleNamespace(seeds=list(range(8))))
    monkeypatch.setattr(estimators, "correlations", lambda *_: found)
    for sign in (1, -1):
        right = {method: {seed: 0.5 - sign * r for seed, r in seeds.items()} for method, seeds in found.items()}
        monkeypatch.setattr(estimators, "accuracies", lambda *_, right=right: right)
        test = estimators.accuracy_follows("here", comparison)
        assert test.row["difference"] == pytest.approx(sign)
        assert test.row["p"] == pytest.approx(2**-7)


def test_clouds_are_drawn_around_their_means():
    looks = looks_of(["a", "b"])
    clouds = [Cloud("a", looks["a"], [-0.5, -0.3], [80.0, 90.0]), Cloud("b", looks["b"], [0.1, 0.2], [60.0, 70.0])]
    figure = plot_clouds(clouds, "r", "accuracy, %", zero="r ≤ 0")
    marks = [tuple(line.get_xydata()[0]) for line in figure.axes[0].lines if line.get_markersize() == 7.5]
    assert marks == [pytest.approx((-0.4, 85.0)), pytest.approx((0.15, 65.0))]
    assert [text.get_text() for text in figure.texts][:2] == ["a", "b"]
