"""The page of the experiment: the published log-likelihood beside ours, and what else the models know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from consilience.comparison.experiments.jmvae_mnist.cells import FULL, OBJECTIVES, Protocol
from consilience.comparison.experiments.study import Study
from consilience.comparison.statistics import compare_to_reference, too_few_seeds
from consilience.comparison.store import Result
from consilience.report.document import Account, Section, TextTable
from consilience.report.wording import NOTHING, Scale, say_list, say_number

# log p(image): by the authors, and by the package MultiVae over its seeds.
AUTHORS, MULTIVAE = -86.86, (-86.85, 0.03)
PUBLISHED = "jmvae"
_NATS = Scale(1.0, 2)
_RECIPE = {
    "train": "training images",
    "test": "test images",
    "epochs": "epochs",
    "warmup": "epochs of warm-up",
    "draws": "draws",
}
# Column → from the arrays of a result to each test sample's figure.
_COLUMNS: dict[str, Callable[[Mapping[str, np.ndarray]], np.ndarray]] = {
    "log p(image)": lambda one: one["image"],
    "log p(image, label)": lambda one: one["joint"],
    "log p(image | label)": lambda one: one["joint"] - one["label"],
    "log p(label | image)": lambda one: one["joint"] - one["image"],
    "label from image, %": lambda one: 100.0 * one["right"],
}

Found = Mapping[str, list[Result]]


def give_account(study: Study, protocol: Protocol, results: Mapping[str, Result]) -> Account:
    """What all jobs say, in words and tables."""
    found: dict[str, list[Result]] = {name: [] for name in OBJECTIVES}
    for cell in protocol.cells():
        found[cell.method].append(results[cell.key])
    sections = (
        Section("published", "Beside what is published", tables=(beside_published(found),)),
        Section("all", "All likelihoods", _reading(protocol, found), (all_likelihoods(found), draws_table(found))),
        Section("differences", "Reasons for differences", study.notes),
        Section("made", "How it was made", (_how(protocol, found),)),
    )
    return Account(study.title, answer(protocol, found), sections, paper=study.paper)


def answer(protocol: Protocol, found: Found) -> tuple[str, ...]:
    """Ours and the published figure, and whether the recipe was followed."""
    ours = _means(found[PUBLISHED], "published")
    said = (
        f"log p(image) by the published estimate is {_pair(ours)} nats over {say_number(len(ours), 'seed')}; published "
        f"are {_NATS.number(AUTHORS)} by the authors and {_NATS.pair(*MULTIVAE)} by MultiVae: ours differs by "
        f"{_NATS.signed(ours.mean() - AUTHORS)} from the former."
    )
    return (said, *_smaller(protocol))


def beside_published(found: Found) -> TextTable:
    """log p(image) as it was published, and the difference."""
    rows = []
    for name, results in found.items():
        ours, theirs = _means(results, "published"), (NOTHING, NOTHING, NOTHING)
        if name == PUBLISHED:
            theirs = (_NATS.number(AUTHORS), _NATS.signed(ours.mean() - AUTHORS), _NATS.pair(*MULTIVAE))
        rows.append((_called(name), _pair(ours), *theirs))
    header = ("objective", "ours", "published", "difference", "MultiVae")
    return TextTable("log p(image), nats, with z from q(z | image, label)", header, tuple(rows), marked=(0,))


def all_likelihoods(found: Found) -> TextTable:
    """Of the image, of both, of each given the other, and how often the label is read from the image."""
    sure = {what: _sure(found, what) for what in _COLUMNS}
    rows = tuple(
        (
            _called(name),
            *(
                _pair(np.array([figure(one.arrays).mean() for one in results])) + sure[what].get(name, "")
                for what, figure in _COLUMNS.items()
            ),
        )
        for name, results in found.items()
    )
    return TextTable("Mean over test images, refined proposals, nats", ("objective", *_COLUMNS), rows, marked=(0,))


def draws_table(found: Found) -> TextTable:
    """How many draws each kind of estimate rests on."""
    kinds = {"published": "as published", "image": "image", "joint": "image and label", "label": "label"}
    rows = tuple(
        (_called(name), *(f"{np.mean([one.about['effective'][kind] for one in results]):.0f}" for kind in kinds))
        for name, results in found.items()
    )
    return TextTable("Effective draws, median over test images", ("objective", *kinds.values()), rows)


def _sure(found: Found, what: str) -> dict[str, str]:
    """Objective → an arrow where its difference to the published one is significant; more is better everywhere."""
    scores = {
        name: {seed: _COLUMNS[what](one.arrays) for seed, one in enumerate(results)} for name, results in found.items()
    }
    samples = {seed: one.arrays["index"] for seed, one in enumerate(found[PUBLISHED])}
    rows = compare_to_reference(scores, PUBLISHED, samples=samples)
    return {row["method"]: " ↑" if row["difference"] > 0 else " ↓" for row in rows if row["significant"]}


def _reading(protocol: Protocol, found: Found) -> tuple[str, ...]:
    caution = too_few_seeds(protocol.seeds, len(found) - 1)
    return (
        f"Mean ± standard deviation over {say_number(protocol.seeds, 'seed')}. An arrow marks a difference to "
        f"{PUBLISHED} that is significant at 5 % (paired bootstrap over seeds and test images): ↑ better, ↓ worse."
        + (f" {caution}" if caution else ""),
    )


def _smaller(protocol: Protocol) -> list[str]:
    """What was not done as the recipe says."""
    whole = {"train": 60_000, "test": 10_000, "epochs": FULL.epochs, "warmup": FULL.warmup, "draws": FULL.draws}
    other = [
        f"{_count(getattr(protocol, name))} of {_count(most)} {_RECIPE[name]}"
        for name, most in whole.items()
        if getattr(protocol, name) != getattr(FULL, name)
    ]
    return [f"This run is smaller than the recipe: {say_list(other)}. So the two do not compare."] if other else []


def _how(protocol: Protocol, found: Found) -> str:
    results = [one for each in found.values() for one in each]
    trained, tested = results[0].about["trained_on"], len(results[0].arrays["index"])
    devices = say_list(sorted({one.about["device"] for one in results}))
    training, measuring = (np.median([one.about[name] for one in results]) for name in ("seconds", "measuring_seconds"))
    return (
        f"{_count(trained)} training and {_count(tested)} test images. Latent of {protocol.latent} dimensions, layers "
        f"of {protocol.hidden} units, Adam with learning rate {protocol.lr:g}, batches of {protocol.batch_size}, "
        f"{protocol.epochs} epochs, divergences reaching their full weight over the first {protocol.warmup}, "
        f"{protocol.draws} draws. On the median {training:.0f} s of training and {measuring:.0f} s of estimating on "
        f"{devices}."
    )


def _called(name: str) -> str:
    settings = "".join(f", {'α' if key == 'alpha' else key} = {value:g}" for key, value in OBJECTIVES[name].items())
    return name + settings


def _means(results: Sequence[Result], what: str) -> np.ndarray:
    return np.array([one.arrays[what].mean() for one in results])


def _count(count: int) -> str:
    return f"{count:,}".replace(",", "\u202f")


def _pair(values: np.ndarray) -> str:
    return _NATS.pair(values.mean(), values.std(ddof=1) if len(values) > 1 else None)
