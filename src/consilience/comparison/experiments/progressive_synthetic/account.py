"""The page of experiment B.1: ours beside the paper's claims, the controls, figures 8 and 9, and what does better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from consilience.comparison.experiments.progressive_synthetic.cells import Protocol
from consilience.comparison.experiments.progressive_synthetic.findings import Findings, Standing
from consilience.comparison.experiments.progressive_synthetic.nets import BASE, HIDDEN, MAIN, NETS, SEARCH
from consilience.comparison.experiments.study import Study
from consilience.comparison.store import Result
from consilience.report.contours import Surface, plot_contours
from consilience.report.curves import Line, plot_lines
from consilience.report.document import Account, Section, TextTable
from consilience.report.drawing import Drawing
from consilience.report.palette import looks_of
from consilience.report.wording import Scale, say_level, say_list

CLAIMED_SHARE, CLAIMED_GAIN = 0.9, 0.08  # "close to 90% of all trials", "an average improvement of 8%"
_LOOPS = ("add", "concat")
_CONTROLS = ("wide", "unimodal")
_PERCENT, _GAIN = Scale(100.0, 0, " %"), Scale(100.0, 1, " %")


def give_account(study: Study, protocol: Protocol, results: Mapping[str, Result]) -> Account:
    """Everything the trials say, in words, tables and figures."""
    findings = Findings.gather(protocol, results)
    sizes = sorted(findings.protocol.sizes, reverse=True)
    nets = tuple(all_nets(findings, n) for n in sizes)
    search = tuple(search_table(findings, n) for n in sizes)
    sections = (
        Section("paper", "Beside the paper", study.notes, (beside_paper(findings),)),
        Section("nets", "The loop, its controls and early fusion", _reading(findings), nets),
        Section("contour", "Where it helps", _where(findings), figures=(contours(findings),)),
        Section("areas", "Area under the error–noise curve", figures=tuple(areas(findings))),
        Section("better", "Joining stage and schedule", _search_words(findings), search),
        Section("method", "How it was measured", _how(findings)),
    )
    return Account(study.title, answer(findings), sections, paper=study.paper)


def answer(findings: Findings) -> tuple[str, ...]:
    """What to read first: the largest set beside the paper's claims, the smaller ones, and the controls."""
    largest, *smaller = sorted(findings.protocol.sizes, reverse=True)
    add = findings.standing(largest, "add")
    said = [
        f"With {_count(largest)} training samples, feeding the fused features back by addition beats the late net in "
        f"{_PERCENT.number(add.won)} % of trials, and the mean squared error is {_GAIN.number(abs(add.gain))} ± "
        f"{_GAIN.number(add.spread)} % {'lower' if add.gain > 0 else 'higher'}. The "
        f"paper says close to {_PERCENT.number(CLAIMED_SHARE)} % of trials and {_PERCENT.number(CLAIMED_GAIN)} %: ours "
        f"differ by {_PERCENT.signed(add.won - CLAIMED_SHARE)} and {_GAIN.signed(add.gain - CLAIMED_GAIN)} points."
    ]
    for n in smaller:
        here = findings.standing(n, "add")
        verdict = "it gains" if here.gain > 0 else "it loses"
        said.append(
            f"With {_count(n)} training samples {verdict} {_GAIN.number(abs(here.gain))} ± "
            f"{_GAIN.number(here.spread)} % and wins {_PERCENT.number(here.won)} % of trials."
        )
    controls = {name: findings.standing(largest, name) for name in _CONTROLS}
    crossing = all(one.gain < add.gain / 4 for one in controls.values())
    told = say_list(f"{_bare(name)} {_GAIN.signed(one.gain)} %" for name, one in controls.items())
    owed = (
        "the gain comes from what crosses between the modalities, not from more parameters or a second pass"
        if crossing
        else "the gain is not owed to what crosses between the modalities alone"
    )
    return (*said, f"The controls at {_count(largest)} samples: {told}; so {owed}.")


