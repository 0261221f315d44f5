"""Latent fusion on pictures cut into parts: M²VAE in both bounds, on all subsets and on chains, against its peers.

Serves m2vae-digits and m2vae-mnist, whose files NAME.yaml have the settings. A cell is one variant, trained on one cut
of the pictures with one seed, which also draws the split.
"""

import itertools
import time
from dataclasses import replace
from functools import lru_cache, partial
from math import isqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from consilience.comparison.plan import Source
from consilience.comparison.significance import compare_to_reference, too_few_seeds
from consilience.comparison.store import Result, Store
from consilience.core.samples import Samples
from consilience.methods.latent.generation_metrics import linear_probe
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.report.document import Document, Section, TextTable
from consilience.report.drawing import Drawing, drawing_style
from consilience.report.wording import Scale, say_list, say_number
from consilience.reproduction.study import Cell, run_from_command_line, run_study
from consilience.training import Trainer
from consilience.training.devices import resolve_device

TITLE = "Latent fusion on pictures in parts: which objective imputes, and how well?"
PAPER = "Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective"
NAMES = ("m2vae-digits", "m2vae-mnist")
STUDY = yaml.safe_load((Path(__file__).parent / "studies" / "m2vae.yaml").read_text(encoding="utf-8"))
VARIANTS = STUDY["variants"]
# most: samples at most of train, validation and test. hidden: widths of each encoder, and in reverse of each decoder;
# None for the defaults. estimated: how many test samples have their likelihood estimated, None for all.
DEFAULTS = {"variants": list(VARIANTS), "most": None, "hidden": None, "estimated": None}
JUDGED, COMPONENTS = 10_000, 50  # pictures and principal components that the judge learns from
FEW_DRAWS = 10  # with fewer effective draws an estimate is not reliable
SHOWN = 8  # pictures kept for the page
MORE_IS_BETTER = {"error": False, "conditional": True, "coherent": True}
COLUMNS = {
    "error": "error, root mean square",
    "conditional": "log p(the rest | given), nats",
    "coherent": "coherence, %",
}
ARROWS = {1: " ↑", -1: " ↓", 0: ""}  # significantly better, significantly worse, neither


def run(*, name="m2vae-digits", quick=False, out=None, jobs=1, cluster=None, verbose=1, command="", **settings):
    study = yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))
    settings = {**DEFAULTS, **study["settings"], **settings, "title": study["title"]}
    settings |= settings["quick_settings"] if quick else {}
    kept = (*DEFAULTS, "cuts", "latent", "epochs", "patience", "batch_size", "lr", "draws", "device")
    shared = {key: settings[key] for key in kept if key != "variants"}
    shared["data"] = {cut["name"]: source_of(cut).fingerprint() for cut in settings["cuts"]}
    cells = [
        {"cut": cut["name"], "variant": variant, "seed": seed}
        for seed in range(settings["seeds"])
        for cut in settings["cuts"]
        for variant in settings["variants"]
    ]
    options = {"quick": quick, "out": out, "jobs": jobs, "cluster": cluster, "verbose": verbose, "command": command}
    return run_study(name, measure, cells, shared, partial(describe, settings, cells), **options)


class Pictures(NamedTuple):
    """The parts of a split, and a classifier that judges whether what is generated fits what is given."""

    train: Samples
    validation: Samples
    test: Samples
    judge: object

    def judged(self, samples):
        """The judge's labels `[n]` of a mapping with all parts."""
        return self.judge.predict(flat(samples, self.train.names))


def source_of(cut):
    return Source.of(cut["data"], {"parts": cut.get("parts")})


