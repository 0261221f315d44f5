"""Table 10 of Progressive Fusion: how many parameters a loop adds to the models of AV-MNIST. Nothing is trained."""

import math
from pathlib import Path

import numpy as np
import torch
import yaml

from consilience.comparison.store import Result
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.methods import Spec, build
from consilience.report.document import Document, Section, TextTable
from consilience.report.wording import say_count
from consilience.reproduction.study import run_from_command_line, run_study

TITLE = "How many parameters does progressive fusion add?"
PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration, table 10"
STUDY = yaml.safe_load((Path(__file__).parent / "studies" / "progressive-table10.yaml").read_text(encoding="utf-8"))
MODALITIES = {"image": Modality("image", "image", (1, 28, 28)), "audio": Modality("audio", "image", (1, 112, 112))}
CLASSES = 10
PUBLISHED, JOINS = STUDY["published"], STUDY["joins"]
COMPARED = "fourth stage"  # as in progressive-table9


def run(**options):
    cells = [{"model": model} for model in PUBLISHED]
    return run_study("progressive-table10", measure, cells, {"joins": JOINS}, describe, **options)


def measure(cell, shared):
    return Result({"model": cell["model"], **count_model(cell["model"])})


def count_model(model):
    """Count the parameters of a model and of its encoders, what a loop adds at each place (`added`), and what it would
    add with weights for every pixel (`dense`).
    """
    spec = Spec(MODALITIES, Task.of_labels(np.arange(CLASSES)), {})
    with torch.random.fork_rng(devices=[]):
        base = build(model, spec)
        loops = {place: build(f"pro:{model}", spec, settings) for place, settings in JOINS.items()}
    added = {place: parameters(loop) - parameters(base) for place, loop in loops.items()}
    # Images have one channel: the link to an input has one weight for each number of what was fused.
    fused = added["added to the input"] // len(MODALITIES)
    return {
        "base": parameters(base),
        "encoders": sum(parameters(encoder) for encoder in base.encoders.values()),
        "added": added,
        "dense": fused * sum(math.prod(modality.shape) for modality in MODALITIES.values()),
    }


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def describe(results):
    counts = {result.about["model"]: result.about for result in results}
    compared, places = STUDY["compared"].format(place=COMPARED), (by_place(counts), nearest_places(counts))
    sections = (
        Section("paper", "Beside the paper", (compared,), (beside_paper(counts),)),
        Section("places", "Where the feedback joins", (STUDY["places"],), places),
        Section("differences", "Reasons for differences", tuple(STUDY["notes"])),
    )
    return Document(TITLE, answer(counts), sections, paper=PAPER)


def answer(counts):
    added = [count["added"][COMPARED] for count in counts.values()]
    shares = [100 * count["added"][COMPARED] / count["base"] for count in counts.values()]
    published = [published_overhead(model) for model in PUBLISHED]
    published_shares = [100 * published_overhead(model) / base for model, (_, base, _) in PUBLISHED.items()]
    sentences = [
        f"A loop that joins at the {COMPARED} adds {say_count(min(added))} to {say_count(max(added))} parameters, "
        f"{min(shares):.1f} to {max(shares):.1f} % of the model. The paper's adds {min(published)} k to "
        f"{max(published)} k, {min(published_shares):.1f} to {max(published_shares):.1f} %."
    ]
    for model, count in counts.items():
        place, within_rounding = nearest_place(model, count)
        if within_rounding:
            at = place if place.startswith(("behind", "added", "concatenated")) else f"into the {place}"
            sentences.append(
                f"With our widths, the {published_overhead(model)} k that the paper adds to {PUBLISHED[model][0]} are "
                f"those of a link {at}: {grouped(count['added'][place])}."
            )
    return tuple(sentences)


def beside_paper(counts):
    rows = []
    for model, count in counts.items():
        name, base, loop = PUBLISHED[model]
        added = count["added"][COMPARED]
        pairs = ((count["base"], base), (count["base"] + added, loop), (added, loop - base))
        cells = [text for ours, published in pairs for text in (thousands(ours), str(published))]
        rows.append((f"{name} ({model})", *cells, thousands(count["encoders"])))
    header = ("model", *(f"{what}{whose}" for what in ("base", "loop", "added") for whose in ("", ", published")))
    return TextTable("Parameters in thousands", (*header, "of them encoders"), tuple(rows))


def by_place(counts):
    rows = [(place, *(grouped(count["added"][place]) for count in counts.values())) for place in JOINS]
    rows.append(("every pixel with weights of its own", *(grouped(count["dense"]) for count in counts.values())))
    rows.append(("published", *(f"{published_overhead(model)} k" for model in counts)))
    header = ("place", *(PUBLISHED[model][0] for model in counts))
    return TextTable("Parameters added, by where the feedback joins", header, tuple(rows), (len(rows) - 1,))


def nearest_places(counts):
    rows = []
    for model, count in counts.items():
        place, within_rounding = nearest_place(model, count)
        ours, fits = grouped(count["added"][place]), "yes" if within_rounding else "no"
        rows.append((PUBLISHED[model][0], f"{published_overhead(model)} k", place, ours, fits))
    header = ("model", "published", "nearest place", "added there", "within rounding")
    return TextTable("The place that comes nearest to the published overhead", header, tuple(rows))


def nearest_place(model, count):
    """The place whose overhead is nearest to the published one, and whether both agree within rounding."""
    apart = {place: abs(added - 1000 * published_overhead(model)) for place, added in count["added"].items()}
    place = min(apart, key=apart.get)
    return place, apart[place] <= 1000  # both published counts are rounded


def published_overhead(model):
    _, base, loop = PUBLISHED[model]
    return loop - base


def grouped(count):
    return f"{count:,}".replace(",", " ")


def thousands(count):
    return f"{count / 1000:.1f}" if count < 100_000 else f"{count / 1000:.0f}"


if __name__ == "__main__":
    run_from_command_line(run)
