"""Figures 6, 10a and 10b of Progressive Fusion on AV-MNIST: what each pass adds, where feedback joins, how deep to go.

A cell is one loop around a base method, trained with one seed, scored, and for figure 6 probed; or the time of one
method at every depth.
"""

import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import polars
import torch
import yaml

from consilience.comparison.store import Result
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.data import load_data
from consilience.encoders import build_encoder
from consilience.evaluation.loop_diagnostics import probe_steps, say_stages, step_through
from consilience.methods import Spec, Step, build
from consilience.methods.progressive.looped_encoder import END
from consilience.preparation import Preparation
from consilience.report.document import Document, Section, TextTable
from consilience.report.loop_figures import draw_depth, draw_joining, draw_probes
from consilience.report.wording import Scale, say_count, say_list, say_number
from consilience.reproduction.study import run_from_command_line, run_study
from consilience.training import Model, Trainer
from consilience.training.devices import resolve_device
from consilience.training.stacked_seeds import fit_together

TITLE = "Inside the loop: what each pass adds, where feedback should join, how deep to unroll"
PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, figures 6, 10a and 10b"
SETS = ("av-mnist",)
STUDY = yaml.safe_load((Path(__file__).parent / "studies" / "progressive-figures.yaml").read_text(encoding="utf-8"))
MODELS = {"concat": "LF", "lowrank": "LFN", "mfm": "MFM", "refnet": "RefNet"}  # base method → its name in the paper
INTO = "conv4"  # the stage of both encoders that receives the feedback, unless the stage is what is asked
EVERYWHERE = {"audio": INTO, "image": INTO}
FULL, QUICK = STUDY["settings"], STUDY["settings"] | STUDY["quick_settings"]
PERCENT, TIMES = Scale(100.0, 1, " %"), Scale(decimals=2)


def run(*, quick=False, settings=None, **options):
    settings = {**(QUICK if quick else FULL), **(settings or {})}
    cells = cells_of(settings)
    return run_study(
        "progressive-figures",
        measure,
        cells,
        {name: settings[name] for name in ("build", "training", "probe_samples")},
        partial(describe, settings, cells),
        measure_group=measure_seeds,
        group_of=group_of,
        quick=quick,
        **options,
    )


def group_of(cell):
    """Cells of one loop, which differ in the seed, are a group."""
    return str({**cell, "seed": None}) if "seed" in cell else None


def places_of(settings):
    """Where feedback may join both encoders, from their inputs to their ends."""
    side = settings["build"].get("side", 112)
    shapes = {"image": (1, 28, 28), "audio": (1, side, side)}
    encoders = {name: build_encoder(Modality(name, "image", shape), None) for name, shape in shapes.items()}
    return step_through({name: [*encoder.stages, END] for name, encoder in encoders.items()})


def loops_of(settings):
    """The loops of figures 6, 10a and 10b. One that belongs to two figures is trained once, and probed for both."""
    probed = [(method, settings["probed_steps"], EVERYWHERE) for method in settings["probed"]]
    joined = [(settings["joined"], 2, dict(sorted(place.items()))) for place in places_of(settings)]
    deep = [(method, steps, EVERYWHERE) for method in settings["deep"] for steps in settings["depths"]]
    return [
        [{"method": loop[0], "steps": loop[1], "into": loop[2], "probed": loop in probed} for loop in loops]
        for loops in (probed, joined, deep)
    ]


def cells_of(settings):
    """All cells; seeds outermost, so that a run that is stopped early has something of every figure."""
    rounds = {"depths": settings["depths"], "rounds": settings["time_rounds"]}
    loops = []
    for group in loops_of(settings):
        loops += [loop for loop in group if loop not in loops]
    trained = [{**loop, "seed": seed} for seed in range(settings["seeds"]) for loop in loops]
    return [{"timed": method, **rounds} for method in settings["deep"]] + trained


def measure(cell, shared):
    data = load_pairs(tuple(sorted(shared["build"].items())))
    if "timed" in cell:
        return Result({"times": time_depths(data, cell, shared["training"]["batch_size"])})
    trainer = Trainer(**shared["training"], seed=cell["seed"], on_interrupt="raise")
    name, settings = method_of(cell)
    model = Model.fit(name, data.train, data.validation, settings=settings, trainer=trainer)
    return score(cell, shared, data, model)


def measure_seeds(cells, shared):
    """Cells that differ in nothing but the seed, trained side by side."""
    data = load_pairs(tuple(sorted(shared["build"].items())))
    seeds = [cell["seed"] for cell in cells]
    parts = [(data.train, data.validation)] * len(seeds)
    name, settings = method_of(cells[0])
    models = fit_together(name, parts, seeds, settings=settings, trainer=Trainer(**shared["training"]))
    return [score(cell, shared, data, model) for cell, model in zip(cells, models)]