@lru_cache(maxsize=1)  # the variants of a seed follow each other
def prepare(data, parts, binary, most, seed):
    """The pictures of a seed, at most so many of each part of the split. The judge may learn from more."""
    whole = source_of({"data": data, "parts": parts}).load().resplit(seed)
    if binary:
        whole = replace(whole, samples=binarised(whole.samples))
    split = (whole.train, whole.validation, whole.test)
    train, validation, test = (some_of(part, count, seed) for part, count in zip(split, most or (None,) * 3))
    seen = some_of(whole.train, JUDGED, seed)
    pixels = flat(seen, seen.names)
    judge = make_pipeline(PCA(min(COMPONENTS, *pixels.shape), random_state=0), SVC(gamma="scale", C=10.0))
    return Pictures(train, validation, test, judge.fit(pixels, seen.y))


def some_of(samples, most, seed):
    if most is None or len(samples) <= most:
        return samples
    return samples[np.sort(np.random.default_rng(seed).permutation(len(samples))[:most])]


def binarised(samples):
    """Every pixel 1 with its byte / 255 for the probability, else 0; the same draw at every call."""
    rng, drawn = np.random.default_rng(0), {}
    for name in samples.names:
        pixels = np.asarray(samples[name])
        drawn[name] = (rng.integers(0, 255, pixels.shape, dtype=np.uint8) < pixels).astype(np.uint8)
    return samples.replaced(drawn)


def flat(samples, names):
    """The pixels of some parts, one row a sample."""
    parts = [np.asarray(samples[name], dtype=np.float64) for name in names]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def joined(parts):
    """Two halves or four quadrants, images `[n, 1, height, width]` or squares as vectors, as whole pictures."""
    tiles = [part[:, 0] if part.ndim == 4 else part.reshape(len(part), isqrt(part.shape[1]), -1) for part in parts]
    rows = [np.concatenate(tiles[start : start + 2], axis=-1) for start in range(0, len(tiles), 2)]
    return np.concatenate(rows, axis=-2)


def measure(cell, shared):
    cut = next(cut for cut in shared["cuts"] if cut["name"] == cell["cut"])
    most = None if shared["most"] is None else tuple(shared["most"])
    pictures = prepare(cut["data"], cut.get("parts"), cut.get("binary", False), most, cell["seed"])
    began = time.perf_counter()
    trained = train(cell["variant"], cut, pictures, shared, cell["seed"])
    seconds = time.perf_counter() - began
    arrays, about = measure_subsets(trained, pictures, range(1, cut["count"]), shared)
    about |= {
        "seconds": seconds,
        "measuring_seconds": time.perf_counter() - began - seconds,
        "epochs": sum(len(log.rows) for log in trained.logs),
        "device": str(resolve_device(shared["device"])),
    }
    return Result(about, arrays)


def train(variant, cut, pictures, shared, seed):
    """A variant, trained until it no longer gets better on validation data."""
    names, nets = pictures.train.names, {}
    if shared["hidden"] is not None:
        widths = list(shared["hidden"])
        nets["encoders"] = {name: {"name": "mlp", "hidden": widths} for name in names}
        nets["decoders"] = {name: {"name": "mlp", "hidden": widths[::-1]} for name in names}
    training = {key: shared[key] for key in ("epochs", "patience", "batch_size", "lr", "device")}
    return TrainedLatent.fit(
        pictures.train,
        pictures.validation,
        **{"settings": {}, "subset_encoder": None, **VARIANTS[variant]},
        latent=shared["latent"],
        likelihoods=dict.fromkeys(names, "bernoulli" if cut.get("binary") else "gaussian"),
        **nets,
        trainer=Trainer(**training, seed=seed, cuda_graphs=True, on_interrupt="raise"),
    )


