"""Saves and loads fitted estimators: what they learned in safetensors and JSON, their experts as skops writes them.

Each `write_…` has a `read_…`, which returns the parameters and the fitted attributes by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.opinion_trust import OpinionTrust
from consilience.bayes.reliability import OpinionReliability
from consilience.core.errors import InputError, SavedModelError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.damaged_files import reason_of
from consilience.encoders import EncoderChoice
from consilience.estimators.saved_calibration import CALIBRATION, restore_calibration, write_calibration
from consilience.methods.latent.default_networks import chosen_networks
from consilience.methods.latent.single_encoder import SingleEncoder
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training.building_limits import BuildingLimits
from consilience.training.model_folder import (
    Folder,
    add_given,
    prefixed,
    read_folder,
    rebuilding,
    write_folder,
)

if TYPE_CHECKING:
    from consilience.estimators.bayes_fusion import BayesFusion
    from consilience.estimators.multimodal_vae import MultimodalVAE

BAYES, LATENT, ENCODER = "BayesFusion", "MultimodalVAE", "SingleEncoder"
_RULE, _RELIABILITY, _GRADED = "rule.", "reliability.", "graded."
_LEARNED = ("n_features_in_", "feature_names_in_", "gives_weights_", "n_iter_")


def describe_fitted(estimator: Any) -> dict[str, Any]:
    """Return the class, the parameters and the fitted attributes of an estimator as JSON values."""
    learned = {name: np.asarray(getattr(estimator, name)).tolist() for name in _LEARNED if hasattr(estimator, name)}
    parameters = describe_parameters(estimator.get_params(deep=False))
    described: dict[str, Any] = {"estimator": type(estimator).__name__, "parameters": parameters, "learned": learned}
    if hasattr(estimator, "encodings_"):
        described["encodings"] = [{"name": name, **known.to_json()} for name, known in estimator.encodings_.items()]
    return described


def restore_fitted(described: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the fitted attributes that `describe_fitted` wrote."""
    learned = {name: described["learned"][name] for name in _LEARNED if name in described["learned"]}
    if "feature_names_in_" in learned:
        learned["feature_names_in_"] = np.array(list(learned["feature_names_in_"]), dtype=object)
    if "encodings" in described:
        learned["encodings_"] = {entry["name"]: Encoding.from_json(entry) for entry in described["encodings"]}
    return restore_parameters(described["parameters"]), learned


def describe_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON values for `restore_parameters`.

    A validation set and a random generator become None. Callbacks and the folder of checkpoints are left out, and so
    are encoders and decoders, which are saved with the model; only the word "auto", which chooses encoders, is kept.

    >>> describe_parameters({"columns": {"a": slice(2)}, "class_weight": {0: 2.0}, "random_state": 0})
    {'columns': {'a': {'slice': [None, 2, None]}}, 'class_weight': [[0, 2.0]], 'random_state': 0}
    """
    described = dict(parameters)
    for name in ("encoders", "decoders", "callbacks"):
        if not isinstance(described.get(name), str):
            described.pop(name, None)
    described |= _without_checkpoint(parameters)
    described["columns"] = describe_columns(parameters.get("columns"))
    if isinstance(parameters.get("validation"), Samples | tuple | list):
        described["validation"] = None
    if not isinstance(parameters.get("random_state"), int | np.integer | None):
        described["random_state"] = None
    if isinstance(weights := parameters.get("class_weight"), Mapping):  # JSON would make strings of its keys
        described["class_weight"] = [list(pair) for pair in weights.items()]
    return described


def restore_parameters(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that `describe_parameters` wrote."""
    parameters = dict(described) | {"columns": restore_columns(described["columns"])} | _without_checkpoint(described)
    if isinstance(weights := described.get("class_weight"), list):
        parameters["class_weight"] = dict(weights)
    return parameters


