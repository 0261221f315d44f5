"""The page of figures 6, 10a and 10b: what probes read after every pass, accuracy by stage and by depth, and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars

from consilience.comparison.experiments.progressive_avmnist import INTO, TABLE9
from consilience.comparison.experiments.progressive_figures.cells import Cell, Protocol, Unrolled
from consilience.comparison.experiments.study import Study
from consilience.comparison.store import Result
from consilience.evaluation.loop_diagnostics import say_stages
from consilience.report.document import Account, Section, TextTable
from consilience.report.drawing import Drawing
from consilience.report.loop_figures import draw_depth, draw_joining, draw_probes
from consilience.report.wording import Scale, say_count, say_list, say_number

_PERCENT, _TIMES = Scale(100.0, 1, " %"), Scale(decimals=2)


def give_account(study: Study, protocol: Protocol, results: Mapping[str, Result]) -> Account:
    """Everything the trainings say, in words, tables and figures."""
    found = {
        loop: [results[Cell.of(protocol, loop, seed).key].about for seed in range(protocol.seeds)]
        for loop in dict.fromkeys(cell.loop for cell in protocol.cells() if cell.loop is not None)
    }
    times = {method: results[Cell.timing(protocol, method).key].about["times"] for method in protocol.deep}
    probes, stages = probe_table(protocol, found), stage_table(protocol, found)
    depths = depth_table(protocol, found, times)
    sections = (
        Section(
            "probes",
            "What each pass adds (figure 6)",
            (
                "In the first pass a modality's features are its own; in later passes its encoder has heard what was "
                "fused, and with it the other modality.",
            ),
            (probe_summary(probes),),
            tuple(probe_figures(probes)),
        ),
        Section(
            "joining",
            "Where feedback should join (figure 10a)",
            (
                "Feedback is added to what the stage of each encoder receives, channel by channel; `end` is what the "
                "last stage gives. Into `conv1` that is one number for all pixels of an image.",
            ),
            (stage_summary(stages),),
            (draw_joining(stages),),
        ),
        Section(
            "depth",
            "How deep to unroll (figure 10b)",
            (
                "Times are those of one batch, forward and backward for training, forward for prediction: all depths "
                "by turns, the shortest of all rounds, relative to one pass.",
            ),
            (depth_summary(depths),),
            tuple(depth_figures(depths)),
        ),
        Section("differences", "Reasons for differences", study.notes),
        Section("made", "How it was made", (how_made(protocol, found),)),
    )
    answer = (say_probes(probes), say_joining(protocol, stages), *say_depth(protocol, depths))
    return Account(study.title, answer, sections, paper=study.paper)


Found = Mapping[Unrolled, Sequence[Mapping[str, Any]]]


def probe_table(protocol: Protocol, found: Found) -> polars.DataFrame:
    """A row for each method, seed, modality and pass."""
    return polars.DataFrame(
        [
            {"method": TABLE9[loop.method].name, "seed": seed, **row}
            for loop in protocol.probing()
            for seed, about in enumerate(found[loop])
            for row in about["probes"]
        ]
    )


def stage_table(protocol: Protocol, found: Found) -> polars.DataFrame:
    """A row for each stage that feedback joined at, and seed."""
    said = say_stages(protocol.places())
    return _measured(
        [
            ({"method": TABLE9[loop.method].name, "position": place, "stage": stage}, found[loop])
            for place, (loop, stage) in enumerate(zip(protocol.joining(), said))
        ]
    )


def depth_table(protocol: Protocol, found: Found, times: Mapping[str, Mapping[str, Any]]) -> polars.DataFrame:
    """A row for each method, number of passes and seed; times: method → number of passes → seconds, of all seeds."""
    groups = []
    for loop in protocol.deepening():
        seconds = times[loop.method][str(loop.steps)]
        named = {"method": TABLE9[loop.method].name, "steps": loop.steps}
        spent = {"epoch_seconds": seconds["training"], "prediction_seconds": seconds["prediction"]}
        groups.append((named | spent, found[loop]))
    return _measured(groups)


def _measured(groups: Sequence[tuple[dict[str, Any], Sequence[Mapping[str, Any]]]]) -> polars.DataFrame:
    columns = ("value", "validation", "parameters")
    return polars.DataFrame(
        [
            {**named, "seed": seed, "metric": "accuracy", **{column: about[column] for column in columns}}
            for named, seeds in groups
            for seed, about in enumerate(seeds)
        ]
    )


def gains_by_pass(probes: polars.DataFrame) -> dict[tuple[str, str], np.ndarray]:
    """(method, modality) → what its probe reads after the last pass less what it reads after the first, `[seed]`."""
    gains = {}
    for (method, modality), table in probes.group_by("method", "modality", maintain_order=True):
        ordered = table.sort("seed", "step")
        passes = ordered["value"].to_numpy().reshape(ordered["seed"].n_unique(), -1)
        gains[str(method), str(modality)] = passes[:, -1] - passes[:, 0]
    return gains


def say_probes(probes: polars.DataFrame) -> str:
    """What the passes add to each modality's features."""
    told = [
        f"{method} {modality} {_PERCENT.signed(float(gain.mean()))} ± {_PERCENT.number(_spread(gain))}"
        for (method, modality), gain in gains_by_pass(probes).items()
    ]
    return (
        f"What a linear probe reads in one modality's features changes from the first pass to the "
        f"{_ordinal(int(probes['step'].max()))} by, in percentage points: {'; '.join(told)}."  # type: ignore[arg-type]
    )


