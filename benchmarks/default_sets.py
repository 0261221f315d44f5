"""The vector sets that defaults are judged on: readers, splits, training subsets and what is done to the test samples.

The sets with files are read from the folder CONSILIENCE_DATA; the others come with scikit-learn. All can be kept as
arrays, one file for each set, for a machine that has neither: the variable KEPT_SETS then leads to their folder.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from consilience import load_data
from consilience.core.errors import MissingDataError
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.data.sets.hydraulic import BLOCK
from consilience.data.splits import pick_stratified

TEST_SHARE = 0.3
VALIDATION_SHARE = 0.2  # of the training rows
FEWEST = 2  # training rows of a class
WINDOWS = 10  # of a sequence of movements
KEPT = "KEPT_SETS"  # the variable, since worker processes inherit it
ALL = "all"

# Title → corruption, level, probability that a modality of a sample is hit; None: nothing is done.
CONDITIONS: dict[str, tuple[str, float, float] | None] = {
    "clean": None,
    "missing": ("missing", 10, 0.5),
    "σ=1": ("gaussian", 1, 0.5),
    "σ=5": ("gaussian", 5, 0.5),
    "σ=10": ("gaussian", 10, 0.5),
    "swapped": ("swapped", 10, 0.5),
    "σ=.5 on all": ("gaussian", 0.5, 1.0),
    "σ=1 on all": ("gaussian", 1, 1.0),
}


class TooFewRows(Exception):
    """A training part of this size cannot be drawn."""


@dataclass(frozen=True)
class Source:
    """All rows of a set.

    Attributes:
        samples: Vectors with labels.
        test: The rows of the official test part `[n]`; None: the test part is drawn.
        block: Numbers `[n]`; rows of the same block are drawn together. None: rows are drawn one by one.
    """

    samples: Samples
    test: np.ndarray | None = None
    block: np.ndarray | None = None

    @property
    def classes(self) -> int:
        return len(np.unique(self.samples.y))

    @property
    def features(self) -> int:
        return sum(modality.shape[0] for modality in self.samples.modalities.values())


@dataclass(frozen=True)
class Parts:
    """What a contender learns from and is tested on; `pool` is the training part from which `train` was drawn."""

    train: Samples
    pool: Samples
    test: Samples


def read_official(name: str) -> Source:
    """A named set with its own test part; the validation part, if any, is for training."""
    data = load_data(name)
    return Source(data.samples, test=data.split == "test")


def read_digits() -> Source:
    return Source(load_data("digits").samples)


def read_digits_rows() -> Source:
    """The rows of pixels of scikit-learn's digits, eight modalities of eight pixels."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return cut_columns(X, y, {f"row_{place}": slice(8 * place, 8 * place + 8) for place in range(8)})


def read_wine() -> Source:
    """13 measurements of wines: alcohol, acids and minerals; phenols; colour and proline."""
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    return cut_columns(X, y, {"minerals": slice(0, 5), "phenols": slice(5, 9), "colour": slice(9, 13)})


