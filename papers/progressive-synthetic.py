"""Experiment B.1 of Progressive Fusion: a synthetic regression over a grid of noise, with two controls.

A cell is one n, η and σ₂: all trials of every net, trained side by side.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.integrate import trapezoid

from consilience.comparison.store import Result
from consilience.comparison.study import run_from_command_line, run_study
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.data import load_data
from consilience.methods import Spec, build
from consilience.report.contours import Surface, plot_contours
from consilience.report.curves import Line, plot_lines
from consilience.report.document import Account, Section, TextTable
from consilience.report.drawing import Drawing
from consilience.report.palette import looks_of
from consilience.report.wording import Scale, say_level, say_list
from consilience.training.stacked_data import Trials
from consilience.training.stacked_training import train_side_by_side

TITLE = "Progressive fusion on synthetic data: when does feeding the fused features back help?"
PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, B.1"
NOTES = (
    "The paper gives neither the number of samples, the widths, the optimizer nor the range of η and σ₂; ours are on "
    "the page. The gain depends on all of them, on the number of samples and on σ₂ most.",
    "Equation 3 is printed without its sign; the sum is meant.",
)
CLAIMED_SHARE, CLAIMED_GAIN = 0.9, 0.08  # "close to 90% of all trials", "an average improvement of 8%"
HIDDEN = 16  # units of each of the two layers of a modality
EARLY_HIDDEN = 26  # units of early fusion's two layers: as many parameters as the loop, to within 3 %


class Net(NamedTuple):
    """A net to train: its label in tables, the method with its settings, and the net that it is compared with."""

    label: str
    method: str
    settings: dict[str, Any] = {}
    training: dict[str, Any] = {}  # what differs from the other nets
    against: str = "late"


MAIN = {
    "late": Net("late net", "concat"),
    "add": Net("progressive, add", "pro:concat", {"mode": "add"}),
    "concat": Net("progressive, concat", "pro:concat", {"mode": "concat"}),
    "wide": Net("control: wide net", "wide:concat", {"mode": "add"}),
    "unimodal": Net("control: unimodal feedback", "unimodal-feedback:concat", {"mode": "add"}),
    "early": Net("early fusion", "early"),
}
COSINE = {"schedule": "cosine", "patience": 10**6}  # to the last epoch, where the learning rate is lowest
# Where the feedback joins, how many passes there are, and how the loop is trained; chosen on validation data.
SEARCH = {
    "add-2": Net("add into layer 2", "pro:concat", {"mode": "add", "into": "block2"}),
    "concat-2": Net("concat into layer 2", "pro:concat", {"mode": "concat", "into": "block2"}),
    "add-r3": Net("add, R = 3", "pro:concat", {"mode": "add", "steps": 3}),
    "add-r4": Net("add, R = 4", "pro:concat", {"mode": "add", "steps": 4}),
    "concat-r3": Net("concat, R = 3", "pro:concat", {"mode": "concat", "steps": 3}),
    "add-losses": Net("add, loss at each pass", "pro:concat", {"mode": "add", "step_loss": 0.5}),
    "add-detach": Net("add, passes detached", "pro:concat", {"mode": "add", "detach": True}),
    "late-cosine": Net("no loop, cosine", "concat", training=COSINE),
    "add-cosine": Net("add, cosine", "pro:concat", {"mode": "add"}, COSINE, "late-cosine"),
}
NETS = MAIN | SEARCH
# sizes: training samples n; a quarter as many validate. etas: how far the content of x2 disturbs x1. sigmas: the noise
# of x2. trials: draws of matrices, data and first weights; trial k is the same draw in every cell.
FULL = {
    "sizes": (200, 1500, 20_000),
    "etas": (0.0, 0.5, 1.0, 1.5, 2.0),
    "sigmas": (0.0, 0.25, 0.5, 0.75, 1.0),
    "trials": 30,
    "test": 10_000,
    "d": 4,
    "nets": tuple(NETS),
    "epochs": 80,
    "patience": 15,
    "lr": 0.003,
}
QUICK = {
    **FULL,
    "sizes": (200, 2000),
    "etas": (0.0, 1.0, 2.0),
    "sigmas": (0.0, 0.5, 1.0),
    "trials": 6,
    "test": 4000,
    "nets": (*MAIN, "add-2"),
    "epochs": 40,
    "patience": 8,
}
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


# Measuring


def measure(cell, shared):
    return measure_cells([cell], shared)[0]


def measure_cells(cells, shared, device="cpu"):
    """Measure cells of one n, the trials of all of them side by side: a single cell would not fill a GPU.

    Each result has the arrays `NET/validation` and `NET/test` (mean squared error in units of the target's variance on
    training data) and `NET/epochs`, all `[trial]`.
    """
    parts = [part.to(device) for part in draw_cells(cells, shared)]
    results = [Result({**cell, "nets": {}}) for cell in cells]
    for name in shared["nets"]:
        arrays, about = measure_net(name, shared, *parts)
        for place, result in enumerate(results):
            own = slice(place * shared["trials"], (place + 1) * shared["trials"])
            result.arrays |= {f"{name}/{what}": values[own] for what, values in arrays.items()}
            result.about["nets"][name] = {**about, "seconds": about["seconds"] / len(cells)}
    return results


def measure_net(name, shared, train, validation, test):
    began = time.perf_counter()
    # Trial k starts with the same weights in every cell; stacking copies them.
    methods = build_net(NETS[name], shared["d"], range(shared["trials"])) * (len(train) // shared["trials"])
    training = {setting: shared[setting] for setting in ("epochs", "patience", "lr")}
    training |= {"batch_size": batch_size(train.samples), **NETS[name].training}
    trained = train_side_by_side(methods, train, validation, **training)
    arrays = {"validation": trained.losses, "test": trained.measure(test), "epochs": trained.epochs}
    about = {
        "parameters": sum(parameter.numel() for parameter in methods[0].parameters()),
        "seconds": time.perf_counter() - began,
        "device": train.y.device.type,
    }
    return {what: values.cpu().numpy() for what, values in arrays.items()}, about


def batch_size(n):
    """Some thirty steps an epoch for small sets, more for large ones."""
    return min(max(n // 32, 16), 256)


def build_net(net, d, seeds):
    """One for each seed. A loop has the first weights of its base: its own links are drawn after them."""
    early = net.method == "early"
    encoder = {"name": "mlp", "hidden": [EARLY_HIDDEN if early else HIDDEN] * 2, "dropout": 0.0, "normalise": False}
    modalities = {name: Modality(name, "vector", (d,)) for name in ("x1", "x2")}
    task = Task.of_numbers(np.array([-1.0, 1.0]))  # targets are standardised, each trial's by its own
    spec = Spec(modalities, task, {} if early else dict.fromkeys(modalities, encoder))
    settings = {"encoder": encoder} if early else {"width": None, **net.settings}
    built = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built.append(build(net.method, spec, settings))
    return built


def draw_cells(cells, shared):
    """Training, validation and test data of every trial of every cell, standardised by the trial's training data."""
    n = cells[0]["n"]

    def draw(cell, trial):
        options = {"n": n + n // 4 + shared["test"], "d": shared["d"], "eta": cell["eta"], "sigma2": cell["sigma"]}
        data = load_data("progressive-synthetic", **options, seed=trial)
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


# Summing up


@dataclass(frozen=True)
class Findings:
    """Mean squared errors of every net. errors, validation: n → net → `[eta, sigma, trial]`."""

    settings: dict[str, Any]
    errors: dict[int, dict[str, np.ndarray]]
    validation: dict[int, dict[str, np.ndarray]]
    parameters: dict[str, int] = field(default_factory=dict)

    @property
    def sizes(self):
        return sorted(self.settings["sizes"], reverse=True)

    def gains(self, n, name, validation=False):
        """1 − error / error of the net that it is compared with: `[eta, sigma, trial]`."""
        errors = (self.validation if validation else self.errors)[n]
        return 1 - errors[name] / errors[NETS[name].against]

    def won(self, n, name):
        """The share of trials with a gain above zero."""
        return float((self.gains(n, name) > 0).mean())

    def gain(self, n, name, validation=False):
        return float(self.gains(n, name, validation).mean())

    def spread(self, n, name):
        """The standard deviation of the gain over draws, each averaged over its cells."""
        by_draw = self.gains(n, name).mean(axis=(0, 1))
        return float(by_draw.std(ddof=1)) if len(by_draw) > 1 else float("nan")

    def gain_and_spread(self, n, name):
        spread = self.spread(n, name)
        return GAIN.signed(self.gain(n, name)) + ("" if math.isnan(spread) else f" ± {GAIN.number(spread)}")

    def area_gains(self, n, name, over):
        """How much smaller the area under error against noise is than that of the net it is compared with.

        over: the noise of the curve; "sigma" gives `[eta, trial]`, "eta" gives `[sigma, trial]`.
        """
        levels, axis = (self.settings["sigmas"], 1) if over == "sigma" else (self.settings["etas"], 0)
        ours, base = (trapezoid(self.errors[n][net], levels, axis=axis) for net in (name, NETS[name].against))
        return 1 - ours / base


def gather(settings, results):
    shape = [len(settings[name]) for name in ("sizes", "etas", "sigmas")]

    def grids(what):
        stacked = {}
        for name in settings["nets"]:
            values = np.array([result.arrays[f"{name}/{what}"] for result in results], dtype=float)
            stacked[name] = values.reshape(*shape, settings["trials"])
        return {
            n: {name: values[place] for name, values in stacked.items()} for place, n in enumerate(settings["sizes"])
        }

    parameters = {name: about["parameters"] for name, about in results[0].about["nets"].items()}
    return Findings(settings, grids("test"), grids("validation"), parameters)


# The page


def describe(settings, results):
    findings = gather(settings, results)
    nets = tuple(nets_table(findings, n) for n in findings.sizes)
    search = tuple(search_table(findings, n) for n in findings.sizes)
    sections = (
        Section("paper", "Beside the paper", NOTES, (beside_paper(findings),)),
        Section("nets", "The loop, its controls and early fusion", reading(findings), nets),
        Section("contour", "Where it helps", where_it_helps(findings), figures=(contours(findings),)),
        Section("areas", "Area under the error–noise curve", figures=tuple(areas(findings))),
        Section("better", "Joining stage and schedule", search_words(findings), search),
        Section("method", "How it was measured", how_measured(settings)),
    )
    return Account(TITLE, answer(findings), sections, paper=PAPER)


def answer(findings):
    largest, *smaller = findings.sizes
    gain, won = findings.gain(largest, "add"), findings.won(largest, "add")
    sentences = [
        f"With {grouped(largest)} training samples, feeding the fused features back by addition beats the late net in "
        f"{PERCENT.number(won)} % of trials, and the mean squared error is {GAIN.number(abs(gain))} ± "
        f"{GAIN.number(findings.spread(largest, 'add'))} % {'lower' if gain > 0 else 'higher'}. The "
        f"paper says close to {PERCENT.number(CLAIMED_SHARE)} % of trials and {PERCENT.number(CLAIMED_GAIN)} %: ours "
        f"differ by {PERCENT.signed(won - CLAIMED_SHARE)} and {GAIN.signed(gain - CLAIMED_GAIN)} points."
    ]
    for n in smaller:
        here = findings.gain(n, "add")
        sentences.append(
            f"With {grouped(n)} training samples it {'gains' if here > 0 else 'loses'} {GAIN.number(abs(here))} ± "
            f"{GAIN.number(findings.spread(n, 'add'))} % and wins {PERCENT.number(findings.won(n, 'add'))} % of trials."
        )
    controls = {name: findings.gain(largest, name) for name in ("wide", "unimodal")}
    listed = say_list(f"{short_label(name)} {GAIN.signed(control)} %" for name, control in controls.items())
    reason = (
        "the gain comes from what crosses between the modalities, not from more parameters or a second pass"
        if all(control < gain / 4 for control in controls.values())
        else "the gain is not owed to what crosses between the modalities alone"
    )
    return (*sentences, f"The controls at {grouped(largest)} samples: {listed}; so {reason}.")


def beside_paper(findings):
    rows = []
    for n in findings.sizes:
        for name in ("add", "concat"):
            won, gain = findings.won(n, name), findings.gain(n, name)
            shares = (PERCENT.number(won), f"≈ {PERCENT.number(CLAIMED_SHARE)}", PERCENT.signed(won - CLAIMED_SHARE))
            ours = findings.gain_and_spread(n, name)
            gains = (ours, PERCENT.number(CLAIMED_GAIN), GAIN.signed(gain - CLAIMED_GAIN))
            rows.append((f"{short_label(name)}, n = {grouped(n)}", *shares, *gains))
    header = ("loop", "won %", "paper", "Δ", "mean gain %", "paper", "Δ")
    caption = "Trials won and mean gain over the late net, ours and the paper's; Δ: the difference in percentage points"
    return TextTable(caption, header, tuple(rows))


def nets_table(findings, n):
    rows = []
    for name in findings.settings["nets"]:
        if name in MAIN:
            late = name == "late"
            standing = ("", "") if late else (PERCENT.number(findings.won(n, name)), findings.gain_and_spread(n, name))
            error = f"{findings.errors[n][name].mean():.3f}"
            rows.append((NETS[name].label, str(findings.parameters[name]), error, *standing))
    header = ("net", "parameters", "error", "won %", "gain %")
    return TextTable(f"n = {grouped(n)}: against the late net", header, tuple(rows), marked=(0,))


def contours(findings):
    """The paper's figure 8."""
    settings, surfaces = findings.settings, []
    for n in findings.sizes:
        title = f"n = {grouped(n)}, {PERCENT.number(findings.won(n, 'add'))} % of trials won"
        values = 100 * findings.gains(n, "add").mean(axis=2)
        surfaces.append(Surface(title, settings["sigmas"], settings["etas"], values))
    ranges = "; ".join(
        f"{surface.title}: from {signed(surface.values.min())} to {signed(surface.values.max())} %"
        for surface in surfaces
    )
    axes = ("σ₂, noise of the second modality", "η, disturbance of the first")
    return Drawing(
        "contour",
        "Gain of progressive fusion by addition over the late net, in per cent of the latter's mean squared error: the "
        f"mean of {settings['trials']} trials at each dot. Blue is a gain, orange a loss. (The paper's figure 8.)",
        f"Contours of the gain over η and σ₂. {ranges}",
        plot_contours(surfaces, *axes, len(surfaces)),
        plot_contours(surfaces, *axes, 1),
    )


def areas(findings):
    """The paper's figure 9, along both axes of the grid, for the largest n."""
    settings, n = findings.settings, findings.sizes[0]
    names = [name for name in settings["nets"] if name in MAIN and name != "late"]
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
            f"Area under the mean squared error against {noise}, for each {against}: how much smaller than the "
            f"late net's it is, n = {grouped(n)}, mean and standard error over trials. (The paper's figure 9, "
            "whose AUC is an area under an error: more is better here.)",
            f"Area under error against {noise}, by {against}. {ranges}",
            figure,
        )


