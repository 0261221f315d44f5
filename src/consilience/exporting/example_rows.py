"""Random rows in the form that an exported model reads, and the same rows as our own prediction reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from consilience.core.samples import Samples
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.column_reading import Columns
from consilience.exporting.graph import IDS, NUMBERS, TIMES, Input
from consilience.exporting.raw_inputs import EMPTY, PADDING, UNKNOWN
from consilience.preparation import Preparation
from consilience.preparation.transforms import Standardise, Words

_EMPTY_SHARE = 0.15  # of single cells, where they may be empty
_FAR_SHARE, _FAR = 0.25, 3.0  # of rows that lie further out than training did, and how far
_NO_WORD = "☃"  # of no vocabulary, and one word by itself
_TIMES = (631_152_000, 2_051_222_400)  # 1990 to 2035, in seconds since 1970


@dataclass(frozen=True)
class Rows:
    """Rows of every input of a graph.

    Attributes:
        inputs: Input → its values `[n, *shape]`, those of a row that lacks the modality included.
        present: `[n, modality]`.
    """

    inputs: dict[str, np.ndarray]
    present: np.ndarray

    def __len__(self) -> int:
        return len(self.present)

    def part(self, start: int, stop: int) -> Rows:
        """Some of the rows."""
        return Rows({name: values[start:stop] for name, values in self.inputs.items()}, self.present[start:stop])


def subsets(modalities: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Which modalities each row has: all, all but one, one alone, none, and then at random: `[row, modality]`."""
    alone = np.eye(modalities, dtype=bool)
    fixed = [np.ones((1, modalities), dtype=bool), ~alone, alone, np.zeros((1, modalities), dtype=bool)]
    more = rng.random((max(rows - 2 * modalities - 2, 0), modalities)) < 0.6
    return np.concatenate([*fixed, more])[: max(rows, 2 * modalities + 2)]


def draw_rows(
    inputs: Sequence[Input], preparation: Preparation, encodings: Mapping[str, Encoding], rows: int, seed: int
) -> Rows:
    """Rows like those of training, some of them further out, with single empty cells where there are fills."""
    rng = np.random.default_rng(seed)
    present = subsets(len(preparation.transforms), rows, rng)
    n = len(present)
    together = rng.random(n)  # how long the sequences of a row are, where they end together
    drawn = {own.name: _draw(own, preparation, encodings.get(own.modality), n, rng, together) for own in inputs}
    return Rows(drawn, present)


def _draw(
    own: Input,
    preparation: Preparation,
    encoding: Encoding | None,
    n: int,
    rng: np.random.Generator,
    together: np.ndarray,
) -> np.ndarray:
    transform = preparation.transforms[own.modality]
    output = transform.output
    gaps = encoding is not None and encoding.fills is not None
    if own.holds == IDS:
        steps, first = max(output.shape[0], 1), 1 if isinstance(transform, Words) else 0
        lengths = _lengths(steps, together, rng)
        ids = rng.integers(first, max(output.vocabulary or 2, first + 1), size=(n, steps))
        return np.where(np.arange(steps) < lengths[:, None], ids, PADDING)
    if own.holds == TIMES:
        times = rng.integers(*_TIMES, size=(n, *map(int, own.columns and (len(own.columns),)))).astype(np.float64)
        return np.where(rng.random(times.shape) < _EMPTY_SHARE * gaps, np.nan, times)
    if own.holds != NUMBERS:
        sizes = [len(known) for known in own.categories]
        codes = np.stack([rng.integers(0, size, size=n) for size in sizes], axis=1)
        codes[rng.random(codes.shape) < _EMPTY_SHARE / 2] = UNKNOWN
        codes[rng.random(codes.shape) < _EMPTY_SHARE * gaps] = EMPTY
        return codes
    assert isinstance(transform, Standardise)
    features = len(own.columns) if own.columns else len(transform.mean)
    mean, std, low, high = (getattr(transform, name).numpy()[:features] for name in transform.learned)
    shape = tuple(output.shape[0] if size is None else size for size in own.shape)
    around = (features, 1, 1) if output.kind == "image" else (features,)
    noise = rng.normal(size=(n, *shape))
    usual = np.clip(mean.reshape(around) + std.reshape(around) * noise, low.reshape(around), high.reshape(around))
    far = mean.reshape(around) + _FAR * std.reshape(around) * noise
    chosen = (rng.random(n) < _FAR_SHARE).reshape(-1, *[1] * len(shape))
    values = np.where(chosen, far, usual).astype(_numpy_type(own.dtype))
    if gaps and encoding is not None:
        filled = np.isfinite(np.asarray(encoding.fills)[:features])
        values[(rng.random(values.shape) < _EMPTY_SHARE) & filled] = np.nan
    if output.timed:
        lengths = _lengths(shape[0], together, rng)
        values[np.arange(shape[0]) >= lengths[:, None]] = np.nan
    return values


