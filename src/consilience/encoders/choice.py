"""Choosing and building encoders: by name with settings, the user's own module, or the default of a kind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from torch import nn

from consilience.core.errors import InputError, SavedModelError, UnsupportedError
from consilience.core.registry import Registry
from consilience.core.samples import Modality, Samples
from consilience.core.settings import check_settings
from consilience.encoders.custom_module import CustomModule
from consilience.encoders.encoder import Encoder
from consilience.encoders.foreign_files import passed_settings
from consilience.preparation.transforms import Transform

EncoderChoice = str | Mapping[str, Any] | nn.Module | None

_Class = TypeVar("_Class", bound=type[Encoder])
ENCODERS: Registry[type[Encoder]] = Registry("encoder", group="consilience.encoders")
# The only key of a described choice that cannot be rebuilt from its description.
_CUSTOM = "custom module"
# The setting by which a saved encoder is rebuilt without the files it was made of.
_REBUILT = "rebuilt"


class SavedChoice(dict[str, Any]):
    """A choice that comes from a saved model and names files; another fit may not read them."""


def register_encoder(name: str) -> Callable[[_Class], _Class]:
    """Put an encoder into the registry under a name, from the file that defines it."""
    return ENCODERS.register(name, name=name)


def encoder_names() -> list[str]:
    """The names that can be chosen.

    >>> encoder_names()
    ['auto', 'bag', 'bert', 'conv', 'frozen', 'gru', 'linear', 'lstm', 'mlp', 'pretrained', 'resnet', 'transformer',
     'trees']
    """
    return ENCODERS.names()


def default_encoder(modality: Modality) -> str:
    """The name of the encoder that reads a modality unless another is chosen.

    >>> default_encoder(Modality("photo", "image", (3, 32, 32)))
    'conv'
    """
    if modality.kind == "text":
        raise UnsupportedError(
            f"no encoder reads {modality.describe()} as it is: Preparation.fit turns text into tokens first"
        )
    if modality.kind == "image" and max(modality.shape[1:]) < 4:  # too few pixels to convolve and pool
        return "mlp"
    return {"vector": "mlp", "image": "conv", "sequence": "gru", "tokens": "bag"}[modality.kind]


def build_encoder(modality: Modality, choice: EncoderChoice = None, *, needs_features: bool = True) -> Encoder:
    """Build the encoder of one modality.

    Args:
        modality: The modality.
        choice: None for the default of its kind; a name ("conv"), with the value of its main setting where it has one
            ("bert:FOLDER"); a mapping of settings, with the encoder's "name" or without it for the default one; any
            `nn.Module`, which is copied, so that a module given for two modalities or methods does not tie them
            together (see `CustomModule` for what it may return).
        needs_features: Whether an encoder that gives an opinion and no features ("trees") is refused.

    Raises:
        UnknownNameError: If there is no encoder or setting of that name.
        UnsupportedError: If the encoder cannot read the modality, or gives no features.
        InputError: If a setting's value is not allowed.

    >>> spectrum = Modality("spectrum", "vector", (40,))
    >>> build_encoder(spectrum, {"name": "mlp", "hidden": [32, 16], "dropout": 0.2}).width
    16
    >>> build_encoder(spectrum, nn.Linear(40, 5)).width
    5
    """
    if isinstance(choice, Encoder):
        _check_kind(type(choice), type(choice).__name__, modality)
        _check_features(type(choice), modality, needs_features)
        return _named(copy.deepcopy(choice), modality)
    if isinstance(choice, nn.Module):
        return _named(CustomModule(copy.deepcopy(choice), modality), modality)
    cls, settings = read_choice(modality, choice)
    settings = check_settings(f"encoder {cls.name!r} of modality {modality.describe()}", cls, settings)
    _check_kind(cls, cls.name, modality)
    _check_features(cls, modality, needs_features)
    try:
        built = cls(modality, **settings)
    except (InputError, TypeError) as error:
        raised = type(error) if isinstance(error, InputError) else InputError
        raise raised(f"encoder {cls.name!r} of modality {modality.describe()}: {error}") from error
    return _named(built, modality)


def _named(encoder: Encoder, modality: Modality) -> Encoder:
    """The encoder, which knows whose it is."""
    encoder.modality_name = modality.name
    return encoder


def read_choice(modality: Modality, choice: str | Mapping[str, Any] | None) -> tuple[type[Encoder], dict[str, Any]]:
    """The class of an encoder chosen by name or settings, and its settings.

    >>> read_choice(Modality("title", "tokens", (6,)), "bag:vectors.txt")[1]
    {'vectors': 'vectors.txt'}
    """
    if isinstance(choice, str):
        settings: dict[str, Any] = {"name": choice}
    elif choice is None or isinstance(choice, Mapping):
        settings = dict(choice or {})
    else:
        hint = ": give an instance, not the class" if isinstance(choice, type) else ""
        raise InputError(
            f"the encoder of modality {modality.name!r} must be a name, a mapping with a name and settings, or an "
            f"nn.Module, got {choice!r}{hint}"
        )
    if is_custom(settings):
        raise SavedModelError(
            f"modality {modality.name!r} was trained with an encoder of the user's own, {settings[_CUSTOM]}, which is "
            f"not saved with a model: pass it again, encoders={{{modality.name!r}: …}}"
        )
    name = settings.pop("name") if "name" in settings else default_encoder(modality)
    argument = None
    if isinstance(name, str) and ":" in name:
        name, _, argument = name.partition(":")
    cls = ENCODERS.find(name, f"It was chosen for modality {modality.name!r}")
    if argument is not None:
        if cls.argument is None or cls.argument in settings:
            reason = "has no setting to give so" if cls.argument is None else f"is given {cls.argument} twice"
            raise InputError(f"encoder '{name}:{argument}' of modality {modality.name!r}: {name} {reason}")
        settings[cls.argument] = argument
    if isinstance(choice, SavedChoice) and (files := _files(cls, settings)):
        raise SavedModelError(
            f"modality {modality.name!r} has the encoder {cls.name!r} of a saved model, which names "
            f"{', '.join(map(repr, files.values()))}. What a saved model names is not read; if you trust it, set "
            f"encoders={{{modality.name!r}: {plain_choice(choice)!r}}}, here or in load"
        )
    return cls, settings


def expert_kind(modality: Modality, choice: EncoderChoice) -> str | None:
    """The kind of expert that is trained alone with the chosen encoder, if it is not a network.

    >>> expert_kind(Modality("table", "vector", (3,)), "trees")
    'trees'
    """
    if isinstance(choice, Encoder):
        return choice.expert
    return read_choice(modality, choice)[0].expert if _has_name(choice) else None  # type: ignore[arg-type]


def gives_features(modality: Modality, choice: EncoderChoice) -> bool:
    """Whether the chosen encoder has features that a method can be trained through.

    >>> gives_features(Modality("table", "vector", (3,)), "trees")
    False
    """
    if isinstance(choice, Encoder):
        return choice.gives_features
    return not _has_name(choice) or read_choice(modality, choice)[0].gives_features  # type: ignore[arg-type]


def passed_again(name: str, saved: EncoderChoice, given: EncoderChoice, what: str = "encoder") -> EncoderChoice:
    """Return a saved choice with the files that the caller of `load` passes for it.

    Args:
        name: The modality, for messages.
        saved: The choice as it was saved.
        given: The choice as the caller gives it.
        what: What is chosen, for messages.

    Raises:
        InputError: If the saved choice names no files, or the given one is another encoder or has other settings.

    >>> passed_again("text", {"name": "frozen:old", "cache": "/tmp", "hidden": [8]}, "frozen:new")
    {'name': 'frozen', 'hidden': [8], 'model': 'new'}
    """
    if is_custom(saved):
        return given
    modality = Modality(name, "text", ())  # its kind does not matter, since the encoder is named
    of_encoder = what == "encoder" and _has_name(saved)
    cls, settings = read_choice(modality, saved) if of_encoder else (Encoder, {})  # type: ignore[arg-type]
    if isinstance(given, nn.Module) or not _files_read(cls, settings):
        raise InputError(
            f"the model had no {what} of your own for modality {name!r}; what it had is saved with it, so leave it out"
        )
    other, passed = read_choice(modality, given)
    if other is not cls:
        raise InputError(f"the encoder of modality {name!r} was saved as {cls.name!r}, and {other.name!r} was passed")
    for setting, value in passed.items():
        if setting not in cls.files and _plain(setting, value) != settings.get(setting):
            raise InputError(
                f"the encoder of modality {name!r} was saved with {setting}={settings.get(setting)!r}, and "
                f"{value!r} was passed: leave it out"
            )
    kept = {setting: value for setting, value in settings.items() if setting not in (*cls.files, _REBUILT)}
    return {"name": cls.name, **kept, **{setting: passed[setting] for setting in cls.files if setting in passed}}


def settings_of_choices(choices: Mapping[str, EncoderChoice]) -> dict[str, dict[str, Any]]:
    """Return modality → settings of its encoder, for `only_passed_files`; a user's own module has none."""
    settings: dict[str, dict[str, Any]] = {}
    for name, choice in choices.items():
        if isinstance(choice, Encoder):
            settings[name] = dict(choice.settings)
        elif _has_name(choice):
            cls, own = read_choice(Modality(name, "text", ()), choice)  # type: ignore[arg-type]
            settings[name] = {**own, **_files_read(cls, own)}
    return settings