def _without_checkpoint(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Training settings, those of an imputer too, without the folder of checkpoints: a loaded model writes to none.

    >>> _without_checkpoint({"training": {"checkpoint": "runs"}, "impute": {"training": {"checkpoint": "x", "lr": 1}}})
    {'training': None, 'impute': {'training': {'lr': 1}}}
    """
    cleaned: dict[str, Any] = {}
    if isinstance(training := parameters.get("training"), Mapping):
        cleaned["training"] = {name: value for name, value in training.items() if name != "checkpoint"} or None
    if isinstance(impute := parameters.get("impute"), Mapping):
        cleaned["impute"] = {**impute, **_without_checkpoint(impute)}
    return cleaned


def describe_columns(columns: Mapping[str, Any] | None) -> Any:
    """Return `columns` as JSON values, for `restore_columns`.

    >>> describe_columns({"audio": slice(0, 2), "rest": range(2, 4)})
    {'audio': {'slice': [0, 2, None]}, 'rest': [2, 3]}
    """
    if columns is None:
        return None
    return {
        name: {"slice": [chosen.start, chosen.stop, chosen.step]}
        if isinstance(chosen, slice)
        else np.asarray(chosen).tolist()
        for name, chosen in columns.items()
    }


def restore_columns(described: Any) -> dict[str, Any] | None:
    """Return the columns that `describe_columns` wrote."""
    if described is None:
        return None
    return {name: slice(*chosen["slice"]) if isinstance(chosen, dict) else chosen for name, chosen in described.items()}


def write_bayes(path: Path, model: BayesFusion) -> Path:
    """Write the folder that `read_bayes` reads."""
    parameters = model.get_params(deep=False)
    experts = parameters.pop("experts")
    named = parameters.pop("classes") is not None
    rule = model.rule_
    tensors = prefixed(_RULE, rule.state_dict())
    if hasattr(model, "reliability_"):
        tensors |= prefixed(_RELIABILITY, model.reliability_.state_dict())
    if hasattr(model, "graded_"):
        tensors |= prefixed(_GRADED, model.graded_.state_dict())
    described = {
        "estimator": BAYES,
        "parameters": parameters,
        "modalities": list(model.modalities_),
        "columns": model.columns_,
        "task": Task("classification", len(model.classes_), classes=model.classes_).to_json(),
        "classes_named": named,
        # Parameters may have been changed since fitting; the rule was learned with these.
        "rule": {"kappa": rule.kappa, "calibration": rule.calibration},
        "evidence": getattr(model, "evidence_", None),
    }
    tensors |= write_calibration(model, described)
    given = dict(experts) if isinstance(experts, Mapping) else experts
    packed = None if given is None else pack_experts({"given": given, "fitted": model.experts_})
    return write_folder(path, Folder(described, tensors, packed))


def read_bayes(path: Path, trusted: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a saved `BayesFusion`, and its fitted attributes by name."""
    folder = read_folder(path)
    described = folder.described
    with rebuilding(path, "the fusion"):
        parameters, names = dict(described["parameters"]), tuple(described["modalities"])
        classes = Task.from_json(described["task"], ordered=False).classes  # in the order of the opinions' columns
        assert classes is not None
        with BuildingLimits(folder.tensors.values()):
            rule = BayesRule(len(names), len(classes), **described["rule"]).double()
        columns = None if described["columns"] is None else tuple(described["columns"])
        learned: dict[str, Any] = {"classes_": classes, "columns_": columns, "modalities_": names, "rule_": rule}
        _load_same_sizes(rule, folder.part(_RULE))
        if seen := folder.part(_RELIABILITY):
            learned["reliability_"] = OpinionReliability(len(names)).double()
            learned["reliability_"].load_state_dict(seen)
        if seen := folder.part(_GRADED):
            learned["graded_"] = OpinionTrust(len(names)).double()
            _load_same_sizes(learned["graded_"], seen)
        if described.get("evidence") is not None:
            learned["evidence_"] = float(described["evidence"])
        if "calibration" in described:
            learned["calibration_"] = restore_calibration(folder.part(CALIBRATION), described["calibration"])
        parameters["classes"] = classes.tolist() if described["classes_named"] else None
    if folder.experts is not None:
        experts = unpack_experts(folder.experts, path, trusted)
        parameters["experts"], learned["experts_"] = experts["given"], experts["fitted"]
    return parameters, learned


def _load_same_sizes(module: nn.Module, saved: dict[str, Tensor]) -> None:
    """Load tensors into a module whose loading takes the saved sizes, and check that these are its own."""
    sizes = {key: value.shape for key, value in module.state_dict().items()}
    module.load_state_dict(saved)
    for key, value in module.state_dict().items():
        if value.shape != sizes[key]:
            raise ValueError(f"{key} has shape {list(value.shape)}, and the description asks for {list(sizes[key])}")


def pack_experts(experts: Any) -> bytes:
    """Return scikit-learn classifiers, in any mappings, in skops' format: data, and the names of their types."""
    from skops.io import dumps, get_untrusted_types, loads

    from consilience.estimators.expert_checks import check_experts, check_packed

    try:
        packed = dumps(experts)
        check_packed(packed)  # what cannot be read must not be written
        check_experts(loads(packed, trusted=get_untrusted_types(data=packed)))
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise InputError(
            f"saving: an expert cannot be written without its code: {error}. Types and functions must be importable: "
            "defined in a module, under a name of their own"
        ) from error
    return packed


def unpack_experts(packed: bytes, path: Path, trusted: Sequence[str] = ()) -> Any:
    """Return what `pack_experts` packed. Types that scikit-learn defines are trusted, others only if they are named."""
    from skops.io import get_untrusted_types, loads

    from consilience.estimators.expert_checks import check_experts, check_packed

    trusted = [trusted] if isinstance(trusted, str) else trusted
    try:
        types = get_untrusted_types(data=packed)
        if unknown := [name for name in types if name not in trusted and not _is_of_scikit_learn(name)]:
            raise SavedModelError(
                f"loading {path}: the experts are made of types that scikit-learn does not define: "
                f"{', '.join(unknown)}. Loading them runs their code; if you trust them and whoever saved the model, "
                f"load(path, trusted={unknown})"
            )
        check_packed(packed)
        experts = loads(packed, trusted=types)
        check_experts(experts)
        return experts
    except SavedModelError as error:
        raise SavedModelError(f"loading {path}: {str(error).removeprefix(f'loading {path}: ')}") from None
    except Exception as error:  # damaged bytes fail wherever they lead skops
        raise SavedModelError(
            f"loading {path}: the experts cannot be rebuilt as they were saved, with another version of scikit-learn, "
            f"perhaps: {type(error).__name__}: {reason_of(error)}"
        ) from error


def _is_of_scikit_learn(name: str) -> bool:
    """Whether this is a class that scikit-learn defines; not a function, and nothing it has from elsewhere.

    >>> _is_of_scikit_learn("sklearn.tree._tree.Tree"), _is_of_scikit_learn("sklearn.base.warnings.warn")
    (True, False)
    """
    module, _, own = name.rpartition(".")
    if module.split(".")[0] != "sklearn" or module.startswith("sklearn.externals"):
        return False
    try:
        found = getattr(import_module(module), own, None)
    except ImportError:
        return False
    return isinstance(found, type) and found.__module__ == module


def write_latent(path: Path, model: MultimodalVAE) -> Path:
    """Write the folder that `read_latent` reads. The user's own encoders and decoders must be passed when loading."""
    tensors, described = model.trained_.state()
    own = {"estimator": LATENT, "latent": described, "recipe": getattr(model, "recipe_", None)}
    return write_folder(path, Folder({**describe_fitted(model), **own}, tensors))


def read_latent(
    path: Path,
    encoders: Mapping[str, EncoderChoice] | None = None,
    decoders: Mapping[str, nn.Module] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a saved `MultimodalVAE`, and its fitted attributes by name."""
    folder = read_folder(path)
    with rebuilding(path):
        described = dict(folder.described["latent"])
        parameters, learned = restore_fitted(folder.described)
        settings = dict(described["settings"])
        described["encoders"] = add_given(path, described["encoders"], encoders or {})
        settings["decoders"] = add_given(path, settings["decoders"] or {}, decoders or {}, "decoders") or None
        described["settings"] = settings
        trained = TrainedLatent.from_state(folder.tensors, described)
    learned["trained_"], learned["modalities_"] = trained, trained.names
    learned["recipe_"] = folder.described.get("recipe")
    chosen_encoders, chosen_decoders = chosen_networks(trained.encoders, settings["decoders"])
    return {**parameters, "encoders": chosen_encoders, "decoders": chosen_decoders}, learned


def write_encoder(path: Path, trained: TrainedLatent, name: str) -> Path:
    """Write the encoder of one modality alone."""
    tensors, described = SingleEncoder.of(trained, name).state()
    return write_folder(path, Folder({"estimator": ENCODER, "encoder": described}, tensors))


def read_encoder(path: Path, encoders: Mapping[str, EncoderChoice] | None = None) -> SingleEncoder:
    """Read what `write_encoder` wrote."""
    folder = read_folder(path)
    with rebuilding(path, "the encoder"):
        described = dict(folder.described["encoder"])
        described["encoders"] = add_given(path, described["encoders"], encoders or {})
        return SingleEncoder.from_state(folder.tensors, described)
