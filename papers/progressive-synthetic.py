"""Experiment B.1 of Progressive Fusion: a synthetic regression over a grid of noise, with two controls.

A cell is one n, η and σ₂: all trials of every net, trained side by side.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from scipy.integrate import trapezoid

from consilience.comparison.store import Result
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.data import load_data
from consilience.methods import Spec, build
from consilience.report.document import Document, Section, TextTable
from consilience.report.drawing import Drawing, looks_of
from consilience.report.plots import Line, plot_lines
from consilience.report.wording import Scale, say_level, say_list
from consilience.reproduction.study import load_script, run_from_command_line, run_study
from consilience.training.stacked_data import Trials
from consilience.training.stacked_training import train_side_by_side
from consilience.training.training_settings import TrainingSettings

TITLE = "Progressive fusion on synthetic data: when does feeding the fused features back help?"
PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, B.1"
SETS = ("progressive-synthetic",)
contour_plots = load_script(Path(__file__).with_name("progressive") / "contours.py")
STUDY = yaml.safe_load((Path(__file__).parent / "studies" / "progressive-synthetic.yaml").read_text(encoding="utf-8"))
CLAIMED_SHARE, CLAIMED_GAIN = 0.9, 0.08  # "close to 90% of all trials", "an average improvement of 8%"
HIDDEN = 16  # units of each of the two layers of a modality
EARLY_HIDDEN = 26  # units of early fusion's two layers: as many parameters as the loop, to within 3 %
NETS = STUDY["main_nets"] | STUDY["search_nets"]
FULL = STUDY["settings"] | {"nets": list(NETS)}
QUICK = FULL | STUDY["quick_settings"]
PERCENT, GAIN = Scale(100.0, 0, " %"), Scale(100.0, 1, " %")


def run(*, quick=False, settings=None, **options):
    settings = {**(QUICK if quick else FULL), **(settings or {})}
    return run_study(
        "progressive-synthetic",
        measure,
        cells_of(settings),
        {name: value for name, value in settings.items() if name not in ("sizes", "etas", "sigmas")},
        lambda results: describe(settings, results),
        measure_group=lambda cells, shared: measure_cells(cells, shared, "cuda"),
        group_of=lambda cell: cell["n"],
        quick=quick,
        **options,
    )


def cells_of(settings):
    """All cells, the smaller sizes first: they are done soon."""
    sizes, etas, sigmas = (settings[name] for name in ("sizes", "etas", "sigmas"))
    return [{"n": n, "eta": eta, "sigma": sigma} for n in sizes for eta in etas for sigma in sigmas]


def measure(cell, shared):
    return measure_cells([cell], shared)[0]


def measure_cells(cells, shared, device="cpu"):
    """Measure cells of one n, the trials of all of them side by side: a single cell would not fill a GPU.

    Each result has the arrays `NET/validation` and `NET/test` (mean squared error in units of the target's variance on
    training data) and `NET/epochs`, all `[trial]`.
    """
    train, validation, test = (part.to(device) for part in draw_cells(cells, shared))
    results, trials = [Result({**cell, "nets": {}}) for cell in cells], shared["trials"]
    for name in shared["nets"]:
        began = time.perf_counter()
        # Trial k starts with the same weights in every cell; stacking copies them.
        methods = build_net(NETS[name], shared["d"], range(trials)) * len(cells)
        training = {setting: shared[setting] for setting in ("epochs", "patience", "lr")}
        training |= {"batch_size": batch_size(train.samples), **NETS[name].get("training", {})}
        trained = train_side_by_side(methods, train, validation, TrainingSettings(**training))
        arrays = {"validation": trained.losses, "test": trained.measure(test), "epochs": trained.epochs}
        arrays = {what: values.cpu().numpy() for what, values in arrays.items()}
        parameters = sum(parameter.numel() for parameter in methods[0].parameters())
        seconds = (time.perf_counter() - began) / len(cells)
        for place, result in enumerate(results):
            own = slice(place * trials, (place + 1) * trials)
            result.arrays |= {f"{name}/{what}": values[own] for what, values in arrays.items()}
            result.about["nets"][name] = {"parameters": parameters, "seconds": seconds, "device": train.y.device.type}
    return results


def batch_size(n):
    """Some thirty steps an epoch for small sets, more for large ones."""
    return min(max(n // 32, 16), 256)


def build_net(net, d, seeds):
    """One for each seed. A loop has the first weights of its base: its own links are drawn after them."""
    early = net["method"] == "early"
    encoder = {"name": "mlp", "hidden": [EARLY_HIDDEN if early else HIDDEN] * 2, "dropout": 0.0, "normalise": False}
    modalities = {name: Modality(name, "vector", (d,)) for name in ("x1", "x2")}
    task = Task.of_numbers(np.array([-1.0, 1.0]))  # targets are standardised, each trial's by its own
    spec = Spec(modalities, task, {} if early else dict.fromkeys(modalities, encoder))
    settings = {"encoder": encoder} if early else {"width": None, **net.get("settings", {})}
    built = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built.append(build(net["method"], spec, settings))
    return built


def draw_cells(cells, shared):
    """Training, validation and test data of every trial of every cell, standardised by the trial's training data."""
    n = cells[0]["n"]

    def draw(cell, trial):
        options = {"n": n + n // 4 + shared["test"], "d": shared["d"], "eta": cell["eta"], "sigma2": cell["sigma"]}
        data = load_data(*SETS, **options, seed=trial)
        return data.samples["x1"], data.samples["x2"], data.y[:, None].astype(np.float32)

    def standardise(values):
        known = values[:, :n]
        return (values - known.mean(dim=1, keepdim=True)) / known.std(dim=1, keepdim=True, correction=0)

    pairs = [(cell, trial) for cell in cells for trial in range(shared["trials"])]
    with ThreadPoolExecutor() as pool:  # numpy draws its numbers outside the interpreter's lock
        drawn = list(pool.map(draw, *zip(*pairs)))
    x1, x2, y = (standardise(torch.from_numpy(np.stack(part))) for part in zip(*drawn))
    whole = Trials({"x1": x1, "x2": x2}, y)
    # Rows are independent draws, so the first of them are as good a split as any.
    return whole.rows(slice(n)), whole.rows(slice(n, n + n // 4)), whole.rows(slice(n + n // 4, None))


class Standing(NamedTuple):
    """A net beside the one that it is compared with, over all cells of one n, as fractions."""

    won: float  # share of trials with a gain above zero
    gain: float  # mean of 1 − error / error of the other net
    spread: float  # standard deviation of the gain over draws, each averaged over its cells
    validation: float  # the gain on validation data

    @property
    def gain_and_spread(self):
        return GAIN.signed(self.gain) + ("" if math.isnan(self.spread) else f" ± {GAIN.number(self.spread)}")


class Findings(NamedTuple):
    """Mean squared errors of every net. errors, validation: n → net → `[eta, sigma, trial]`."""

    settings: dict[str, Any]
    errors: dict[int, dict[str, np.ndarray]]
    validation: dict[int, dict[str, np.ndarray]]
    parameters: dict[str, int]

    @property
    def sizes(self):
        return sorted(self.settings["sizes"], reverse=True)

    def gains(self, n, name, validation=False):
        """1 − error / error of the net that it is compared with: `[eta, sigma, trial]`."""
        errors = (self.validation if validation else self.errors)[n]
        return 1 - errors[name] / errors[NETS[name].get("against", "late")]

    def standing(self, n, name):
        gains = self.gains(n, name)
        by_draw = gains.mean(axis=(0, 1))
        spread = by_draw.std(ddof=1) if len(by_draw) > 1 else math.nan
        return Standing((gains > 0).mean(), gains.mean(), spread, self.gains(n, name, validation=True).mean())

    def area_gains(self, n, name, over):
        """How much smaller the area under error against noise is than that of the net it is compared with.

        over: the noise of the curve; "sigma" gives `[eta, trial]`, "eta" gives `[sigma, trial]`.
        """
        levels, axis = (self.settings["sigmas"], 1) if over == "sigma" else (self.settings["etas"], 0)
        ours, base = (
            trapezoid(self.errors[n][net], levels, axis=axis) for net in (name, NETS[name].get("against", "late"))
        )
        return 1 - ours / base


def gather(settings, results):
    errors = {}
    for what in ("test", "validation"):
        cells = iter(results)
        errors[what] = {}
        for n in settings["sizes"]:
            grid = [[next(cells).arrays for _ in settings["sigmas"]] for _ in settings["etas"]]
            errors[what][n] = {
                name: np.array([[arrays[f"{name}/{what}"] for arrays in row] for row in grid], dtype=float)
                for name in settings["nets"]
            }
    parameters = {name: about["parameters"] for name, about in results[0].about["nets"].items()}
    return Findings(settings, errors["test"], errors["validation"], parameters)


def describe(settings, results):
    findings = gather(settings, results)
    nets = tuple(nets_table(findings, n) for n in findings.sizes)
    search = tuple(search_table(findings, n) for n in findings.sizes)
    reading, where = (STUDY["reading"].format(**findings.parameters),), (where_it_helps(findings),)
    sections = (
        Section("paper", "Beside the paper", tuple(STUDY["notes"]), (beside_paper(findings),)),
        Section("nets", "The loop, its controls and early fusion", reading, nets),
        Section("contour", "Where it helps", where, figures=(contours(findings),)),
        Section("areas", "Area under the error–noise curve", figures=tuple(areas(findings))),
        Section("better", "Joining stage and schedule", search_words(findings), search),
        Section("method", "How it was measured", how_measured(settings)),
    )
    return Document(TITLE, answer(findings), sections, paper=PAPER)


def answer(findings):
    largest, *smaller = findings.sizes
    add = findings.standing(largest, "add")
    sentences = [
        f"With {grouped(largest)} training samples, feeding the fused features back by addition beats the late net in "
        f"{PERCENT.number(add.won)} % of trials, and the mean squared error is {GAIN.number(abs(add.gain))} ± "
        f"{GAIN.number(add.spread)} % {'lower' if add.gain > 0 else 'higher'}. The paper says close to "
        f"{PERCENT.number(CLAIMED_SHARE)} % of trials and {PERCENT.number(CLAIMED_GAIN)} %: ours differ by "
        f"{PERCENT.signed(add.won - CLAIMED_SHARE)} and {GAIN.signed(add.gain - CLAIMED_GAIN)} points."
    ]
    for n in smaller:
        here = findings.standing(n, "add")
        sentences.append(
            f"With {grouped(n)} training samples it {'gains' if here.gain > 0 else 'loses'} "
            f"{GAIN.number(abs(here.gain))} ± {GAIN.number(here.spread)} % and wins {PERCENT.number(here.won)} % of "
            "trials."
        )
    controls = {name: findings.standing(largest, name).gain for name in ("wide", "unimodal")}
    listed = say_list(f"{short_label(name)} {GAIN.signed(gain)} %" for name, gain in controls.items())
    reason = (
        "the gain comes from what crosses between the modalities, not from more parameters or a second pass"
        if all(gain < add.gain / 4 for gain in controls.values())
        else "the gain is not owed to what crosses between the modalities alone"
    )
    return (*sentences, f"The controls at {grouped(largest)} samples: {listed}; so {reason}.")


def beside_paper(findings):
    rows = []
    for n in findings.sizes:
        for name in ("add", "concat"):
            ours, title = findings.standing(n, name), f"{short_label(name)}, n = {grouped(n)}"
            shares = (PERCENT.number(ours.won), f"≈ {PERCENT.number(CLAIMED_SHARE)}")
            gains = (ours.gain_and_spread, PERCENT.number(CLAIMED_GAIN), GAIN.signed(ours.gain - CLAIMED_GAIN))
            rows.append((title, *shares, PERCENT.signed(ours.won - CLAIMED_SHARE), *gains))
    header = ("loop", "won %", "paper", "Δ", "mean gain %", "paper", "Δ")
    caption = "Trials won and mean gain over the late net, ours and the paper's; Δ: the difference in percentage points"
    return TextTable(caption, header, tuple(rows))


def nets_table(findings, n):
    rows = []
    for name in findings.settings["nets"]:
        if name in STUDY["main_nets"]:
            ours = findings.standing(n, name)
            standing = ("", "") if name == "late" else (PERCENT.number(ours.won), ours.gain_and_spread)
            error = f"{findings.errors[n][name].mean():.3f}"
            rows.append((NETS[name]["label"], str(findings.parameters[name]), error, *standing))
    header = ("net", "parameters", "error", "won %", "gain %")
    return TextTable(f"n = {grouped(n)}: against the late net", header, tuple(rows), marked=(0,))


def search_table(findings, n):
    names = ["add", "concat", *(name for name in findings.settings["nets"] if name in STUDY["search_nets"])]
    standings, rows = {name: findings.standing(n, name) for name in names}, []
    for name, ours in sorted(standings.items(), key=lambda item: -item[1].validation):
        gains = (GAIN.signed(ours.validation), ours.gain_and_spread, PERCENT.number(ours.won))
        rows.append((short_label(name), str(findings.parameters[name]), *gains))
    header = ("loop", "parameters", "validation gain %", "test gain %", "won %")
    return TextTable(f"n = {grouped(n)}: gain over the late net, best on validation first", header, tuple(rows))


def contours(findings):
    """The paper's figure 8."""
    settings, surfaces = findings.settings, []
    for n in findings.sizes:
        title = f"n = {grouped(n)}, {PERCENT.number(findings.standing(n, 'add').won)} % of trials won"
        values = 100 * findings.gains(n, "add").mean(axis=2)
        surfaces.append(contour_plots.Surface(title, settings["sigmas"], settings["etas"], values))
    ranges = "; ".join(
        f"{surface.title}: from {signed(surface.values.min())} to {signed(surface.values.max())} %"
        for surface in surfaces
    )
    axes = ("σ₂, noise of the second modality", "η, disturbance of the first")
    return Drawing(
        "contour",
        STUDY["contour"].format(trials=settings["trials"]),
        f"Contours of the gain over η and σ₂. {ranges}",
        contour_plots.plot_contours(surfaces, *axes, len(surfaces)),
        contour_plots.plot_contours(surfaces, *axes, 1),
    )


def areas(findings):
    """The paper's figure 9, along both axes of the grid, for the largest n."""
    settings, n = findings.settings, findings.sizes[0]
    names = [name for name in settings["nets"] if name in STUDY["main_nets"] and name != "late"]
    looks = looks_of(names)
    for over, noise, against, levels in (
        ("sigma", "σ₂", "η", settings["etas"]),
        ("eta", "η", "σ₂", settings["sigmas"]),
    ):
        lines = []
        for name in names:
            gains = 100 * findings.area_gains(n, name, over)
            trials = settings["trials"]
            errors = (gains.std(axis=1, ddof=1) / math.sqrt(trials)).tolist() if trials > 1 else None
            lines.append(Line(short_label(name), looks[name], list(levels), gains.mean(axis=1).tolist(), errors))
        figure = plot_lines(lines, against, "smaller area than the late net's, %", zero="late net")
        figure.axes[0].set_xticks(levels, [say_level(level) for level in levels])
        ranges = "; ".join(f"{line.label} {signed(min(line.means))} to {signed(max(line.means))} %" for line in lines)
        yield Drawing(
            f"area-{over}",
            STUDY["area"].format(noise=noise, against=against, n=grouped(n)),
            f"Area under error against {noise}, by {against}. {ranges}",
            figure,
        )


def search_words(findings):
    loops = [name for name in findings.settings["nets"] if NETS[name]["method"].startswith("pro:")]
    best = {n: max(loops, key=lambda name: findings.standing(n, name).validation) for n in findings.sizes}
    chosen = say_list(f"`{short_label(name)}` at n = {grouped(n)}" for n, name in best.items())
    n = findings.sizes[0]
    ours, add = (findings.standing(n, name).gain_and_spread for name in (best[n], "add"))
    return tuple(text.format(chosen=chosen, n=grouped(n), ours=ours, add=add) for text in STUDY["search"])


def where_it_helps(findings):
    n, sigmas = findings.sizes[0], findings.settings["sigmas"]
    gains = [GAIN.number(gain) for gain in findings.gains(n, "add").mean(axis=(0, 2))]
    low, high = say_level(sigmas[0]), say_level(sigmas[-1])
    return STUDY["where"].format(n=grouped(n), first=gains[0], last=gains[-1], low=low, high=high)


def how_measured(settings):
    batches = say_list(f"{batch_size(n)} at n = {grouped(n)}" for n in sorted(settings["sizes"]))
    etas, sigmas = ("{" + ", ".join(map(say_level, settings[name])) + "}" for name in ("etas", "sigmas"))
    values = {"eta_set": etas, "sigma_set": sigmas, "batches": batches, "hidden": HIDDEN}
    return tuple(text.format(**settings, **values, tested=grouped(settings["test"])) for text in STUDY["how"])


def short_label(name):
    return NETS[name]["label"].removeprefix("control: ").removeprefix("progressive, ")


def grouped(count):
    return f"{count:,}".replace(",", "\u202f")


def signed(value):
    return f"{value:+.1f}".replace("-", "−")


if __name__ == "__main__":
    run_from_command_line(run)
