"""JMVAE on MNIST and its labels: the published log-likelihood of images, by the published recipe.

A cell is one objective with one seed: a model trained by the recipe, and its log-likelihoods.
"""

import time
from pathlib import Path

import numpy as np
import torch
import yaml

from consilience.comparison.plan import Source
from consilience.comparison.significance import compare_to_reference, too_few_seeds
from consilience.comparison.store import Result
from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.seeding import seeded
from consilience.core.targets import Task
from consilience.methods import Spec
from consilience.methods.latent.importance_sampling import LogLikelihood, WeightSums, log_joint, pairs_at_once
from consilience.methods.latent.latent_model import LatentModel
from consilience.methods.latent.subset_encoders import OwnEncoder
from consilience.methods.latent.trained_latent_model import BATCH, TrainedLatent
from consilience.methods.latent.unit_conversion import own_transforms
from consilience.preparation import Preparation
from consilience.report.document import Document, Section, TextTable
from consilience.report.wording import NOTHING, Scale, say_list, say_number
from consilience.reproduction.study import run_from_command_line, run_study
from consilience.training import Trainer
from consilience.training.batch_loader import BatchLoader
from consilience.training.devices import resolve_device

TITLE = "JMVAE on images and labels of MNIST: the published log-likelihood"
PAPER = "Suzuki, Nakayama and Matsuo 2016, Joint Multimodal Learning with Deep Generative Models"
STUDY = yaml.safe_load((Path(__file__).parent / "studies" / "jmvae-mnist.yaml").read_text(encoding="utf-8"))
AUTHORS, MULTIVAE = -86.86, (-86.85, 0.03)  # log p(image): by the authors, and by the package MultiVae over its seeds
SETS = ("mnist",)
DATA = Source(*SETS)
IMAGE, LABEL = "image", "label"
LIKELIHOODS = {IMAGE: "bernoulli", LABEL: "categorical"}
# The first is published; α says how strongly the posteriors of one modality are pulled to the joint one.
OBJECTIVES = {"jmvae": {"alpha": 0.1}, "m2vae": {"bound": "paper"}}
FULL, QUICK = STUDY["settings"], STUDY["settings"] | STUDY["quick_settings"]
NATS = Scale(1.0, 2)


def run(*, quick=False, settings=None, **options):
    settings = {**(QUICK if quick else FULL), **(settings or {})}
    shared = {name: value for name, value in settings.items() if name != "seeds"}
    return run_study(
        "jmvae-mnist",
        measure,
        [{"objective": name, "seed": seed} for seed in range(settings["seeds"]) for name in OBJECTIVES],
        shared | {"objectives": OBJECTIVES, "data": DATA.fingerprint()},
        lambda results: describe(settings, results),
        quick=quick,
        **options,
    )


def measure(cell, shared):
    train, test = images_and_labels(DATA.load(), shared["train"], shared["test"], cell["seed"])
    began = time.perf_counter()
    training = {name: shared[name] for name in ("epochs", "batch_size", "lr")}
    trainer = Trainer(**training, seed=cell["seed"], patience=None, cuda_graphs=True, on_interrupt="raise")
    objective = {"objective": cell["objective"], "settings": OBJECTIVES[cell["objective"]], "warmup": shared["warmup"]}
    trained = fit(train, trainer, hidden=shared["hidden"], latent=shared["latent"], **objective)
    seconds = time.perf_counter() - began
    arrays, effective = likelihoods(trained, test, shared["draws"])
    about = {
        "effective": effective,
        "seconds": seconds,
        "measuring_seconds": time.perf_counter() - began - seconds,
        "trained_on": len(train),
        "device": str(resolve_device("auto")),
    }
    return Result(about, arrays | {"index": test.index})


def images_and_labels(data, train, test, seed):
    """Training and validation images in grey, and test images with every pixel drawn to be black or white."""
    tested, parts = data.split == "test", []
    for rows, most in ((np.flatnonzero(~tested), train), (np.flatnonzero(tested), test)):
        if most is not None and most < len(rows):
            rows = np.sort(np.random.default_rng(seed).permutation(rows)[:most])
        pixels, y = np.asarray(data.samples[IMAGE])[rows], data.y[rows]
        labels = (y[:, None] == np.unique(data.y)).astype(np.float32)
        if parts:
            pixels = np.random.default_rng(0).integers(0, 255, pixels.shape, dtype=np.uint8) < pixels
        images = pixels.astype(np.float32) / (1 if parts else 255)
        parts.append(Samples.of({IMAGE: images, LABEL: labels}, y, index=rows))
    return parts