@cache
def load_pairs(build):
    return load_data(*SETS, **dict(build))


def method_of(cell):
    return f"pro:{cell['method']}", {"steps": cell["steps"], "into": cell["into"]}


def score(cell, shared, data, model):
    def accuracy(samples):
        return float((model.task.decode(model.predict(samples).output.numpy()) == samples.y).mean())

    some = data.train[: shared["probe_samples"]]  # the pairs lie in MNIST's order, which is random
    return Result(
        {
            "value": accuracy(data.test),
            "validation": accuracy(data.validation),
            "parameters": sum(parameter.numel() for parameter in model.method.parameters()),
            "device": str(next(model.method.parameters()).device),
            "sizes": data.sizes,
            "probes": probe_steps(model, some, data.test).to_dicts() if cell["probed"] else [],
        }
    )


def time_depths(data, cell, samples):
    """Depth → seconds of `training` and `prediction` with one batch, the fewest of all rounds.

    All depths take turns in every round, so that other load on the machine affects each of them alike.
    """
    device, some = resolve_device("auto"), data.train[:samples]
    task = Task.of(data.y, data.task)
    preparation = Preparation.fit(some, task)
    batch, spec = preparation.batch(some).to(device), Spec(preparation.modalities, task)
    loops = [{"steps": steps, "into": EVERYWHERE} for steps in cell["depths"]]
    methods = [build(f"pro:{cell['timed']}", spec, loop).to(device) for loop in loops]
    times = [{"training": [], "prediction": []} for _ in methods]
    for _ in range(cell["rounds"] + 1):
        for method, spent in zip(methods, times):
            for what, seconds in spent.items():
                seconds.append(seconds_of(partial(one_batch, method, batch, what == "training"), device))
    # The first round includes start-up costs of libraries and devices.
    fewest = [{what: min(seconds[1:]) for what, seconds in spent.items()} for spent in times]
    return dict(zip(map(str, cell["depths"]), fewest))


def one_batch(method, batch, training):
    """Forward, and in training backward."""
    with torch.set_grad_enabled(training):
        prediction = method.train(training)(batch)
    if training:
        losses = method.objective(prediction, batch, Step())
        torch.stack(list(losses.values())).sum().backward()
        method.zero_grad()


def seconds_of(work, device):
    """Seconds of processor time, or by the clock until a GPU is done."""
    cuda = device.type == "cuda"
    clock = time.perf_counter if cuda else time.process_time
    wait = partial(torch.cuda.synchronize, device) if cuda else lambda: None
    wait()
    began = clock()
    work()
    wait()
    return clock() - began


def describe(settings, cells, results):
    by_loop = {}
    for cell, result in zip(cells, results):
        by_loop.setdefault(cell.get("timed") or group_of(cell), []).append(result.about)

    def seeds_of(loop):
        return enumerate(by_loop[group_of({**loop, "seed": None})])

    def rows(loop, **columns):
        columns |= {"method": MODELS[loop["method"]], "metric": "accuracy"}
        measured = ("value", "validation", "parameters")
        return [{**columns, "seed": seed, **{name: about[name] for name in measured}} for seed, about in seeds_of(loop)]

    probed, joined, deep = loops_of(settings)
    probes = [
        {"method": MODELS[loop["method"]], "seed": seed, **row}
        for loop in probed
        for seed, about in seeds_of(loop)
        for row in about["probes"]
    ]
    stages = []
    for position, (loop, stage) in enumerate(zip(joined, say_stages(places_of(settings)))):
        stages += rows(loop, position=position, stage=stage)
    depths = []
    for loop in deep:
        spent = by_loop[loop["method"]][0]["times"][str(loop["steps"])]
        seconds = {"epoch_seconds": spent["training"], "prediction_seconds": spent["prediction"]}
        depths += rows(loop, steps=loop["steps"], **seconds)
    probes, stages, depths = (polars.DataFrame(table) for table in (probes, stages, depths))
    accuracy, times = draw_depth(depths)
    times = replace(times, caption=STUDY["time"])
    parts = (
        ("probes", "What each pass adds (figure 6)", probe_table(probes), tuple(probe_figures(probes))),
        ("joining", "Where feedback should join (figure 10a)", stage_table(stages), (draw_joining(stages),)),
        ("depth", "How deep to unroll (figure 10b)", depth_table(depths), (accuracy, times)),
    )
    sections = [Section(name, title, (STUDY[name],), (table,), figures) for name, title, table, figures in parts]
    trained = [about for key, abouts in by_loop.items() if key not in settings["deep"] for about in abouts]
    sections += [
        Section("differences", "Reasons for differences", tuple(STUDY["notes"])),
        Section("made", "How it was made", (how_made(settings, trained),)),
    ]
    answer = (say_probes(probes), say_joining(MODELS[settings["joined"]], stages), *say_depth(depths))
    return Document(TITLE, answer, tuple(sections), paper=PAPER)