def _lengths(steps: int, together: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers of steps `[n]`, in every other row those of the other sequences: as methods that match steps expect."""
    same = 1 + (together * steps).astype(np.int64)
    return np.where(np.arange(len(together)) % 2 == 0, same, rng.integers(1, steps, size=len(together), endpoint=True))


def _numpy_type(dtype: torch.dtype) -> type:
    return np.float64 if dtype is torch.float64 else np.float32


def as_samples(
    rows: Rows, inputs: Sequence[Input], preparation: Preparation, encodings: Mapping[str, Encoding]
) -> Samples:
    """The rows as our own prediction reads them."""
    values: dict[str, object] = {}
    lengths: dict[str, np.ndarray] = {}
    there = []
    for place, (name, transform) in enumerate(preparation.transforms.items()):
        own = [one for one in inputs if one.modality == name]
        given = rows.inputs[own[0].name]
        mask = rows.present[:, place]
        encoding = encodings.get(name)
        if isinstance(transform, Words):
            texts = [" ".join(_word(transform, number) for number in row if number != PADDING) for row in given]
            values[name] = [text if has and text else None for text, has in zip(texts, mask)]
            mask = mask & np.array([bool(text) for text in texts])
        elif encoding is not None:
            values[name] = encoding.encode(_columns(name, encoding, own, rows), "export: this is a mistake of ours")
        elif preparation.raw[name].timed:
            known = given != PADDING if own[0].holds == IDS else ~np.isnan(given).all(axis=tuple(range(2, given.ndim)))
            lengths[name] = (known * np.arange(1, given.shape[1] + 1)).max(axis=1)
            values[name] = np.where(given == PADDING, 0, given) if own[0].holds == IDS else given
        else:
            values[name] = given
        there.append(mask)
    kinds = {name: modality.kind for name, modality in preparation.raw.items()}
    present = np.stack(there, axis=1)
    # Rows of a text are None, of which there may be no other.
    return Samples.of(values, kinds=kinds, lengths=lengths, present=present)


def _word(transform: Words, number: int) -> str:
    return transform.words[number - 2] if number > 1 else _NO_WORD


def _columns(name: str, encoding: Encoding, own: Sequence[Input], rows: Rows) -> Columns:
    """The cells of a modality's columns as the reader of tables returns them."""
    import polars as pl

    n = len(rows)
    numbers = np.zeros((n, 0), dtype=np.float32)
    strings: dict[str, np.ndarray] = {}
    times: dict[str, np.ndarray] = {}
    for one in own:
        given = rows.inputs[one.name]
        if one.holds == NUMBERS:
            numbers = given
            continue
        for place, column in enumerate(one.columns):
            cells = given[:, place].tolist()
            if one.holds == TIMES:
                whole = [None if cell != cell else int(cell) for cell in cells]
                series = pl.from_epoch(pl.Series(column, whole, dtype=pl.Int64), time_unit="s").cast(pl.Datetime("us"))
                times[column] = encoding.calendars[column].encode(series, "column")
            else:
                known = one.categories[place]
                named = [None if code == EMPTY else known[code] if code >= 0 else _unknown(known) for code in cells]
                strings[column] = np.array(named, dtype=object)
    return Columns(name, "vector", list(encoding.numbers), numbers, strings, encoding.calendars, times)


def _unknown(known: Sequence[str]) -> str:
    """A string that is not among those known."""
    return max(known, key=len) + "?"