class JmvaeNets(LatentModel):
    """The published nets: for every subset of image and label a layer of `hidden` units each, side by side into
    another; two such layers for each decoder.
    """

    def __init__(self, spec, *, hidden, **settings):
        decoders = {name: {"name": "mlp", "hidden": [hidden, hidden]} for name in LIKELIHOODS}
        super().__init__(spec, subset_encoder="own", decoders=decoders, likelihoods=LIKELIHOODS, **settings)
        self.subset_encoder = OwnEncoder(spec, self.latent, hidden)

    def forward(self, batch):
        """In training, the pixels are drawn here, with their grey for the probability of 1."""
        if self.training:
            drawn = {**batch.values, IMAGE: torch.bernoulli(batch[IMAGE])}
            kept = {"index": batch.index, "weight": batch.weight, "complete": batch.complete}
            batch = Batch(drawn, batch.present, **kept)
        return super().forward(batch)


def fit(train, trainer, *, hidden, **settings):
    """Train on all samples for as many epochs as the trainer has. settings: of `LatentModel`."""
    trainer.preparation = Preparation.fit(train, Task.none(), own_transforms(train.modalities, LIKELIHOODS))
    encoder = {"name": "mlp", "hidden": [hidden], "dropout": 0.0, "normalise": False}
    spec = Spec(trainer.preparation.modalities, trainer.preparation.task, dict.fromkeys(LIKELIHOODS, encoder))
    with seeded(trainer.seed):
        model = JmvaeNets(spec, hidden=hidden, **settings)
    model.fit(train, None, trainer)
    trainer.forget()
    return TrainedLatent(model, trainer.preparation, logs=trainer.logs)


def likelihoods(trained, test, draws):
    """Log-likelihoods of each test sample `[n]` and whether its label is generated right; and the effective draws."""
    estimates = {
        "published": published_estimate(trained, test, draws),
        "image": trained.log_likelihood(test, [IMAGE], draws=draws, device="auto"),
        "joint": trained.log_likelihood(test, draws=draws, device="auto"),
        "label": trained.log_likelihood(test, [LABEL], draws=draws, device="auto"),
    }
    guessed = trained.generate(test, [LABEL], [IMAGE], device="auto")[LABEL]
    arrays = {name: estimate.value.numpy() for name, estimate in estimates.items()}
    arrays["right"] = guessed.argmax(axis=1) == np.asarray(test[LABEL]).argmax(axis=1)
    return arrays, {name: float(estimate.effective_samples.median()) for name, estimate in estimates.items()}


