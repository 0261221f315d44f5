"""`mosi-sequences`, `mosei-sequences`: spoken opinions word by word, as Tsai et al. (MulT) published them.

The files are pickles of train, valid and test, each with text, vision and audio `[n, time, feature]`, aligned to the
words of the text, and labels from −3 to 3. They are padded with zeros in front; here a sequence starts at its first
step, and its length is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Samples
from consilience.core.targets import TaskKind
from consilience.data.dataset import DataSet
from consilience.data.files.array_pickles import read_sequences_pickle
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_PARTS = ("train", "valid", "test")
_VIDEO = ("vision", "video")  # its names in the files
_STRONGEST = 3.0
Label = Literal["score", "binary"]
_MOSI = source_files("mosi-sequences", "mosi_data.pkl")
_MOSEI = source_files("mosei-sequences", "mosei_senti_data.pkl")


@register(
    "mosi-sequences", description="2 199 spoken opinions word by word, text, voice and face (CMU-MOSI)", files=_MOSI
)
def mosi_sequences(folder: Path, *, label: Label = "score") -> DataSet:
    """Text `[50, 300]`, audio `[50, 5]` and video `[50, 20]`; all three parts come with the data.

    Args:
        folder: Of the file.
        label: "score", a regression from −3 to 3, or "binary", negative or positive without the samples at 0.
    """
    return _read("mosi-sequences", folder / _MOSI.names[0], label)


@register(
    "mosei-sequences", description="22 856 spoken opinions word by word, text, voice and face (CMU-MOSEI)", files=_MOSEI
)
def mosei_sequences(folder: Path, *, label: Label = "score") -> DataSet:
    """Text `[50, 300]`, audio `[50, 74]` and video `[50, 35]`; the options are those of `mosi_sequences`."""
    return _read("mosei-sequences", folder / _MOSEI.names[0], label)


def _read(name: str, path: Path, label: str) -> DataSet:
    content = read_sequences_pickle(path)
    if not isinstance(content, dict) or not all(isinstance(content.get(part), dict) for part in _PARTS):
        found = ", ".join(map(str, content)) if isinstance(content, dict) else f"a {type(content).__name__}"
        raise InputError(f"{path.name} must be a dict with the dicts train, valid and test, it holds {found}")
    # Each part is freed once it is read, since the files take gigabytes.
    parts = [_read_part(f"{part} of {path.name}", content.pop(part)) for part in _PARTS]
    sizes = [len(scores) for _, _, scores in parts]
    scores, part_of_row = np.concatenate([labels for _, _, labels in parts]), np.repeat(_PARTS, sizes)
    kept = np.arange(len(scores)) if label == "score" else np.flatnonzero(scores)
    values, lengths = {}, {}
    for modality in ("text", "audio", "video"):
        shapes = {part[modality].shape[1:] for part, _, _ in parts}
        if len(shapes) > 1:
            raise InputError(f"{path.name}: {modality} differs from part to part, {sorted(shapes)}")
        values[modality] = np.concatenate([part[modality] for part, _, _ in parts])[kept]
        lengths[modality] = np.concatenate([long[modality] for _, long, _ in parts])[kept]
    y = scores[kept] if label == "score" else np.where(scores[kept] > 0, "positive", "negative")
    task: TaskKind = "regression" if label == "score" else "classification"
    samples = Samples.of(values, y, lengths=lengths)
    return DataSet(name, samples, task, *given_split(part_of_row[kept], y, task))


def _read_part(where: str, part: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Values `[n, time, feature]` and lengths `[n]` by modality, and scores `[n]`."""
    video = next((name for name in _VIDEO if name in part), _VIDEO[0])
    missing = [name for name in ("text", "audio", video, "labels") if not isinstance(part.get(name), np.ndarray)]
    if missing:
        raise InputError(
            f"{where} lacks the array{'s' * (len(missing) > 1)} {', '.join(missing)}; it holds "
            f"{', '.join(map(str, part))}"
        )
    padded = {"text": part["text"], "audio": part["audio"], "video": part[video]}
    wrong = [name for name, value in padded.items() if value.ndim != 3 or value.dtype.kind not in "fiu"]
    wrong += [name for name, value in padded.items() if value.shape[:2] != padded["text"].shape[:2]]
    if wrong:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in padded.items())
        raise InputError(f"{where}: aligned sequences are numbers [n, time, feature] of one n and time, got {shapes}")
    n, labels = len(padded["text"]), part["labels"]
    if labels.shape[:1] != (n,) or labels.size != n or labels.dtype.kind not in "fiu":
        raise InputError(f"{where}: labels are one number a sample, [{n}, 1, 1], got {list(labels.shape)}")
    scores = labels.reshape(n).astype(np.float32)
    far = np.flatnonzero(~(np.abs(scores) <= _STRONGEST))
    if len(far):
        raise InputError(f"{where}: labels lie from −3 to 3, got {scores[far[0]]} in {name_rows(far)}")
    values = {name: value.astype(np.float32) for name, value in padded.items()}
    values["audio"][np.isneginf(values["audio"])] = 0  # as MulT does: the logarithm of silence
    values, lengths = to_front(values, "text")
    return values, lengths, scores


def to_front(values: Mapping[str, np.ndarray], by: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Aligned sequences `[n, time, feature]`, padded with zeros on either side, moved to the front; lengths `[n]`.

    A sample starts where modality `by` is first not zero (where it never is, where any other is) and ends where all of
    them are zero for good. A modality without a single value in a sample is missing there: its length is 0.

    >>> padded = {"text": np.array([[[0], [0], [5], [6]]]), "audio": np.array([[[0], [0], [0], [8]]])}
    >>> values, lengths = to_front(padded, "text")
    >>> values["audio"][0, :, 0].tolist(), lengths["audio"].tolist()
    ([0, 8, 0, 0], [2])
    """
    filled = {name: (value != 0).any(axis=2) for name, value in values.items()}
    anything = np.logical_or.reduce(list(filled.values()))
    steps = anything.shape[1]
    start = np.where(filled[by].any(axis=1), filled[by].argmax(axis=1), anything.argmax(axis=1))
    stop = np.where(anything.any(axis=1), steps - anything[:, ::-1].argmax(axis=1), 0)
    long = np.maximum(stop - start, 0)
    step = np.arange(steps)
    source = np.minimum(start[:, None] + step, steps - 1)
    inside = step < long[:, None]
    moved, lengths = {}, {}
    for name, value in values.items():
        moved[name] = np.take_along_axis(value, source[..., None], axis=1)
        moved[name][~inside] = 0
        lengths[name] = np.where((filled[name] & (step >= start[:, None])).any(axis=1), long, 0)
    return moved, lengths
