"""Missing values: words and numbers that are blanked or dropped, and modalities that are missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import KINDS
from consilience.corruption.corruptions import NUMBERS, Level, Portion, register_corruption
from consilience.corruption.regions import block, share_of, stretch
from consilience.corruption.text_corruption import blank_words, count_words, remove_words


@register_corruption(
    "blank", kinds=KINDS, level="tenths of the words, or of a number's size, that are lost", by_sample=True
)
def blank(portion: Portion, level: Level, *, unknown: int = 1) -> Portion:
    """Each word becomes "_" with probability level/10; numbers fade towards zero, (1 − level/10)·x.

    A token becomes the id `unknown`; by default 1, which this library uses for words that training did not have.
    """
    kind, share = portion.modality.kind, share_of(level)
    if kind in NUMBERS:
        return portion.having(portion.values * np.asarray(portion.across(1.0 - share), dtype=portion.values.dtype))
    if kind == "text":
        words = count_words(portion.values).max(initial=0)
        return portion.having(blank_words(portion.values, portion.uniform((words,)) < _by_word(share)))
    if unknown < 0:
        raise InputError(f"blank: unknown must be a token id ≥ 0, got {unknown}")
    hit = portion.uniform(portion.modality.shape) < portion.across(share)
    return portion.having(np.where(hit, portion.values.dtype.type(unknown), portion.values))


@register_corruption("drop", kinds=KINDS, level="tenths of the entries that are lost", by_sample=True)
def drop(portion: Portion, level: Level) -> Portion:
    """Each number or token becomes 0 with probability level/10; a word is removed from its text.

    A token of 0 is padding. A text may become empty, which is not missing.
    """
    if portion.modality.kind == "text":
        words = count_words(portion.values).max(initial=0)
        return portion.having(remove_words(portion.values, portion.uniform((words,)) < _by_word(share_of(level))))
    return _zeroed(portion, portion.uniform(portion.modality.shape) < portion.across(share_of(level)))


@register_corruption(
    "structured-drop", kinds=KINDS, level="tenths of the time, area, features or words that are lost", by_sample=True
)
def structured_drop(portion: Portion, level: Level) -> Portion:
    """One stretch of time, block of area, run of features or run of words is lost, a share level/10 of the whole."""
    share, modality = share_of(level), portion.modality
    if modality.kind == "text":
        words = count_words(portion.values)
        return portion.having(remove_words(portion.values, stretch(portion, share, words, words.max(initial=0))))
    if modality.kind == "image":
        return _zeroed(portion, block(portion, share))
    steps = modality.shape[0]
    lengths = np.full(len(portion.index), steps) if portion.lengths is None else portion.lengths
    hit = stretch(portion, share, lengths, steps)
    return _zeroed(portion, hit[..., None] if modality.kind == "sequence" else hit)


@register_corruption(
    "missing", kinds=KINDS, level="tenths of the samples hit that go missing", hides=True, by_sample=True
)
def missing(portion: Portion, level: Level) -> Portion:
    """The modality is missing with probability level/10."""
    return replace(portion, present=portion.uniform() >= share_of(level))


def _by_word(share: Level) -> Level:
    """A share that broadcasts over the words of texts `[rows, word]`."""
    return share if np.ndim(share) == 0 else np.reshape(share, (-1, 1))


def _zeroed(portion: Portion, hit: np.ndarray) -> Portion:
    return portion.having(np.where(hit, portion.values.dtype.type(0), portion.values))