def search_table(findings, n):
    names = ["add", "concat", *(name for name in findings.settings["nets"] if name in SEARCH)]
    names.sort(key=lambda name: -findings.gain(n, name, validation=True))
    rows = [
        (
            short_label(name),
            str(findings.parameters[name]),
            GAIN.signed(findings.gain(n, name, validation=True)),
            findings.gain_and_spread(n, name),
            PERCENT.number(findings.won(n, name)),
        )
        for name in names
    ]
    header = ("loop", "parameters", "validation gain %", "test gain %", "won %")
    return TextTable(f"n = {grouped(n)}: gain over the late net, best on validation first", header, tuple(rows))


def search_words(findings):
    loops = [name for name in findings.settings["nets"] if NETS[name].method.startswith("pro:")]
    best = {n: max(loops, key=lambda name: findings.gain(n, name, validation=True)) for n in findings.sizes}
    chosen = say_list(f"`{short_label(name)}` at n = {grouped(n)}" for n, name in best.items())
    n = findings.sizes[0]
    return (
        f"Chosen by validation data alone; test figures stand beside them for the record. Best on validation: {chosen}.",
        f"At n = {grouped(n)} the chosen one gains {findings.gain_and_spread(n, best[n])} % on test data, and addition "
        f"into the input {findings.gain_and_spread(n, 'add')} %.",
    )


