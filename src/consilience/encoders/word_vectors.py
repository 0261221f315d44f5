"""Reading word vectors from a text file of word2vec or GloVe: a word and its numbers on each line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError, MissingDataError


def read_vectors(path: str | Path, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read the vectors of these words, line by line, so that the file's size does not matter.

    A word that is not in the file as it is written is replaced by its capitalised or upper-case form, if that is there.

    Returns:
        Vectors `[word, width]` float32, zeros where the file has none, and which words it has `[word]`.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(
            f"there is no file of word vectors at {path}: give one in the text format of word2vec or GloVe"
        )
    changed = path.stat()
    return _read(path, tuple(words), (changed.st_mtime_ns, changed.st_size))


@lru_cache(maxsize=2)  # a comparison builds the same encoder many times
def _read(path: Path, words: tuple[str, ...], changed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    position = {word: place for place, word in enumerate(words)}
    vectors: np.ndarray | None = None
    found = np.zeros(len(words), dtype=bool)
    exact = np.zeros(len(words), dtype=bool)
    for number, word, numbers in _lines(path):
        if vectors is None:
            vectors = np.zeros((len(words), numbers.count(" ") + 1), dtype=np.float32)
        place = position.get(word)
        if place is None:
            place = position.get(word.lower())
            if place is None or found[place]:
                continue
        elif exact[place]:
            continue
        try:
            vector = np.array(numbers.split(" "), dtype=np.float32)
        except ValueError:
            raise InputError(f"{path}, line {number}: the vector of {word!r} is not made of numbers") from None
        if vector.shape != vectors.shape[1:] or not np.isfinite(vector).all():
            raise InputError(
                f"{path}, line {number}: the vector of {word!r} has {len(vector)} numbers, not {vectors.shape[1]} "
                "finite ones as in the first line"
            )
        vectors[place], found[place], exact[place] = vector, True, words[place] == word
    if vectors is None:
        raise InputError(f"{path} holds no word vectors: each line must be a word and its numbers")
    vectors.flags.writeable = found.flags.writeable = False  # the next caller gets the same arrays
    return vectors, found


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, word and numbers; word2vec's first line, which only counts words and numbers, is left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            word, _, numbers = line.rstrip().partition(" ")
            if number == 1 and word.isdigit() and numbers.isdigit():
                continue
            if numbers:
                yield number, word, numbers