def beside_paper(findings: Findings) -> TextTable:
    """Share of trials won and mean gain, ours and the paper's, and the difference in percentage points."""
    rows = []
    for n in sorted(findings.protocol.sizes, reverse=True):
        for name in _LOOPS:
            one = findings.standing(n, name)
            rows.append(
                (
                    f"{_bare(name)}, n = {_count(n)}",
                    _PERCENT.number(one.won),
                    f"≈ {_PERCENT.number(CLAIMED_SHARE)}",
                    _PERCENT.signed(one.won - CLAIMED_SHARE),
                    _gain(one),
                    _PERCENT.number(CLAIMED_GAIN),
                    _GAIN.signed(one.gain - CLAIMED_GAIN),
                )
            )
    header = ("loop", "won %", "paper", "Δ", "mean gain %", "paper", "Δ")
    caption = "Trials won and mean gain over the late net, ours and the paper's; Δ: the difference in percentage points"
    return TextTable(caption, header, tuple(rows))


def all_nets(findings: Findings, n: int) -> TextTable:
    """Every net of the main line-up at one size."""
    rows = []
    for name in findings.protocol.nets:
        if name in MAIN:
            one = findings.standing(n, name)
            told = ("", "") if name == BASE else (_PERCENT.number(one.won), _gain(one))
            error = f"{findings.errors[n][name].mean():.3f}"
            rows.append((NETS[name].label, str(findings.parameters[name]), error, *told))
    header = ("net", "parameters", "error", "won %", "gain %")
    return TextTable(f"n = {_count(n)}: against the late net", header, tuple(rows), marked=(0,))


def contours(findings: Findings) -> Drawing:
    """The paper's figure 8."""
    protocol = findings.protocol
    surfaces = []
    for n in sorted(protocol.sizes, reverse=True):
        values = 100 * findings.gains(n, "add").mean(axis=2)
        title = f"n = {_count(n)}, {_PERCENT.number(findings.standing(n, 'add').won)} % of trials won"
        surfaces.append(Surface(title, protocol.sigmas, protocol.etas, values))
    told = "; ".join(
        f"{one.title}: from {_signed(one.values.min())} to {_signed(one.values.max())} %" for one in surfaces
    )
    return Drawing(
        "contour",
        "Gain of progressive fusion by addition over the late net, in per cent of the latter's mean squared error: the "
        f"mean of {protocol.trials} trials at each dot. Blue is a gain, orange a loss. (The paper's figure 8.)",
        f"Contours of the gain over η and σ₂. {told}",
        plot_contours(surfaces, "σ₂, noise of the second modality", "η, disturbance of the first", len(surfaces)),
        plot_contours(surfaces, "σ₂, noise of the second modality", "η, disturbance of the first", 1),
    )


def areas(findings: Findings) -> list[Drawing]:
    """The paper's figure 9, along both axes of the grid, for the largest n."""
    protocol, n = findings.protocol, max(findings.protocol.sizes)
    names = [name for name in protocol.nets if name in MAIN and name != BASE]
    looks = looks_of(names)
    drawings = []
    for over, against, levels in (("sigma", "η", protocol.etas), ("eta", "σ₂", protocol.sigmas)):
        gains = {name: 100 * findings.area_gains(n, name, over) for name in names}
        spread = protocol.trials > 1
        lines = [
            Line(
                _bare(name),
                looks[name],
                list(levels),
                values.mean(axis=1).tolist(),
                (values.std(axis=1, ddof=1) / math.sqrt(protocol.trials)).tolist() if spread else None,
            )
            for name, values in gains.items()
        ]
        figure = plot_lines(lines, against, "smaller area than the late net's, %", zero="late net")
        figure.axes[0].set_xticks(levels, [say_level(one) for one in levels])
        noise = "σ₂" if over == "sigma" else "η"
        means = "; ".join(f"{line.label} {_signed(min(line.means))} to {_signed(max(line.means))} %" for line in lines)
        drawings.append(
            Drawing(
                f"area-{over}",
                f"Area under the mean squared error against {noise}, for each {against}: how much smaller than the "
                f"late net's it is, n = {_count(n)}, mean and standard error over trials. (The paper's figure 9, "
                "whose AUC is an area under an error: more is better here.)",
                f"Area under error against {noise}, by {against}. {means}",
                figure,
            )
        )
    return drawings


def search_table(findings: Findings, n: int) -> TextTable:
    """Joining stages and schedules at one size, in the order of their gain on validation data."""
    names = [*_LOOPS, *(name for name in findings.protocol.nets if name in SEARCH)]
    standings = {name: findings.standing(n, name) for name in names}
    names.sort(key=lambda name: -standings[name].validation)
    rows = [
        (
            _bare(name),
            str(findings.parameters[name]),
            _GAIN.signed(standings[name].validation),
            _gain(standings[name]),
            _PERCENT.number(standings[name].won),
        )
        for name in names
    ]
    header = ("loop", "parameters", "validation gain %", "test gain %", "won %")
    return TextTable(f"n = {_count(n)}: gain over the late net, best on validation first", header, tuple(rows))