def read_breast_cancer() -> Source:
    """Ten measurements of cell nuclei: their mean, their standard error and the worst value."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return cut_columns(X, y, {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)})


def cut_columns(X: np.ndarray, y: np.ndarray, columns: dict[str, slice]) -> Source:
    return Source(Samples.of({name: X[:, own].astype(np.float32) for name, own in columns.items()}, y))


def read_hydraulic(component: str) -> Source:
    """Each sensor's minute as a vector. Neighbouring cycles are nearly equal, so blocks of them are held out."""
    samples = load_data("hydraulic", component=component).samples
    vectors = Samples.of({name: samples[name][:, :, 0] for name in samples.names}, samples.y)
    return Source(vectors, block=np.arange(len(vectors)) // BLOCK)


def read_breast_tcga() -> Source:
    """The tumours with all three measurements; those of the official test part lack the protein."""
    samples = load_data("breast-tcga").samples
    return Source(samples[samples.present.all(axis=1)])


def read_utd_mhad() -> Source:
    """27 actions, mean and standard deviation of each sensor in ten windows of time; other people in the test part."""
    data = load_data("utd-mhad")
    values = {
        name: np.stack([summarise(row[:length]) for row, length in zip(data.samples[name], data.samples.lengths[name])])
        for name in data.samples.names
    }
    return Source(Samples.of(values, data.y), test=data.split == "test")


def summarise(sequence: np.ndarray) -> np.ndarray:
    """Mean and standard deviation in each window of time: `[time, channel]` → `[2 · window · channel]`."""
    windows = np.array_split(np.asarray(sequence, dtype=np.float32), WINDOWS)
    return np.concatenate([moment(window, axis=0) for window in windows for moment in (np.mean, np.std)])


SETS: dict[str, Callable[[], Source]] = {
    "handwritten": lambda: read_official("handwritten"),
    "digits": read_digits,
    "digits-rows": read_digits_rows,
    "mvsa": lambda: read_official("mvsa"),
    "mosi": lambda: read_official("mosi"),
    "hydraulic-cooler": lambda: read_hydraulic("cooler"),
    "hydraulic-valve": lambda: read_hydraulic("valve"),
    "hydraulic-pump": lambda: read_hydraulic("pump"),
    "hydraulic-accumulator": lambda: read_hydraulic("accumulator"),
    "breast-tcga": read_breast_tcga,
    "breast-tcga-official": lambda: read_official("breast-tcga"),
    "utd-mhad": read_utd_mhad,
    "wine": read_wine,
    "breast-cancer": read_breast_cancer,
}


# Sets whose test part is the same for all seeds.
OFFICIAL = ("handwritten", "mvsa", "mosi", "breast-tcga-official", "utd-mhad")


@cache
def read(name: str) -> Source:
    """Read a set once per process, from the folder KEPT_SETS if there is one.

    Raises:
        MissingDataError: If CONSILIENCE_DATA does not lead to its files, or the folder does not have the set.
    """
    folder = os.environ.get(KEPT)
    return SETS[name]() if folder is None else read_kept(Path(folder) / f"{name}.npz")


def keep(names: Iterable[str], folder: Path) -> int:
    """Write the arrays of sets to files of a folder; return their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for name in names:
        source = SETS[name]()
        arrays = {f"values {each}": np.asarray(source.samples[each]) for each in source.samples.names}
        arrays |= {"y": source.samples.y, "present": source.samples.present}
        arrays |= {} if source.test is None else {"test": source.test}
        arrays |= {} if source.block is None else {"block": source.block}
        path = folder / f"{name}.npz"
        np.savez_compressed(path, **arrays)
        size += path.stat().st_size
    return size


def read_kept(path: Path) -> Source:
    """Read what `keep` has written.

    Raises:
        MissingDataError: If there is no such file.
    """
    if not path.is_file():
        raise MissingDataError(f"{path.stem}: there is no {path}; write it with --keep-sets {path.parent}")
    with np.load(path) as arrays:
        values = {key.removeprefix("values "): arrays[key] for key in arrays.files if key.startswith("values ")}
        samples = Samples.of(values, arrays["y"], present=arrays["present"])
        return Source(samples, *(arrays[key] if key in arrays.files else None for key in ("test", "block")))


def draw(name: str, size: int | str, seed: int) -> Parts:
    """The parts of a set for a seed: its official test part, else 30 % of the rows, stratified by class.

    Args:
        name: Of the set.
        size: How many training rows to draw, stratified by class; "all" for the whole training part.
        seed: Of the test part, unless it is official, and of the training rows.

    Raises:
        TooFewRows: If there are not so many training rows, or a class has fewer than two of them.
    """
    source = read(name)
    label = np.unique(source.samples.y, return_inverse=True)[1]
    test = source.test if source.test is not None else _hold_out(label, source.block, seed)
    pool = rows = np.flatnonzero(~test)
    if size != ALL:
        if int(size) >= len(pool):
            raise TooFewRows(f"{name}: no {size} training rows, since its training part has {len(pool)}")
        rows = np.sort(pick_stratified(label, pool, int(size), np.random.default_rng([seed, 11])))
    fewest = np.bincount(label[rows], minlength=source.classes).min()
    if fewest < FEWEST:
        raise TooFewRows(f"{name}: of {len(rows)} training rows a class has {fewest} (seed {seed})")
    return Parts(source.samples[rows], source.samples[pool], source.samples[test])


def hold_out(name: str, size: int | str, seed: int) -> tuple[Samples, Samples]:
    """The training rows of `draw`, to learn from and to judge by; blocks are held out together, as for testing."""
    source, train = read(name), draw(name, size, seed).train
    label = np.unique(train.y, return_inverse=True)[1]
    block = None if source.block is None else np.unique(source.block[train.index], return_inverse=True)[1]
    held = _hold_out(label, block, seed, VALIDATION_SHARE)
    return train[~held], train[held]


def _hold_out(label: np.ndarray, block: np.ndarray | None, seed: int, share: float = TEST_SHARE) -> np.ndarray:
    """The held-out rows, booleans `[n]`: the same share of every class; blocks count for their most frequent class."""
    unit = np.arange(len(label)) if block is None else block
    counts = np.zeros((unit.max() + 1, label.max() + 1), dtype=int)
    np.add.at(counts, (unit, label), 1)
    count = round(share * len(counts))
    rng = np.random.default_rng([seed, 10])
    return np.isin(unit, pick_stratified(counts.argmax(axis=1), np.arange(len(counts)), count, rng))


def shown(parts: Parts, seed: int) -> Iterator[tuple[str, Samples]]:
    """The test samples under every condition, the same for all contenders and training sizes.

    Noise is on the scale of the whole training part, whose samples are also those that are swapped in.
    """
    corruptor = Corruptor(parts.pool.without_targets())
    test = parts.test.without_targets()
    for title, done in CONDITIONS.items():
        if done is None:
            yield title, test
            continue
        corruption, level, probability = done
        changed = corruptor.apply(test, corruption, level, probability=probability, random_state=seed)
        yield title, _keep_one(test, changed, seed) if corruption == "missing" else changed


def _keep_one(before: Samples, after: Samples, seed: int) -> Samples:
    """Give samples that have lost every modality one of them back, drawn at random."""
    drawn = np.random.default_rng([seed, 12]).random(before.present.shape)
    chosen = np.where(before.present, drawn, -1).argmax(axis=1)
    lost = np.flatnonzero(~after.present.any(axis=1) & before.present.any(axis=1))
    present = after.present.copy()
    present[lost, chosen[lost]] = True
    return after.replaced({}, present=present)