@torch.no_grad()
def published_estimate(trained, samples, draws):
    """log p(image) of each sample `[n]` as it was published: z from q(z | image, label)."""
    model, device = trained.model, resolve_device("auto")
    model.to(device).eval()
    generator = torch.Generator(device).manual_seed(0)
    parts = []
    for batch in BatchLoader(samples, trained.preparation, device).in_order(BATCH):
        q, sums = model.posterior(batch), WeightSums()
        at_once = max(1, pairs_at_once(model, device) // len(batch))
        while sums.draws < draws:
            z = q.draw(generator, min(at_once, draws - sums.draws))
            sums.add(log_joint(model, batch, [IMAGE], z) - q.log_density(z))
        estimate = sums.estimate()
        parts.append((estimate.value.cpu(), estimate.standard_error.cpu(), estimate.effective_samples.cpu()))
    return LogLikelihood(*(torch.cat(tensors) for tensors in zip(*parts)))


# Column → each test sample's figure, from the arrays of a result.
COLUMNS = {
    "log p(image)": lambda arrays: arrays["image"],
    "log p(image, label)": lambda arrays: arrays["joint"],
    "log p(image | label)": lambda arrays: arrays["joint"] - arrays["label"],
    "log p(label | image)": lambda arrays: arrays["joint"] - arrays["image"],
    "label from image, %": lambda arrays: 100.0 * arrays["right"],
}


def describe(settings, results):
    by_objective = {name: results[place :: len(OBJECTIVES)] for place, name in enumerate(OBJECTIVES)}
    seeds = say_number(settings["seeds"], "seed")
    reading = (STUDY["reading"].format(seeds=seeds), too_few_seeds(settings["seeds"], len(OBJECTIVES) - 1))
    tables = (likelihoods_table(by_objective), draws_table(by_objective))
    sections = (
        Section("published", "Beside what is published", tables=(published_table(by_objective),)),
        Section("all", "All likelihoods", (" ".join(filter(None, reading)),), tables),
        Section("differences", "Reasons for differences", tuple(STUDY["notes"])),
        Section("made", "How it was made", (how_made(settings, results),)),
    )
    return Document(TITLE, answer(settings, published_means(by_objective["jmvae"])), sections, paper=PAPER)


def published_means(results):
    return np.array([result.arrays["published"].mean() for result in results])


def answer(settings, ours):
    sentences = [
        STUDY["answer"].format(
            ours=NATS.over_seeds(ours),
            seeds=say_number(len(ours), "seed"),
            authors=NATS.number(AUTHORS),
            multivae=NATS.pair(*MULTIVAE),
            difference=NATS.signed(ours.mean() - AUTHORS),
        )
    ]
    nouns = {"train": "training images", "test": "test images", "epochs": "epochs", "warmup": "epochs of warm-up"}
    recipe = FULL | {"train": 60_000, "test": 10_000}
    smaller = [
        f"{grouped(settings[name])} of {grouped(recipe[name])} {noun}"
        for name, noun in (nouns | {"draws": "draws"}).items()
        if settings[name] != FULL[name]
    ]
    if smaller:
        sentences.append(f"This run is smaller than the recipe: {say_list(smaller)}. So the two do not compare.")
    return tuple(sentences)


def published_table(by_objective):
    rows = []
    for name, results in by_objective.items():
        ours, published = published_means(results), (NOTHING,) * 3
        if name == "jmvae":
            published = (NATS.number(AUTHORS), NATS.signed(ours.mean() - AUTHORS), NATS.pair(*MULTIVAE))
        rows.append((label_of(name), NATS.over_seeds(ours), *published))
    header = ("objective", "ours", "published", "difference", "MultiVae")
    return TextTable("log p(image), nats, with z from q(z | image, label)", header, tuple(rows), marked=(0,))


def likelihoods_table(by_objective):
    index = {seed: result.arrays["index"] for seed, result in enumerate(by_objective["jmvae"])}
    rows = {name: [label_of(name)] for name in by_objective}
    for figure in COLUMNS.values():
        scores = {
            name: {seed: figure(result.arrays) for seed, result in enumerate(results)}
            for name, results in by_objective.items()
        }
        differences = {row["method"]: row for row in compare_to_reference(scores, "jmvae", samples=index)}
        for name, by_seed in scores.items():
            row, arrow = differences.get(name), ""
            if row is not None and row["significant"]:
                arrow = " ↑" if row["difference"] > 0 else " ↓"
            rows[name].append(NATS.over_seeds([values.mean() for values in by_seed.values()]) + arrow)
    cells = tuple(map(tuple, rows.values()))
    return TextTable("Mean over test images, refined proposals, nats", ("objective", *COLUMNS), cells, marked=(0,))


def draws_table(by_objective):
    kinds = {"published": "as published", "image": "image", "joint": "image and label", "label": "label"}
    rows = tuple(
        (label_of(name), *(f"{np.mean([result.about['effective'][kind] for result in results]):.0f}" for kind in kinds))
        for name, results in by_objective.items()
    )
    return TextTable("Effective draws, median over test images", ("objective", *kinds.values()), rows)


def how_made(settings, results):
    seconds = {"training": "seconds", "estimating": "measuring_seconds"}
    medians = {what: np.median([result.about[name] for result in results]) for what, name in seconds.items()}
    sizes = {"trained": results[0].about["trained_on"], "tested": len(results[0].arrays["index"])}
    return STUDY["how"].format(
        **settings,
        **medians,
        **{part: grouped(size) for part, size in sizes.items()},
        devices=say_list(sorted({result.about["device"] for result in results})),
    )


def label_of(objective):
    alpha = OBJECTIVES[objective].get("alpha")
    return objective if alpha is None else f"{objective}, α = {alpha:g}"


def grouped(count):
    return f"{count:,}".replace(",", "\u202f")


if __name__ == "__main__":
    run_from_command_line(run)