def probe_figures(probes: polars.DataFrame) -> Iterator[Drawing]:
    """The paper's figure 6, one for each method."""
    for (method,), table in probes.group_by("method", maintain_order=True):
        drawn = draw_probes(table, f"probes-{str(method).lower()}")
        yield replace(drawn, caption=f"{method}. {drawn.caption}", alt=f"{method}. {drawn.alt}")


def probe_summary(probes: polars.DataFrame) -> TextTable:
    """Methods and modalities × passes."""
    steps = sorted(probes["step"].unique())
    rows = [
        (f"{method}, {modality}", *(_pair(table.filter(step=step)["value"]) for step in steps))
        for (method, modality), table in probes.group_by("method", "modality", maintain_order=True)
    ]
    header = ("features of", *(f"pass {step}" for step in steps))
    return TextTable("Accuracy of a linear probe on one modality's features, %", header, tuple(rows))


def say_joining(protocol: Protocol, stages: polars.DataFrame) -> str:
    """Which stage validation pairs would choose, and how far apart the stages are."""
    means = _means(stages, "position", "stage")
    chosen = means.sort("validation").row(-1, named=True)
    return (
        f"With feedback into each stage in turn, {TABLE9[protocol.joined].name} reaches between "
        f"{_PERCENT.number(means['value'].min())} and {_PERCENT.number(means['value'].max())} % on test pairs. "  # type: ignore[arg-type]
        f"Validation pairs choose {chosen['stage']}, which has {_PERCENT.number(chosen['value'])} %."
    )


def stage_summary(stages: polars.DataFrame) -> TextTable:
    """Stages in order: accuracy on validation and test pairs, and parameters."""
    rows = [
        (
            str(stage),
            _pair(table["validation"]),
            _pair(table["value"]),
            say_count(table["parameters"][0]),
        )
        for (_, stage), table in stages.sort("position").group_by("position", "stage", maintain_order=True)
    ]
    return TextTable(
        "Feedback into each stage, two passes", ("stage", "validation %", "test %", "parameters"), tuple(rows)
    )


def say_depth(protocol: Protocol, depths: polars.DataFrame) -> list[str]:
    """For each method: accuracy without the loop and at every depth, and whether time grows with the passes."""
    said = []
    for (method,), table in depths.group_by("method", maintain_order=True):
        means = _means(table, "steps").sort("steps")
        base = means.row(0, named=True)
        gains = [
            f"{_PERCENT.signed(row['value'] - base['value'])} with {row['steps']}"
            for row in means.iter_rows(named=True)
            if row["steps"] > base["steps"]
        ]
        last = means.row(-1, named=True)
        training, prediction = (last[f"{what}_seconds"] / base[f"{what}_seconds"] for what in ("epoch", "prediction"))
        said.append(
            f"{method} has {_PERCENT.number(base['value'])} % with one pass; more of them add, in percentage points, "
            f"{say_list(gains)}. {last['steps']} passes take {_TIMES.number(training)} times as long to train and "
            f"{_TIMES.number(prediction)} times as long to predict with as one; the paper expects and finds time in "
            f"proportion, and here what comes before `{INTO}` runs once."
        )
    return said


def depth_summary(depths: polars.DataFrame) -> TextTable:
    """Methods and passes: accuracy, and time relative to the fewest passes."""
    rows = []
    for (method,), table in depths.group_by("method", maintain_order=True):
        means = _means(table, "steps").sort("steps")
        first = means.row(0, named=True)
        for row in means.iter_rows(named=True):
            spent = [row[f"{what}_seconds"] / first[f"{what}_seconds"] for what in ("epoch", "prediction")]
            passes = "one pass" if row["steps"] == 1 else f"{row['steps']} passes"
            accuracy = _pair(table.filter(steps=row["steps"])["value"])
            rows.append((f"{method}, {passes}", accuracy, *map(_TIMES.number, spent)))
    header = ("model", "test %", "training time", "prediction time")
    return TextTable("Depth of the loop; times relative to one pass", header, tuple(rows))


def depth_figures(depths: polars.DataFrame) -> tuple[Drawing, Drawing]:
    """The paper's figure 10b: accuracy, and time."""
    accuracy, spent = draw_depth(depths)
    caption = (
        "Time of one batch in training and in prediction, relative to one pass. The faint line is what time in "
        "proportion to the passes would be."
    )
    return accuracy, replace(spent, caption=caption)


def how_made(protocol: Protocol, found: Found) -> str:
    """Data, training, seeds and device."""
    first = next(iter(found.values()))[0]
    sizes = ", ".join(f"{count} {part}" for part, count in first["sizes"].items())
    build = ", ".join(f"{name} = {value}" for name, value in protocol.build.items())
    training = ", ".join(f"{name} = {value}" for name, value in protocol.training.items())
    devices = say_list(sorted({str(about["device"]) for seeds in found.values() for about in seeds}))
    return (
        f"AV-MNIST with {build}: {sizes} pairs. {say_number(protocol.seeds, 'seed')} on {devices}; settings of "
        f"training: {training}. Feedback is added to what `{INTO}` of both encoders receives, unless the stage is "
        f"what is asked for. Probes learn from {protocol.probe_samples} training pairs."
    )


def _means(table: polars.DataFrame, *by: str) -> polars.DataFrame:
    measured = ("value", "validation", "epoch_seconds", "prediction_seconds")
    return table.group_by(*by).agg(polars.col(column).mean() for column in measured if column in table.columns)


def _pair(values: polars.Series) -> str:
    return _PERCENT.pair(float(values.mean()), float(values.std()) if len(values) > 1 else None)  # type: ignore[arg-type]


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third", 4: "fourth"}.get(number, f"{number}th")
