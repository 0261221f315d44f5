"""Words of a text: runs of characters between white space."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

_WORD = re.compile(r"\S+")


def count_words(texts: np.ndarray) -> np.ndarray:
    """How many words each text has: `[rows]`.

    >>> count_words(np.array(["a red  square", ""], dtype=object)).tolist()
    [3, 0]
    """
    return np.array([len(text.split()) for text in texts], dtype=np.int64)


def blank_words(texts: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """Put "_" for the words that `hit` `[rows, words]` names; the white space stays.

    >>> blank_words(np.array(["a red  square"], dtype=object), np.array([[False, True, True]])).tolist()
    ['a _  _']
    """
    return _each(texts, hit, lambda text, flags: _WORD.sub(lambda word: "_" if next(flags) else word[0], text))


def remove_words(texts: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """Leave out the words that `hit` `[rows, words]` names.

    >>> remove_words(np.array(["a red square"], dtype=object), np.array([[False, True, False]])).tolist()
    ['a square']
    """
    return _each(texts, hit, lambda text, flags: " ".join(word for word in text.split() if not next(flags)))


def _each(texts: np.ndarray, hit: np.ndarray, change: Callable[[str, Iterator[bool]], str]) -> np.ndarray:
    changed = texts.copy()
    for row in np.flatnonzero(hit.any(axis=1)):
        changed[row] = change(texts[row], iter(hit[row].tolist()))
    return changed