def _has_name(choice: Any) -> bool:
    """Whether a choice is a name, or settings with a name."""
    return isinstance(choice, str) or (isinstance(choice, Mapping) and "name" in choice)


def _files(cls: type[Encoder], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that name files."""
    return {name: settings[name] for name in cls.files if settings.get(name) is not None}


def _files_read(cls: type[Encoder], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with the model that a pretrained encoder has by default."""
    default = getattr(cls, "default_model", None)
    return {**({} if default is None else {"model": default}), **_files(cls, settings)}


def _saved_choice(choice: Any) -> Any:
    """A choice without the setting `rebuilt`, marked as of a saved model if it names files."""
    named = {"name": choice} if isinstance(choice, str) else plain_choice(choice)
    cls, settings = read_choice(Modality("", "text", ()), named)
    return SavedChoice(named) if _files(cls, settings) else plain_choice(choice)


def own_transforms(
    modalities: Mapping[str, Modality], choices: Mapping[str, EncoderChoice]
) -> dict[str, Callable[[Samples, str], Transform]]:
    """For `Preparation.fit`: the transforms of the modalities whose encoder prepares raw values itself."""
    transforms: dict[str, Callable[[Samples, str], Transform]] = {}
    for name, modality in modalities.items():
        cls, settings = _preparing(modality, choices.get(name))
        if cls is not None:
            transforms[name] = partial(cls.prepare, settings=settings)
    return transforms


def seen_by_encoder(modality: Modality, choice: EncoderChoice = None) -> Modality:
    """The modality that an encoder will be built for, from the raw one, as far as it is known before preparation.

    >>> seen_by_encoder(Modality("title", "text", ())).kind
    'tokens'
    """
    cls, settings = _preparing(modality, choice)
    if cls is not None:
        return cls.sees(modality, settings)
    if modality.kind != "text":
        return modality
    return replace(modality, kind="tokens", shape=(1,), vocabulary=2, words=())


def _preparing(modality: Modality, choice: EncoderChoice) -> tuple[type[Encoder] | None, dict[str, Any]]:
    """The chosen encoder and its settings, if it prepares raw values itself; no default encoder does."""
    if _has_name(choice):
        cls, settings = read_choice(modality, choice)  # type: ignore[arg-type]
        if cls.prepares:
            return cls, settings
    if isinstance(choice, Encoder) and choice.prepares:
        return type(choice), dict(choice.settings)
    return None, {}


def describe_choice(choice: EncoderChoice) -> Any:
    """A choice as plain JSON values, for saving with a model; `build_encoder` accepts them again.

    A custom module cannot be described. Only its class is named, and `is_custom` recognises that: the user must pass
    the module again when the model is loaded.

    >>> describe_choice({"name": "mlp", "hidden": (64, 32)})
    {'name': 'mlp', 'hidden': [64, 32]}
    >>> describe_choice(nn.Linear(2, 2))
    {'custom module': 'torch.nn.modules.linear.Linear'}
    """
    if isinstance(choice, nn.Module):
        return {_CUSTOM: f"{type(choice).__module__}.{type(choice).__qualname__}"}
    if isinstance(choice, Mapping):
        return {str(setting): _plain(setting, value) for setting, value in choice.items()}
    if choice is None or isinstance(choice, str):
        return choice
    raise InputError(f"an encoder must be a name, a mapping or an nn.Module, got {choice!r}")


def describe_encoders(choices: Mapping[str, EncoderChoice], built: nn.Module) -> dict[str, Any]:
    """Choices as plain JSON values, with the setting `rebuilt` for encoders made from files.

    Args:
        choices: Modality → choice.
        built: A module that contains the built encoders.
    """
    described = {name: describe_choice(choice) for name, choice in choices.items()}
    for encoder in built.modules():
        if not isinstance(encoder, Encoder) or (saved := encoder.saved()) is None:
            continue
        chosen = described.get(encoder.modality_name)
        if chosen is not None and not is_custom(chosen):
            named = {"name": chosen} if isinstance(chosen, str) else chosen
            described[encoder.modality_name] = {**named, _REBUILT: saved}
    return described


def as_chosen(described: Mapping[str, EncoderChoice]) -> dict[str, EncoderChoice]:
    """Described choices without the setting `rebuilt`, so that another fit starts from the files.

    Files that the caller of `load` did not pass are not read by another fit either: it raises an error.

    >>> as_chosen({"title": {"name": "bag:glove.txt", "rebuilt": 300}})
    {'title': {'name': 'bag:glove.txt'}}
    """
    return {
        name: _saved_choice(choice) if _has_name(choice) and passed_settings(name) is None else plain_choice(choice)
        for name, choice in described.items()
    }


def plain_choice(choice: Any) -> Any:
    """A choice without the setting `rebuilt`."""
    if not isinstance(choice, Mapping):
        return choice
    return {key: value for key, value in choice.items() if key != _REBUILT}


def is_custom(described: Any) -> bool:
    """Whether a described choice is a custom module, which must be passed again.

    >>> is_custom(describe_choice(nn.Linear(2, 2))), is_custom(describe_choice("conv"))
    (True, False)
    """
    return isinstance(described, Mapping) and _CUSTOM in described


def _check_kind(cls: type[Encoder], name: str, modality: Modality) -> None:
    if modality.kind in cls.reads:
        return
    fitting = [other for other, known in ENCODERS.items() if modality.kind in known.reads]
    raise UnsupportedError(
        f"encoder {name!r} cannot read modality {modality.describe()}: it reads {', '.join(cls.reads)}. "
        + (f"For {modality.kind} choose {' or '.join(fitting)}" if fitting else "Text must become tokens first")
    )


def _check_features(cls: type[Encoder], modality: Modality, needed: bool) -> None:
    if needed and not cls.gives_features:
        raise UnsupportedError(
            f"encoder {cls.name!r} of modality {modality.name!r} gives an opinion and no features to train through: "
            "only methods that train their experts one by one can use it"
        )


def _plain(setting: Any, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(setting, item) for item in value]
    raise InputError(
        f"encoder setting {setting!r} holds {value!r}, which cannot be saved: numbers, strings and lists of them can"
    )