def where_it_helps(findings):
    n, sigmas = findings.sizes[0], findings.settings["sigmas"]
    by_sigma = findings.gains(n, "add").mean(axis=(0, 2))
    return (
        f"At n = {grouped(n)} the gain is {GAIN.number(by_sigma[0])} % at σ₂ = {say_level(sigmas[0])} and "
        f"{GAIN.number(by_sigma[-1])} % at σ₂ = {say_level(sigmas[-1])}: how clean the second modality is decides "
        "what can be learned from feeding it to the first.",
    )


def reading(findings):
    return (
        f"The wide net has {findings.parameters['wide']} parameters, the loop {findings.parameters['add']}. With "
        "unimodal feedback each modality is read twice as in the loop, and hears only itself. Early fusion, which "
        "joins the inputs, is a reference and no control: it gives up what late fusion is chosen for. Errors are in "
        "units of the target's variance; its own noise is part of them. Gains are mean ± standard deviation over "
        "draws.",
    )


def how_measured(settings):
    batches = say_list(f"{batch_size(n)} at n = {grouped(n)}" for n in sorted(settings["sizes"]))
    etas, sigmas = ("{" + ", ".join(map(say_level, settings[name])) + "}" for name in ("etas", "sigmas"))
    return (
        f"Data: Z ~ U[−2.5, 2.5]^{settings['d']}; x1 = lReLU(W₁Z) + 2|η| sin(W₂Z) + ε₁, x2 = sin(W₂Z) + σ₂ε₂, y = W_y "
        f"Z + ε_y, matrices and noise standard normal. η in {etas}, σ₂ in {sigmas}; {settings['trials']} "
        "trials a cell, each with matrices, data and first weights of its own; trial k is the same draw in every cell "
        f"and for every net. n samples to train on, n / 4 to stop early, {grouped(settings['test'])} to test.",
        f"Nets: two layers of {HIDDEN} ReLU units a modality, side by side, a linear head. A loop runs encoders and "
        "fusion R times, R = 2 unless told, and feeds the concatenated features back into the input through a linear "
        "map without bias: added to it, or concatenated. All are methods of this library (`concat`, `pro:concat`, "
        "`wide:concat`, `unimodal-feedback:concat`, `early`).",
        f"Training: inputs and target standardised, Adam with learning rate {settings['lr']:g}, batches of {batches}, "
        f"at most {settings['epochs']} epochs, stopped after {settings['patience']} without a lower validation loss, "
        "each trial at its best epoch. All trials of a cell train side by side as one batched model.",
        "Gain is 1 − error / error of the late net, trial by trial; a trial is won where it is above zero. The spread "
        "is over draws, each averaged over its cells. Areas are by trapezia over the grid.",
    )


def short_label(name):
    return NETS[name].label.removeprefix("control: ").removeprefix("progressive, ")


def grouped(count):
    return f"{count:,}".replace(",", "\u202f")


def signed(value):
    return f"{value:+.1f}".replace("-", "−")


if __name__ == "__main__":
    run_from_command_line(run)
