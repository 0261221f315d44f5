"""Saves and loads a fitted `BayesFusion`: what it learned in safetensors and JSON, its experts as skops writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.reliability import OpinionReliability
from consilience.core.errors import InputError, SavedModelError
from consilience.core.targets import Task
from consilience.training.model_folder import Folder, prefixed, read_folder, rebuilding, write_folder

if TYPE_CHECKING:
    from consilience.estimators.bayes_fusion import BayesFusion

ESTIMATOR = "BayesFusion"
_RULE, _RELIABILITY = "rule.", "reliability."


def write_bayes(path: Path, model: BayesFusion) -> Path:
    """Write the folder that `read_bayes` reads."""
    parameters = model.get_params(deep=False)
    experts = parameters.pop("experts")
    named = parameters.pop("classes") is not None
    rule = model.rule_
    tensors = prefixed(_RULE, rule.state_dict())
    if hasattr(model, "reliability_"):
        tensors |= prefixed(_RELIABILITY, model.reliability_.state_dict())
    described = {
        "estimator": ESTIMATOR,
        "parameters": parameters,
        "modalities": list(model.modalities_),
        "columns": model.columns_,
        "task": Task("classification", len(model.classes_), classes=model.classes_).to_json(),
        "classes_named": named,
        # Parameters may have been changed since fitting; the rule was learned with these.
        "rule": {"kappa": rule.kappa, "calibration": rule.calibration},
    }
    given = dict(experts) if isinstance(experts, Mapping) else experts
    packed = None if given is None else pack_experts({"given": given, "fitted": model.experts_})
    return write_folder(path, Folder(described, tensors, packed))


def read_bayes(path: Path, trusted: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a saved `BayesFusion`, and its fitted attributes by name."""
    folder = read_folder(path)
    described = folder.described
    with rebuilding(path, "the fusion"):
        parameters, names = dict(described["parameters"]), tuple(described["modalities"])
        classes = Task.from_json(described["task"]).classes
        assert classes is not None
        rule = BayesRule(len(names), len(classes), **described["rule"]).double()
        columns = None if described["columns"] is None else tuple(described["columns"])
        learned: dict[str, Any] = {"classes_": classes, "columns_": columns, "modalities_": names, "rule_": rule}
        rule.load_state_dict(folder.part(_RULE))
        if seen := folder.part(_RELIABILITY):
            learned["reliability_"] = OpinionReliability(len(names)).double()
            learned["reliability_"].load_state_dict(seen)
        parameters["classes"] = classes.tolist() if described["classes_named"] else None
    if folder.experts is not None:
        experts = unpack_experts(folder.experts, path, trusted)
        parameters["experts"], learned["experts_"] = experts["given"], experts["fitted"]
    return parameters, learned


def pack_experts(experts: Any) -> bytes:
    """Return scikit-learn classifiers, in any mappings, in skops' format: data, and the names of their types."""
    from skops.io import dumps, get_untrusted_types, loads

    try:
        packed = dumps(experts)
        loads(packed, trusted=get_untrusted_types(data=packed))  # what cannot be read must not be written
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise InputError(
            f"saving: an expert cannot be written without its code: {error}. Types and functions must be importable: "
            "defined in a module, under a name of their own"
        ) from error
    return packed


def unpack_experts(packed: bytes, path: Path, trusted: Sequence[str] = ()) -> Any:
    """Return what `pack_experts` packed. Types that scikit-learn defines are trusted, others only if they are named."""
    from skops.io import get_untrusted_types, loads

    trusted = [trusted] if isinstance(trusted, str) else trusted
    try:
        types = get_untrusted_types(data=packed)
        if unknown := [name for name in types if name not in trusted and not _is_of_scikit_learn(name)]:
            raise SavedModelError(
                f"loading {path}: the experts are made of types that scikit-learn does not define: "
                f"{', '.join(unknown)}. Loading them runs their code; if you trust them and whoever saved the model, "
                f"load(path, trusted={unknown})"
            )
        return loads(packed, trusted=types)
    except SavedModelError:
        raise
    except (AttributeError, ImportError, KeyError, TypeError, ValueError, BadZipFile) as error:
        raise SavedModelError(
            f"loading {path}: the experts cannot be rebuilt as they were saved, with another version of scikit-learn, "
            f"perhaps: {type(error).__name__}: {error}"
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
