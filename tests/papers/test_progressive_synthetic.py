"""Experiment B.1: its data and nets, what it concludes, and a run that goes on where it stopped."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from consilience.comparison.store import Store
from consilience.core.errors import InputError, TrainingError
from consilience.data import load_data
from consilience.reproduction import study
from consilience.reproduction.study import Cell
from consilience.training.stacked_data import trial_batch
from paper_scripts import script

synthetic = script("progressive-synthetic")
contours = synthetic.contour_plots
NETS, FULL, QUICK = synthetic.NETS, synthetic.FULL, synthetic.QUICK
MAIN = synthetic.STUDY["main_nets"]
TINY = FULL | {"sizes": [20, 40], "etas": [0.0, 2.0], "sigmas": [0.0, 1.0], "trials": 2, "test": 30, "epochs": 2}
TINY["nets"] = [*MAIN, "add-2"]


def parameters(name):
    return sum(one.numel() for one in synthetic.build_net(NETS[name], 4, [0])[0].parameters())


def test_data_are_those_of_the_named_set_standardised_by_what_is_trained_on():
    cells = [{"n": 40, "eta": 0.0, "sigma": 0.0}, {"n": 40, "eta": 2.0, "sigma": 1.0}]
    train, validation, test = synthetic.draw_cells(cells, TINY)
    assert (len(train), train.samples, validation.samples, test.samples) == (4, 40, 10, 30)
    raw = load_data("progressive-synthetic", n=80, eta=2.0, sigma2=1.0, seed=1)
    for got, told in ((test.values["x2"][3], raw.samples["x2"]), (test.y[3], raw.y[:, None])):
        expected = (told[50:] - told[:40].mean(axis=0)) / told[:40].std(axis=0)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
    # A trial is one draw of matrices and latents, whatever the cell: the target does not see η and σ₂.
    assert torch.equal(train.y[0], train.y[2])
    assert not torch.equal(train.y[0], train.y[1])


def test_a_loop_starts_as_its_base_and_the_controls_match_it():
    torch.manual_seed(0)
    batch = trial_batch({"x1": torch.randn(5, 4), "x2": torch.randn(5, 4)}, torch.randn(5, 1))
    base, *others = (
        synthetic.build_net(NETS[name], 4, [3])[0](batch).output for name in ("late", "add", "concat-2", "unimodal")
    )
    for other in others:
        assert torch.equal(other, base)
    loop = parameters("add")
    assert loop == parameters("late") + 2 * 32 * 4
    assert parameters("wide") == pytest.approx(loop, rel=0.01)
    assert parameters("early") == pytest.approx(loop, rel=0.04)


def test_cells_together_find_what_each_finds_alone():
    settings = TINY | {"nets": ["late", "add"]}
    cells = [{"n": 20, "eta": eta, "sigma": 1.0} for eta in (0.0, 2.0)]
    together = synthetic.measure_cells(cells, settings)
    for cell, result in zip(cells, together):
        alone = synthetic.measure(cell, settings)
        assert result.arrays.keys() == alone.arrays.keys()
        for name, values in result.arrays.items():
            np.testing.assert_allclose(values, alone.arrays[name], rtol=1e-4)


@pytest.fixture(scope="module")
def invented():
    rng = np.random.default_rng(0)
    settings = FULL | {"trials": 5}
    shape = (len(settings["etas"]), len(settings["sigmas"]), 5)
    errors, validation = (
        {n: {name: rng.uniform(0.5, 1.5, shape) for name in NETS} for n in settings["sizes"]} for _ in range(2)
    )
    return synthetic.Findings(settings, errors, validation, dict.fromkeys(NETS, 100))


def test_areas_are_those_of_scipy(invented):
    errors = invented.errors[1500]
    sigmas, etas = invented.settings["sigmas"], invented.settings["etas"]
    expected = 1 - trapezoid(errors["add"], sigmas, axis=1) / trapezoid(errors["late"], sigmas, axis=1)
    np.testing.assert_allclose(invented.area_gains(1500, "add", "sigma"), expected)
    expected = 1 - trapezoid(errors["wide"], etas, axis=0) / trapezoid(errors["late"], etas, axis=0)
    np.testing.assert_allclose(invented.area_gains(1500, "wide", "eta"), expected)


def test_standings_by_hand(invented):
    errors, validation = invented.errors[200], invented.validation[200]
    one = invented.standing(200, "add-cosine")  # beside the late net that was trained in the same way
    mine, base = errors["add-cosine"], errors["late-cosine"]
    assert one.won == np.mean(mine < base)
    assert one.gain == pytest.approx(np.mean((base - mine) / base))
    assert one.spread == pytest.approx(np.std([np.mean(1 - mine[..., k] / base[..., k]) for k in range(5)], ddof=1))
    assert one.validation == pytest.approx(np.mean(1 - validation["add-cosine"] / validation["late-cosine"]))


def with_gains(findings, gains):
    errors = {n: {name: np.full_like(one, 1 - gains.get(name, 0.0)) for name, one in nets.items()}
              for n, nets in findings.errors.items()}  # fmt: skip
    return findings._replace(errors=errors, validation=errors)


def test_the_answer_says_what_was_found(invented):
    first, *smaller, last = synthetic.answer(with_gains(invented, {"add": 0.05, "wide": 0.01}))
    assert "in 100 % of trials, and the mean squared error is 5.0 ± 0.0 % lower" in first
    assert "ours differ by +10 and −3.0 points" in first
    assert smaller[0].startswith("With 1\u202f500 training samples it gains 5.0")
    assert "wide net +1.0 % and unimodal feedback 0.0 %" in last
    assert "comes from what crosses between the modalities" in last
    shared = with_gains(invented, {"add": 0.02, "unimodal": 0.01, "add-2": 0.03})
    assert "not owed to what crosses between the modalities alone" in synthetic.answer(shared)[-1]
    assert synthetic.search_table(shared, 200).rows[0][0] == "add into layer 2"
    lost = synthetic.answer(with_gains(invented, {"add": -0.02}))
    assert "2.0 ± 0.0 % higher" in lost[0]
    assert "it loses 2.0" in lost[1]


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = {"settings": TINY, "out": tmp_path / "run", "verbose": 0}
    done = synthetic.run(**settings)
    page = done.page.read_text(encoding="utf-8")
    assert done.page == tmp_path / "run" / "report.html"
    labels = (NETS[name]["label"] for name in MAIN)
    for text in (synthetic.TITLE, *labels, 'id="figure-contour"', 'id="figure-area-eta"'):
        assert text in page
    assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} == {
        f"{name}.{ending}" for name in ("contour", "area-sigma", "area-eta") for ending in ("svg", "png")
    }
    markdown = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert "(figures/contour.png)" in markdown
    assert done.document.table("markdown").splitlines()[0] in markdown

    store, measured = Store(tmp_path / "run"), []
    lost = Cell(**store.read_plan()["jobs"][3])
    store.discard(lost)
    real = synthetic.measure
    monkeypatch.setattr(study, "write_document", lambda document, folder: folder / "report.html")  # drawing takes long
    monkeypatch.setattr(synthetic, "measure", lambda *given: measured.append(given[0]) or real(*given))
    again = synthetic.run(**settings)
    assert measured == [lost.settings] == [{"n": 20, "eta": 2.0, "sigma": 1.0}]
    assert again.document.table("latex") == done.document.table("latex")

    with pytest.raises(InputError, match="trials was 2, now 3"):
        synthetic.run(**settings | {"settings": TINY | {"trials": 3}})
    store.discard(lost)
    monkeypatch.setattr(synthetic, "measure", lambda *given: 1 / 0)
    with pytest.raises(TrainingError, match=r"n 20, eta 2.0, sigma 1.0: ZeroDivisionError"):
        synthetic.run(**settings)


def test_all_open_cells_of_a_size_are_measured_at_once_on_a_gpu(tmp_path, monkeypatch):
    asked, measure_cells = [], synthetic.measure_cells

    def measure(cells, shared, device):
        asked.append(([cell["n"] for cell in cells], device))
        return measure_cells(cells, shared)

    monkeypatch.setattr(synthetic, "measure_cells", measure)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(study, "write_document", lambda document, folder: folder / "report.html")
    synthetic.run(settings=TINY, out=tmp_path / "run", verbose=0)
    assert asked == [([20] * 4, "cuda"), ([40] * 4, "cuda")]


def test_the_quick_form_is_smaller_and_has_both_controls():
    assert {"wide", "unimodal", "early"} <= set(QUICK["nets"]) <= set(NETS)
    quick, full = (len(synthetic.cells_of(settings)) * settings["trials"] for settings in (QUICK, FULL))
    assert quick < full / 10


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=5))
def test_contour_levels_are_few_round_and_around_all_values(values):
    levels = contours.contour_levels(np.array(values))
    assert 0 in levels
    assert levels[0] <= min(values) + 1e-9
    assert levels[-1] >= max(values) - 1e-9
    assert 2 <= len(levels) <= 12
    np.testing.assert_allclose(np.diff(levels), levels[1] - levels[0])


def test_contours_share_one_scale():
    surfaces = [contours.Surface(str(k), (0, 1), (0, 1, 2), np.full((3, 2), 4.0) * k + np.eye(3, 2)) for k in (-1, 1)]
    figure = contours.plot_contours(surfaces, "x", "y", 2)
    first, second = figure.axes
    assert (first.get_xlabel(), second.get_title(loc="left")) == ("x", "1")
    assert figure.get_figwidth() > contours.plot_contours(surfaces, "x", "y", 1).get_figwidth()
