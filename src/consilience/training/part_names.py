"""The names of parts of a method in settings such as `lr={"text": 2e-5, "head": 1e-3}`; see `training.parts`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from consilience.core.errors import InputError, unknown_name

# What joins the modalities; what makes the output; all parts that are not named.
FUSION, HEAD, REST = "fusion", "head", "rest"
# Settings of training that may be given by part, with the names that may be given beside those of modalities.
BY_PART: dict[str, tuple[str, ...]] = {
    "lr": (FUSION, HEAD, REST),
    "weight_decay": (FUSION, HEAD, REST),
    "layer_decay": (),
    "freeze": (FUSION, HEAD),
}


def check_part_names(training: Mapping[str, Any], modalities: Collection[str], tuned: bool = False) -> None:
    """Raise an error for a setting by part that names neither a modality nor a part.

    A part that a method lacks is no error, so that several methods can be trained alike.

    Args:
        training: Settings of training by name.
        modalities: Names of the modalities.
        tuned: Whether the learning rate is drawn by tuning.

    Raises:
        UnknownNameError: If there is no such part.
        InputError: If a modality has the name of a part, so that it is not known which one is meant; or if tuning draws
            one learning rate, and another is given for each part.

    Example:
        >>> check_part_names({"lr": {"text": 2e-5, "heads": 1e-3}}, ["text", "image"])
        Traceback (most recent call last):
        consilience.core.errors.UnknownNameError: unknown part 'heads': did you mean 'head'? ... It was given in lr
    """
    for setting, known in BY_PART.items():
        given = training.get(setting)
        if not isinstance(given, Mapping):
            continue
        if tuned and setting == "lr":
            raise InputError(f"training: tuning draws one learning rate for all parts, and lr={given!r} was given")
        for name in given:
            if name in modalities and name in known:
                raise InputError(
                    f"training: {setting} is given for {name!r}, which is both a modality and a part of every method: "
                    "rename the modality"
                )
            if name not in modalities and name not in known:
                raise unknown_name("part", name, [*modalities, *known], f"It was given in {setting}")


def within_modalities(training: Mapping[str, Any], modalities: Collection[str]) -> dict[str, Any]:
    """Return settings of training without what is given for modalities that a set lacks: sets differ in theirs.

    >>> within_modalities({"lr": {"text": 2e-5, "head": 1e-3}, "freeze": {"text": 3}}, ["image"])
    {'lr': {'head': 0.001}}
    """
    kept = dict(training)
    for setting, known in BY_PART.items():
        if isinstance(kept.get(setting), Mapping):
            own = {name: value for name, value in kept[setting].items() if name in modalities or name in known}
            kept |= {setting: own}
            if not own:
                del kept[setting]
    return kept