def measure_subsets(trained, pictures, sizes, shared):
    """Figures of each test sample: `squared_error` and `coherent` `[size, n]`, means over all subsets of a size;
    `conditional` `[size, m]` and `joint` `[m]` of the first m = `estimated` samples.
    """
    test, device = pictures.test, shared["device"]
    likelihood = partial(trained.log_likelihood, test[: shared["estimated"]], draws=shared["draws"], device=device)
    joint = likelihood()
    arrays, effective = {"squared_error": [], "conditional": [], "coherent": []}, [joint.effective_samples]
    for size in sizes:
        subsets = {name: [] for name in arrays}
        for given in itertools.combinations(test.names, size):
            rest = [name for name in test.names if name not in given]
            made = trained.generate(test, rest, given, device=device)
            evidence = likelihood(list(given))
            effective.append(evidence.effective_samples)
            subsets["squared_error"].append(np.square(flat(test, rest) - flat(made, rest)).mean(axis=1))
            subsets["conditional"].append((joint.value - evidence.value).numpy())
            subsets["coherent"].append(pictures.judged({**dict(test), **made}) == test.y)
        for name, values in subsets.items():
            arrays[name].append(np.mean(values, axis=0))
    arrays = {name: np.stack(values) for name, values in arrays.items()}
    arrays |= {"joint": joint.value.numpy(), "index": test.index, "pictures": complete(trained, test[:SHOWN], device)}
    latents = [trained.encode(part, device=device)[0] for part in (pictures.train, test)]
    draws = np.concatenate([tensor.numpy() for tensor in effective])
    about = {
        "judge": float(np.mean(pictures.judged(test) == test.y)),
        "probe": linear_probe(latents[0], np.asarray(pictures.train.y), latents[1], np.asarray(test.y)),
        "effective_samples": float(np.median(draws)),
        "few_draws": float(np.mean(draws < FEW_DRAWS)),
    }
    return arrays, about


