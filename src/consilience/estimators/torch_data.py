"""Datasets and DataLoaders of torch as input: read into samples for training, and batch by batch for predictions.

An item is a pair (mapping of modality → value, y), or the mapping alone; a batch of a DataLoader is the same with the
samples first. A value that is None, or not in the mapping, is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from consilience.core.errors import InputError, listed
from consilience.core.modalities import to_numpy
from consilience.core.samples import Samples

# What is trained on is read into memory once, up to so many bytes.
MOST_BYTES = 4 * 2**30
_AT_ONCE = 1024  # items of a Dataset that make a batch
_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
Batch = tuple[dict[str, Any], Any]


def is_torch_data(X: Any) -> bool:
    """Return whether X is a Dataset, an IterableDataset or a DataLoader."""
    return isinstance(X, Dataset | DataLoader)


def torch_batches(X: Any) -> Iterator[Batch]:
    """Yield the batches of a DataLoader, or the items of a Dataset some at a time: modalities, and targets or None.

    Raises:
        InputError: An item is no mapping of modalities, nor a pair of one and a target, or a batch has not as many
            samples of each modality, or not as many targets.
    """
    if isinstance(X, DataLoader):
        for number, batch in enumerate(X):
            split = _split(batch, "a batch of the DataLoader")
            _check_rows(split, f"batch {number} of the DataLoader")
            yield split
        return
    items = iter(X) if isinstance(X, IterableDataset) else iter(X[row] for row in range(_length(X)))
    while some := [_split(item, "an item of the Dataset") for item in islice(items, _AT_ONCE)]:
        yield _stack(some)


def read_torch_data(X: Any, most: int = MOST_BYTES) -> Samples:
    """Return all samples of a Dataset or DataLoader, in memory; `y` is None where it gives no targets.

    Raises:
        InputError: It is empty, its batches do not fit together, or it takes more than `most` bytes.
    """
    batches: list[Batch] = []
    taken = 0
    for batch in torch_batches(X):
        batches.append(batch)
        taken += sum(_bytes_of(values) for values in batch[0].values())
        if taken > most:
            raise InputError(
                f"{type(X).__name__}: its samples take more than {most / 2**30:g} GiB, and what is trained on is read "
                "into memory once. Save one .npy of each modality into a folder and give load_data(folder).train, "
                "which stays on disk"
            )
    if not batches:
        raise InputError(f"{type(X).__name__} is empty: there are no samples")
    names = list(dict.fromkeys(name for modalities, _ in batches for name in modalities))
    counts = [_count(modalities) for modalities, _ in batches]
    joined = {
        name: _join(name, [modalities.get(name, [None] * count) for (modalities, _), count in zip(batches, counts)])
        for name in names
    }
    targets = [y for _, y in batches]
    without = [number for number, y in enumerate(targets) if y is None]
    if len(without) == len(targets):
        return Samples.of(joined)
    if without:
        what = f"batch {without[0]} of the DataLoader has" if isinstance(X, DataLoader) else "some items have"
        raise InputError(f"{type(X).__name__}: {what} no target, and others have one")
    return Samples.of(joined, np.concatenate([to_numpy("y", y) for y in targets]))


def over_batches(X: Any, present: Any, answer: Callable[[Any, Any], Any]) -> Any:
    """Return what `answer(X, present)` returns, for a Dataset or DataLoader batch by batch, in the order it gives."""
    if not is_torch_data(X):
        return answer(X, present)
    if present is not None:
        raise InputError("present is for arrays; in a Dataset or DataLoader a missing modality is None")
    check_every_row_in_order(X)
    answers = [to_numpy("predictions", answer(_as_arrays(modalities), None)) for modalities, _ in torch_batches(X)]
    if not answers:
        raise InputError(f"{type(X).__name__} is empty: there are no samples")
    return np.concatenate(answers)


def check_every_row_in_order(X: Any) -> None:
    """Raise an error for a DataLoader whose answers would not be one for each sample, in the order of its data set.

    Training may shuffle, drop and repeat rows; an answer that belongs to an unknown row is of no use.
    """
    if not isinstance(X, DataLoader):
        return
    streamed = isinstance(X.dataset, IterableDataset)
    sampler = getattr(X.batch_sampler, "sampler", X.sampler)  # a batch_sampler of one's own has the sampler inside
    if not streamed and (isinstance(sampler, _RANDOM) or getattr(sampler, "shuffle", False)):
        raise InputError(
            "a DataLoader that shuffles gives its rows, and so the predictions, in a random order: for predictions "
            "make it with shuffle=False and no random sampler"
        )
    if streamed and X.num_workers > 1:
        raise InputError(
            f"a DataLoader of an IterableDataset with num_workers={X.num_workers} gives its rows once for each worker, "
            "or in the order of the workers: for predictions make it with num_workers=0"
        )
    if _drops_rows(X, sampler):
        raise InputError(
            "a DataLoader with drop_last=True leaves out the rows of its last batch: for predictions make it with "
            "drop_last=False"
        )


def _drops_rows(X: DataLoader, sampler: Any) -> bool:
    """Whether `drop_last` leaves rows out; True where the number of rows is unknown."""
    batches = X if X.batch_sampler is None else X.batch_sampler
    if not getattr(batches, "drop_last", False) or not (size := getattr(batches, "batch_size", None)):
        return False
    counted: Any = X.dataset if isinstance(X.dataset, IterableDataset) else sampler
    try:
        return len(counted) % size > 0
    except (TypeError, NotImplementedError):
        return True


def _length(X: Any) -> int:
    try:
        return len(X)
    except (TypeError, NotImplementedError):
        raise InputError(f"{type(X).__name__} has no length: make it an IterableDataset, or give it __len__") from None


def _split(item: Any, what: str) -> Batch:
    pair = item if isinstance(item, tuple | list) and len(item) == 2 else (item, None)
    if not isinstance(pair[0], Mapping):
        shown = f"a tuple of {len(item)}" if isinstance(item, tuple | list) else type(item).__name__
        raise InputError(f"{what} must be a mapping of modality → values, or a pair (mapping, y), got {shown}")
    return {name: values for name, values in pair[0].items() if values is not None}, pair[1]


def _check_rows(batch: Batch, what: str) -> None:
    """Raise an error unless all modalities and the targets of a batch have the same number of samples."""
    modalities, y = batch
    if not modalities:
        raise InputError(f"{what} has no modality that is not None: leave such a batch out")
    given = {**modalities, "y": y}
    if single := [name for name, values in given.items() if getattr(values, "ndim", None) == 0]:
        raise InputError(f"{what} holds a single value of {single[0]}, not one for each sample: give it a batch_size")
    sizes = {name: len(values) for name, values in given.items() if hasattr(values, "__len__")}
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{size} of {name}" for name, size in sizes.items())
        raise InputError(f"{what} must have as many samples of each modality, and as many targets: it has {listing}")


def _stack(items: Sequence[Batch]) -> Batch:
    """Single items as one batch."""
    names = dict.fromkeys(name for modalities, _ in items for name in modalities)
    values = {name: [modalities.get(name) for modalities, _ in items] for name in names}
    targets = [y for _, y in items if y is not None]
    if targets and len(targets) < len(items):
        raise InputError("some items of the Dataset have a target and others have none")
    return values, [y.tolist() if hasattr(y, "tolist") else y for y in targets] or None


def _join(name: str, parts: Sequence[Any]) -> Any:
    """The values of all batches: an array where all are arrays of the same shape, else a list of values."""
    if all(hasattr(part, "shape") for part in parts):
        arrays = [to_numpy(name, part) for part in parts]
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) > 1:
            raise InputError(
                f"modality {name!r}: batches of the DataLoader have samples of shapes "
                f"{listed(sorted(map(str, shapes)))}, such as sequences that were padded batch by batch. Give the "
                "Dataset (loader.dataset), whose items are not padded"
            )
        return np.concatenate(arrays)
    return _as_arrays({name: [value for part in parts for value in part]})[name]


def _as_arrays(modalities: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of arrays of the same shape as one array; what has another form stays a list."""
    made = {}
    for name, values in modalities.items():
        made[name] = values
        if isinstance(values, list) and all(hasattr(value, "shape") for value in values):
            arrays = [to_numpy(name, value) for value in values]
            made[name] = np.stack(arrays) if len({array.shape for array in arrays}) == 1 else arrays
        elif isinstance(values, list):
            made[name] = [to_numpy(name, value) if hasattr(value, "detach") else value for value in values]
    return made


def _count(modalities: Mapping[str, Any]) -> int:
    return max((len(values) for values in modalities.values()), default=0)


def _bytes_of(values: Any) -> int:
    if hasattr(values, "nbytes"):
        return int(values.nbytes)
    return sum(getattr(value, "nbytes", None) or len(value) if hasattr(value, "__len__") else 8 for value in values)
