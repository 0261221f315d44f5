"""Reads the arguments of `consilience fuse`: opinions with their labels, class names, priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from jsonargparse import Namespace

    from consilience.data.files.opinion_files import OpinionFiles
    from consilience.estimators.fuse_files import Evidence


def open_evidence(chosen: Namespace, paths: list[str], labels: str | None) -> Evidence:
    """Open the files of opinions, and of their labels if there are any."""
    from consilience.data.files.opinion_files import open_opinions
    from consilience.data.files.opinion_labels import holds_labels, match_labels, open_labels
    from consilience.estimators.fuse_files import Evidence

    own = chosen.target is not None and labels is None
    if own and paths is chosen.files and chosen.fit is not None:
        # --target may be the column of labels in --fit; the opinions to fuse need no labels then.
        own = len(paths) == 1 and holds_labels(Path(paths[0]), chosen.target)
    if own and len(paths) > 1:
        raise InputError(f"fuse: --target {chosen.target} without --labels needs one file, got {len(paths)}")
    opened = open_opinions(
        [Path(path) for path in paths],
        experts=read_experts(chosen.expert),
        columns=chosen.columns,
        names=chosen.names,
        reserved=[chosen.target] if chosen.target else [],
    )
    if len(opened.names) < 2:
        raise InputError(
            f"fuse: {paths[0]} holds the opinions of one expert, {opened.names[0]!r}; a fusion needs two: give another "
            "file, or name the columns of each expert with --expert NAME=GLOB NAME=GLOB"
        )
    if not own and labels is None:
        return Evidence(opened, chosen.probabilities, chosen.rounded, seed=chosen.seed)
    file = open_labels(Path(paths[0] if own or labels is None else labels), chosen.target)
    place_of = match_labels(file.count(), opened.width, read_classes(chosen, opened))
    return Evidence(opened, chosen.probabilities, chosen.rounded, file, place_of, chosen.seed)


def read_experts(given: list[str] | None) -> dict[str, list[str]] | None:
    """Read NAME=GLOB[,GLOB…], or only the NAME of an array.

    >>> read_experts(["image=img_*", "audio"])
    {'image': ['img_*'], 'audio': ['audio']}
    """
    pairs = [text if "=" in text else f"{text}={text}" for text in given or ()]
    return options.columns("expert", pairs, "fuse: ") or None


def read_classes(chosen: Namespace, opened: OpinionFiles) -> tuple[str, ...] | None:
    """Return the class names in the order of the columns: those given, or those of the files; None if neither."""
    if chosen.classes is None:
        return opened.classes
    names = tuple(chosen.classes)
    if len(names) != opened.width or len(set(names)) < len(names):
        raise InputError(f"fuse: --classes must name {opened.width} different classes, got {' '.join(names)}")
    return names


def doubt_about_labels(place_of: Mapping[Any, int], names: Sequence[str]) -> str | None:
    """Describe how labels were matched to columns, if the files do not name the classes and it is ambiguous.

    >>> doubt_about_labels({0: 0, 2: 2}, ["0", "1", "2"])
    >>> doubt_about_labels({1: 1, 2: 2}, ["0", "1", "2"])
    'no label is 0: they are read as columns counted from 0, so that 1 is the second'
    >>> doubt_about_labels({"dog": 1, "cat": 0}, ["cat", "dog"])
    'the files do not name the classes, so their columns are the labels in sorted order, cat, dog'
    """
    from consilience.data.files.opinion_labels import whole_number

    if any(whole_number(label) != place for label, place in place_of.items()):
        listed = f"{', '.join(names[:10])}{' …' if len(names) > 10 else ''}"
        return f"the files do not name the classes, so their columns are the labels in sorted order, {listed}"
    if place_of and 0 not in place_of.values():
        return "no label is 0: they are read as columns counted from 0, so that 1 is the second"
    return None


def class_names(chosen: Namespace, evidence: Evidence) -> list[str]:
    """Return the class names of the output: their names, else their labels, else their numbers."""
    named = read_classes(chosen, evidence.opinions)
    if named is not None:
        return list(named)
    label_of = {place: str(label) for label, place in evidence.place_of.items()}
    width = evidence.opinions.width
    return (
        [label_of[place] for place in range(width)]
        if len(label_of) == width
        else [str(place) for place in range(width)]
    )


def read_prior(chosen: Namespace, evidence: Evidence) -> tuple[np.ndarray, str]:
    """Return the priors of experts that are not fitted, `[1 or expert, class]`, and a description."""
    import numpy as np

    from consilience.bayes import opinion_inputs as opinions
    from consilience.bayes import priors

    experts, width = len(evidence.opinions.names), evidence.opinions.width
    if chosen.prior is None:
        uniform = "prior uniform (give --prior if the experts were trained with unequal class shares)"
        return opinions.read_prior(None, experts, width), uniform
    if chosen.prior != ["empirical"]:
        given = read_numbers("prior", chosen.prior, evidence, "empirical")
        return opinions.read_prior(given, experts, width), "prior given"
    assert evidence.labels is not None
    counts = np.zeros(width)
    for label, count in evidence.labels.count().items():
        counts[evidence.place_of[label]] += count
    return priors.empirical_prior(np.arange(width), width, weight=counts)[None], (
        "prior counted from the labels that are also used for the scores"
    )


def read_numbers(name: str, given: list[float | str] | None, evidence: Evidence, word: str) -> np.ndarray | None:
    """Return class shares `[class]` from numbers or a file; None if not given, or if `word` asks for an estimate."""
    import numpy as np

    from consilience.bayes.opinion_inputs import read_distribution
    from consilience.data.files.arrays import map_array
    from consilience.data.files.opinion_files import check_readable, open_opinions

    if given is None or given == [word]:
        return None
    option, width = f"--{name.replace('_', '-')}", evidence.opinions.width
    if not any(isinstance(value, str) for value in given):
        return read_distribution(option, np.array(given), width)
    path = Path(str(given[0]))
    if len(given) > 1 or not path.suffix:
        shown = " ".join(map(str, given))
        raise InputError(f"fuse: {option} must be {width} numbers, a file, or {word}, got {shown}")
    check_readable(path)
    if path.suffix.lower() == ".npy":
        array = np.array(map_array(path))
        return array if array.ndim == 2 else read_distribution(f"{option} {path.name}", array, width)
    opened = open_opinions([path])
    rows = next(iter(next(opened.batches(2)).values()))
    if len(rows) != 1:
        raise InputError(f"fuse: {option} {path.name} must be a table of one row with a column for each class")
    if opened.classes and evidence.opinions.classes and set(opened.classes) == set(evidence.opinions.classes):
        rows = rows[:, [opened.classes.index(label) for label in evidence.opinions.classes]]
    return read_distribution(f"{option} {path.name}", rows[0], width)