def _search_words(findings: Findings) -> tuple[str, ...]:
    best = {n: _best(findings, n) for n in sorted(findings.protocol.sizes, reverse=True)}
    chosen = say_list(f"`{_bare(name)}` at n = {_count(n)}" for n, name in best.items())
    n = max(findings.protocol.sizes)
    one, plain = findings.standing(n, best[n]), findings.standing(n, "add")
    return (
        "Chosen by validation data alone; test figures stand beside them for the record. Best on validation: "
        f"{chosen}.",
        f"At n = {_count(n)} the chosen one gains {_gain(one)} % on test data, and addition into the input "
        f"{_gain(plain)} %.",
    )


def _best(findings: Findings, n: int) -> str:
    loops = [name for name in findings.protocol.nets if NETS[name].method.startswith("pro:")]
    return max(loops, key=lambda name: findings.standing(n, name).validation)


def _where(findings: Findings) -> tuple[str, ...]:
    n, sigmas = max(findings.protocol.sizes), findings.protocol.sigmas
    by_sigma = findings.gains(n, "add").mean(axis=(0, 2))
    return (
        f"At n = {_count(n)} the gain is {_GAIN.number(by_sigma[0])} % at σ₂ = {say_level(sigmas[0])} and "
        f"{_GAIN.number(by_sigma[-1])} % at σ₂ = {say_level(sigmas[-1])}: how clean the second modality is decides "
        "what can be learned from feeding it to the first.",
    )


def _reading(findings: Findings) -> tuple[str, ...]:
    wide, add = findings.parameters["wide"], findings.parameters["add"]
    return (
        f"The wide net has {wide} parameters, the loop {add}. With unimodal feedback each modality is read twice as in "
        "the loop, and hears only itself. Early fusion, which joins the inputs, is a reference and no control: it "
        "gives up what late fusion is chosen for. Errors are in units of the target's variance; its own noise is part "
        "of them. Gains are mean ± standard deviation over draws.",
    )


def _how(findings: Findings) -> tuple[str, ...]:
    one = findings.protocol
    batches = say_list(f"{one.batch_size(n)} at n = {_count(n)}" for n in sorted(one.sizes))
    return (
        f"Data: Z ~ U[−2.5, 2.5]^{one.d}; x1 = lReLU(W₁Z) + 2|η| sin(W₂Z) + ε₁, x2 = sin(W₂Z) + σ₂ε₂, y = W_y Z + ε_y, "
        f"matrices and noise standard normal. η in {_levels(one.etas)}, σ₂ in {_levels(one.sigmas)}; {one.trials} "
        "trials a cell, each with matrices, data and first weights of its own; trial k is the same draw in every cell "
        f"and for every net. n samples to train on, n / 4 to stop early, {_count(one.test)} to test.",
        f"Nets: two layers of {HIDDEN} ReLU units a modality, side by side, a linear head. A loop runs encoders and "
        "fusion R times, R = 2 unless told, and feeds the concatenated features back into the input through a linear "
        "map without bias: added to it, or concatenated. All are methods of this library (`concat`, `pro:concat`, "
        "`wide:concat`, `unimodal-feedback:concat`, `early`).",
        f"Training: inputs and target standardised, Adam with learning rate {one.lr:g}, batches of {batches}, at most "
        f"{one.epochs} epochs, stopped after {one.patience} without a lower validation loss, each trial at its best "
        "epoch. All trials of a cell train side by side as one batched model.",
        "Gain is 1 − error / error of the late net, trial by trial; a trial is won where it is above zero. The spread "
        "is over draws, each averaged over its cells. Areas are by trapezia over the grid.",
    )


def _gain(one: Standing) -> str:
    spread = "" if one.spread != one.spread else f" ± {_GAIN.number(one.spread)}"
    return f"{_GAIN.signed(one.gain)}{spread}"


def _bare(name: str) -> str:
    return NETS[name].label.removeprefix("control: ").removeprefix("progressive, ")


def _count(n: int) -> str:
    return f"{n:,}".replace(",", "\u202f")


def _levels(levels: Sequence[float]) -> str:
    return "{" + ", ".join(map(say_level, levels)) + "}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