def probe_gains(probes):
    """(method, modality) → what its probe reads after the last pass less what it reads after the first, `[seed]`."""
    gains = {}
    for key, table in probes.group_by("method", "modality", maintain_order=True):
        ordered = table.sort("seed", "step")
        passes = ordered["value"].to_numpy().reshape(ordered["seed"].n_unique(), -1)
        gains[key] = passes[:, -1] - passes[:, 0]
    return gains


def say_probes(probes):
    gains = [
        f"{method} {modality} {PERCENT.signed(gain.mean())} ± "
        f"{PERCENT.number(gain.std(ddof=1) if len(gain) > 1 else float('nan'))}"
        for (method, modality), gain in probe_gains(probes).items()
    ]
    last = probes["step"].max()
    ordinal = {2: "second", 3: "third", 4: "fourth"}.get(last, f"{last}th")
    return STUDY["say_probes"].format(last=ordinal, gains="; ".join(gains))


def probe_figures(probes):
    for (method,), table in probes.group_by("method", maintain_order=True):
        drawn = draw_probes(table, f"probes-{method.lower()}")
        yield replace(drawn, caption=f"{method}. {drawn.caption}", alt=f"{method}. {drawn.alt}")


def probe_table(probes):
    steps = sorted(probes["step"].unique())
    rows = tuple(
        (f"{method}, {modality}", *(PERCENT.over_seeds(table.filter(step=step)["value"]) for step in steps))
        for (method, modality), table in probes.group_by("method", "modality", maintain_order=True)
    )
    header = ("features of", *(f"pass {step}" for step in steps))
    return TextTable("Accuracy of a linear probe on one modality's features, %", header, rows)


def say_joining(model, stages):
    means = stages.group_by("position", "stage").agg(polars.col("value", "validation").mean())
    chosen = means.sort("validation").row(-1, named=True)
    low, high, value = map(PERCENT.number, (means["value"].min(), means["value"].max(), chosen["value"]))
    return STUDY["say_joining"].format(model=model, low=low, high=high, stage=chosen["stage"], chosen=value)


def stage_table(stages):
    rows = []
    for (_, stage), table in stages.sort("position").group_by("position", "stage", maintain_order=True):
        accuracies = (PERCENT.over_seeds(table[part]) for part in ("validation", "value"))
        rows.append((stage, *accuracies, say_count(table["parameters"][0])))
    header = ("stage", "validation %", "test %", "parameters")
    return TextTable("Feedback into each stage, two passes", header, tuple(rows))


def means_by_depth(depths):
    """Of each method, its means over seeds with times relative to the fewest passes, and all its rows."""
    for (method,), table in depths.group_by("method", maintain_order=True):
        columns = ("epoch_seconds", "prediction_seconds")
        means = table.group_by("steps").agg(polars.col("value", *columns).mean()).sort("steps")
        yield method, means.with_columns(polars.col(name) / polars.col(name).first() for name in columns), table


def say_depth(depths):
    for method, means, _ in means_by_depth(depths):
        first, *others = means.iter_rows(named=True)
        gains = [f"{PERCENT.signed(row['value'] - first['value'])} with {row['steps']}" for row in others]
        last = (first, *others)[-1]
        yield STUDY["say_depth"].format(
            method=method,
            accuracy=PERCENT.number(first["value"]),
            gains=say_list(gains),
            steps=last["steps"],
            training=TIMES.number(last["epoch_seconds"]),
            prediction=TIMES.number(last["prediction_seconds"]),
            into=INTO,
        )


def depth_table(depths):
    rows = []
    for method, means, table in means_by_depth(depths):
        for row in means.iter_rows(named=True):
            passes = "one pass" if row["steps"] == 1 else f"{row['steps']} passes"
            accuracy = PERCENT.over_seeds(table.filter(steps=row["steps"])["value"])
            times = (TIMES.number(row[name]) for name in ("epoch_seconds", "prediction_seconds"))
            rows.append((f"{method}, {passes}", accuracy, *times))
    header = ("model", "test %", "training time", "prediction time")
    return TextTable("Depth of the loop; times relative to one pass", header, tuple(rows))


def how_made(settings, trained):
    sizes = ", ".join(f"{count} {part}" for part, count in trained[0]["sizes"].items())
    build, training = (
        ", ".join(f"{name} = {value}" for name, value in settings[group].items()) for group in ("build", "training")
    )
    devices = say_list(sorted({about["device"] for about in trained}))
    return STUDY["how"].format(
        build=build,
        sizes=sizes,
        seeds=say_number(settings["seeds"], "seed"),
        devices=devices,
        training=training,
        into=INTO,
        probe_samples=settings["probe_samples"],
    )


if __name__ == "__main__":
    run_from_command_line(run)