def complete(trained, samples, device):
    """Pictures of which the first half of the parts is given: as given, with the rest generated, and the true ones."""
    true = {name: np.asarray(samples[name], dtype=np.float32) for name in samples.names}
    given = samples.names[: len(samples.names) // 2]
    made = trained.generate(samples, [name for name in samples.names if name not in given], given, device=device)
    blank = {name: part if name in given else np.zeros_like(part) for name, part in true.items()}
    return np.stack([joined(parts.values()) for parts in (blank, true | made, true)])


class Findings:
    """All results of one cut. The reference is m2vae, or the first variant where that was not measured."""

    def __init__(self, cut, variants, cells, results):
        self.cut, self.variants, self.name = cut, variants, cut["name"]
        self.sizes = tuple(range(1, cut["count"]))
        self.reference = "m2vae" if "m2vae" in variants else variants[0]
        self.results = {variant: [] for variant in variants}
        for cell, result in zip(cells, results):
            if cell["cut"] == self.name:
                self.results[cell["variant"]].append(result)

    def about(self, variant, what):
        return np.array([result.about[what] for result in self.results[variant]])

    def summary(self, variant, measure):
        """`[seed, size]`: the root of the mean squared error, the mean log-likelihood, or the share in per cent."""
        name = "squared_error" if measure == "error" else measure
        means = np.array([result.arrays[name].mean(axis=1) for result in self.results[variant]])
        return np.sqrt(means) if measure == "error" else 100 * means if measure == "coherent" else means

    def significant(self, measure):
        """(variant, place of the size) → 1 where it is significantly better than the reference, −1 where worse.

        By paired bootstrap over seeds and test samples, at 5 %, corrected by Holm over the variants.
        """
        name, sign = ("squared_error" if measure == "error" else measure), 1.0 if MORE_IS_BETTER[measure] else -1.0
        arrays = {variant: [result.arrays for result in results] for variant, results in self.results.items()}
        index = {seed: own["index"][: own[name].shape[1]] for seed, own in enumerate(arrays[self.reference])}
        found = {}
        for place in range(len(self.sizes)):
            scores = {
                variant: {seed: sign * own[name][place] for seed, own in enumerate(seeds)}
                for variant, seeds in arrays.items()
            }
            for row in compare_to_reference(scores, self.reference, samples=index):
                if row["significant"]:
                    found[row["method"], place] = 1 if row["difference"] > 0 else -1
        return found


def read_findings(folder, seeds=None):
    """The findings of a run folder, one for each cut, and its shared settings; of the first seeds, None for all."""
    store = Store(folder)
    plan = store.read_plan()
    assert plan is not None, f"{folder} holds no run"
    jobs = [Cell(**job) for job in plan["jobs"] if seeds is None or job["settings"]["seed"] < seeds]
    results = list(store.read_all(jobs, plan["asked"]["experiment"]).values())
    cells = [job.settings for job in jobs]
    variants = list(dict.fromkeys(cell["variant"] for cell in cells))
    return [Findings(cut, variants, cells, results) for cut in plan["asked"]["cuts"]], plan["asked"]


def describe(settings, cells, results):
    every = [Findings(cut, settings["variants"], cells, results) for cut in settings["cuts"]]
    several, sections, sentences = len(every) > 1, [], []

    def titled(findings, text):
        return f"{findings.name.capitalize()}: {text[0].lower()}{text[1:]}" if several else text

    for findings in every:
        significant = {measure: findings.significant(measure) for measure in COLUMNS}
        name, title = findings.name, partial(titled, findings)
        tables = tuple(tables_by_size(findings, significant))
        whole, pictures = whole_table(findings, settings), gallery(findings)
        sections += [
            Section(f"subsets-{name}", title("By the number of parts given"), reading(findings, settings), tables),
            Section(f"whole-{name}", title("Whole digits"), tables=(whole,)),
            Section(f"look-{name}", title("What they imagine"), figures=(pictures,)),
        ]
        for measure in COLUMNS:
            what = title(STUDY[measure].partition(":")[0].partition(" of the")[0])
            sentences.append(f"{what}: {say_ranks(findings, measure, significant[measure])}")
    how = (how_measured(findings, settings) for findings in every)
    sections.append(Section("method", "How it was measured", (*STUDY["notes"], *settings.get("notes", ()), *how)))
    return Document(settings["title"], tuple(sentences), tuple(sections), paper=PAPER)


def say_ranks(findings, measure, significant):
    """Which variant is best by the mean over seeds and sizes, and which differ from the reference at every size."""
    means = {variant: findings.summary(variant, measure).mean() for variant in findings.variants}
    ranked = sorted(means, key=means.get, reverse=MORE_IS_BETTER[measure])
    scale, reference = Scale(1.0, 3 if measure == "error" and findings.cut.get("binary") else 2), findings.reference
    first, second, ours = (scale.number(means[variant]) for variant in (*ranked[:2], reference))
    clauses = []
    for sign, word in ((1, "better"), (-1, "worse")):
        places = range(len(findings.sizes))
        variants = [v for v in findings.variants if all(significant.get((v, place)) == sign for place in places)]
        if variants:
            verb = "is" if len(variants) == 1 else "are"
            clauses.append(f"significantly {word} than it {verb} {say_list(variants)}")
    differing = "; ".join(clauses)
    return (
        f"best is {ranked[0]} ({first}), then {ranked[1]} ({second}); {reference} is number "
        f"{ranked.index(reference) + 1} of {len(ranked)} ({ours})."
        + (f" {differing[0].upper()}{differing[1:]}." if differing else "")
    )


def tables_by_size(findings, significant):
    """A table for each measure with a column for each number of parts given; a single one for a single number."""

    def cell(variant, measure, place):
        decimals = 1 if measure != "error" else 3 if findings.cut.get("binary") else 2
        values = findings.summary(variant, measure)[:, place]
        return Scale(1.0, decimals).over_seeds(values) + ARROWS[significant[measure].get((variant, place), 0)]

    variants, sizes, marked = findings.variants, findings.sizes, (findings.variants.index(findings.reference),)
    if len(sizes) == 1:
        rows = tuple((variant, *(cell(variant, measure, 0) for measure in COLUMNS)) for variant in variants)
        yield TextTable(f"{sizes[0]} of {findings.cut['count']} parts given", ("", *COLUMNS.values()), rows, marked)
        return
    for measure in COLUMNS:
        rows = tuple((v, *(cell(v, measure, place) for place in range(len(sizes)))) for v in variants)
        yield TextTable(STUDY[measure], ("", *(f"{size} given" for size in sizes)), rows, marked)


def whole_table(findings, settings):
    rows = []
    for variant, results in findings.results.items():
        joint = [result.arrays["joint"].mean() for result in results]
        pairs = [Scale(1.0, 1).over_seeds(values) for values in (joint, 100 * findings.about(variant, "probe"))]
        few = f"{100 * findings.about(variant, 'few_draws').mean():.0f}"
        draws, epochs, seconds = (
            f"{findings.about(variant, what).mean():.0f}" for what in ("effective_samples", "epochs", "seconds")
        )
        rows.append((variant, *pairs, draws, few, epochs, seconds))
    header = ("", "log p(x), nats", "linear probe, %", f"effective draws of {settings['draws']}")
    header += (f"under {FEW_DRAWS} effective, %", "epochs", "seconds")
    return TextTable("Likelihood of whole digits, and what the latent knows of their class", header, tuple(rows))


def gallery(findings):
    """Some test digits of the first seed: what is given, what each variant makes of it, and the truth."""
    pictures = {variant: results[0].arrays["pictures"] for variant, results in findings.results.items()}
    given, _, true = pictures[findings.variants[0]]
    count = findings.cut["count"]
    return Drawing(
        f"look-{findings.name}",
        STUDY["gallery"].format(given=count // 2, count=count),
        f"Digits of which {count // 2} of {count} parts are given, completed by {say_list(findings.variants)}",
        draw_rows({"given": given, **{variant: own[1] for variant, own in pictures.items()}, "true": true}),
    )


def draw_rows(rows, side=0.42, labels=1.3):
    """Pictures `[column, height, width]` by the name of their row, in the range of the last row; sizes in inches."""
    columns, height, width = next(iter(rows.values())).shape
    mosaic = np.full((len(rows), columns, height + 1, width + 1), np.nan)
    mosaic[:, :, :height, :width] = np.stack(list(rows.values()))
    sheet = mosaic.swapaxes(1, 2).reshape(len(rows) * (height + 1), columns * (width + 1))[:-1, :-1]
    across, true = labels + side * columns + 0.1, list(rows.values())[-1]
    with drawing_style():
        figure = Figure(figsize=(across, side * len(rows) + 0.1), facecolor="none")
        axes = figure.add_axes((labels / across, 0, side * columns / across, 1))
        axes.imshow(sheet, "gray_r", aspect="auto", interpolation="nearest", vmin=true.min(), vmax=true.max())
        axes.set_yticks([(height + 1) * (row + 0.5) - 1 for row in range(len(rows))], list(rows))
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure


def reading(findings, settings):
    caution = too_few_seeds(settings["seeds"], len(findings.variants) - 1)
    legend = STUDY["reading"].format(seeds=say_number(settings["seeds"], "seed"), reference=findings.reference)
    judge = 100 * findings.about(findings.reference, "judge").mean()
    return f"{legend} {caution}" if caution else legend, STUDY["judge"].format(judge=judge)


def how_measured(findings, settings):
    cut, most, hidden = findings.cut, settings["most"], settings["hidden"]
    arrays = findings.results[findings.reference][0].arrays
    results = (result for results in findings.results.values() for result in results)
    sizes = "" if most is None else STUDY["sizes"].format(data=cut["data"], train=most[0], stop=most[1]) + " "
    return STUDY["how"].format(
        **{name: settings[name] for name in ("latent", "lr", "batch_size", "epochs", "patience", "draws")},
        cut=findings.name.capitalize(),
        sizes=sizes,
        tested=len(arrays["index"]),
        of=len(arrays["joint"]),
        nets="the default nets" if hidden is None else f"encoders of {say_list(map(str, hidden))} units",
        likelihood="Bernoulli likelihoods"
        if cut.get("binary")
        else "Gaussian likelihoods with one learned scale a part",
        devices=say_list(sorted({result.about["device"] for result in results})),
    )


if __name__ == "__main__":
    run_from_command_line(run, NAMES)
