"""What a comparison will do, decided and checked before its first job: which methods serve which sets, and how."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from consilience.comparison.plan import Plan, jobs_of, registered_name
from consilience.core.errors import InputError, unknown_name
from consilience.data import DataSet
from consilience.evaluation import find_metric
from consilience.version import __version__

if TYPE_CHECKING:
    from consilience.methods import Spec

# Libraries that figures depend on. Fabric comes in a distribution of its own, or inside one of the two others.
_RECORDED = ("torch", "numpy", "scikit-learn", "lightning-fabric", "lightning", "pytorch-lightning")


def resolve(plan: Plan, asked: Mapping[str, Any], command: str | None) -> dict[str, Any]:
    """Everything about a comparison that must be known before its first job, and again when it is reopened."""
    from consilience import methods as room
    from consilience.comparison.job import label_of

    loaded = {source.label: source.load() for source in plan.sources}
    check_protocol(plan, loaded)
    chosen: dict[str, list[str]] = {}
    skipped: list[dict[str, str]] = []
    for label, data in loaded.items():
        chosen[label], reasons = applicable(plan.methods, plan.reference, data, plan.encoders)
        skipped += [{"set": label, "method": method, "reason": reason} for method, reason in reasons.items()]
    everyone = list(dict.fromkeys(name for names in chosen.values() for name in names))
    if not everyone:
        listed = "; ".join(f"{one['method']}: {one['reason']}" for one in skipped)
        raise InputError(f"compare: none of the methods can serve this data ({listed})")
    reference = plan.reference or ("late" if "late" in everyone else everyone[0])
    if reference not in everyone:
        reasons = {one["method"]: one["reason"] for one in skipped}
        why = reasons.get(reference, "it is a family of methods, not one of them")
        raise InputError(f"compare: {reference!r} cannot be the reference here: {why}. Name another, or none")
    named = {*everyone, *(one["method"] for one in skipped)}
    for name in plan.settings:
        if name not in named:
            raise unknown_name("method", name, named, "It was given in settings")
    for label, data in loaded.items():
        check_methods(plan, chosen[label], data)
    fingerprints = {source.label: source.fingerprint() for source in plan.sources}
    papers = {name: room.find(registered_name(name))[0].paper for name in everyone}
    return {
        "asked": asked,
        "command": command or f"consilience.compare({', '.join(repr(label) for label in loaded)}, …)",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "reference": reference,
        "sets": {label: data.describe() for label, data in loaded.items()},
        "corruptions": {
            label: [label_of(one, data.modalities) for one in plan.corruptions] for label, data in loaded.items()
        },
        "skipped": skipped,
        "papers": {name: paper for name, paper in papers.items() if paper},
        "versions": versions_used(),
        "jobs": [job.to_json() for job in jobs_of(plan, chosen, fingerprints)],
    }


def versions_used() -> dict[str, str]:
    """Of this library, Python, the libraries that numbers depend on, and the platform."""
    return {
        "consilience": __version__,
        "python": platform.python_version(),
        **installed_versions(),
        "platform": platform.platform(terse=True),
    }


def installed_versions() -> dict[str, str]:
    """The versions of those libraries that are installed under their own name.

    >>> installed_versions()["torch"].split(".")[0]
    '2'
    """
    found = {}
    for name in _RECORDED:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def check_protocol(plan: Plan, loaded: Mapping[str, DataSet]) -> None:
    """Refuse before the first training what would fail in every job: metric, corruption, training, encoders."""
    from consilience.comparison.job import label_of
    from consilience.corruption import Corruptor
    from consilience.training import TrainingSettings
    from consilience.training.devices import resolve_device

    tasks = {data.task for data in loaded.values()}
    if len(tasks) > 1:
        raise InputError("compare: the sets must share one task; some are classification, some regression")
    for data in loaded.values():
        if plan.metric is not None:
            find_metric(plan.metric, data.task, targets=data.y[:1].size)
        few = data.train[:2]
        for corruption in plan.corruptions:
            Corruptor(few).apply(few, corruption, 0.0, probability=plan.probability)
        labels = [label_of(corruption, data.modalities) for corruption in plan.corruptions]
        if len(set(labels)) < len(labels):
            raise InputError(f"compare: two of the corruptions are the same: {', '.join(labels)}")
    fields = TrainingSettings.__dataclass_fields__.keys() - {"seed", "on_interrupt"}
    for name in plan.training:
        if name not in fields:
            raise unknown_name("training setting", name, fields)
    resolve_device(TrainingSettings(**plan.training).device)
    modalities = {name for data in loaded.values() for name in data.modalities}
    for name in plan.encoders:
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "It was given in encoders")


def check_methods(plan: Plan, names: Sequence[str], data: DataSet) -> None:
    """Build every method once as it will be trained: settings and encoders that do not fit are said at once."""
    from consilience import methods as room

    spec = spec_of(data, plan.encoders)
    for name in names:
        room.build(registered_name(name), spec, plan.settings.get(name))


def applicable(
    names: Sequence[str] | None, reference: str, data: DataSet, encoders: Mapping[str, Any] | None = None
) -> tuple[list[str], dict[str, str]]:
    """The methods to run on a set, and for the others why not. A family without an argument means all its members."""
    from consilience import methods as room

    known = room.METHODS
    if names is None:
        names = [name for name in known if not name.endswith(":")]
    if reference and reference not in names:
        names = [*names, reference]
    spelled: list[str] = []
    for name in names:
        arguments = known[name].arguments(data.modalities) if name.endswith(":") and name in known else [""]
        spelled += [name + argument for argument in arguments]
    spec = spec_of(data, encoders or {})
    run, reasons = [], {}
    for name in dict.fromkeys(spelled):
        cls, argument = room.find(registered_name(name), data.modalities)
        reason = cls.reason_against(spec)
        if reason is None and argument is not None and argument not in cls.arguments(data.modalities):
            reason = f"{argument!r} is none of its arguments here: {', '.join(cls.arguments(data.modalities))}"
        if reason is None:
            run.append(name)
        else:
            for one in data.modalities.values():  # as the user knows it
                reason = reason.replace(spec.modalities[one.name].describe(), one.describe())
            reasons[name] = reason
    return run, reasons


def spec_of(data: DataSet, encoders: Mapping[str, Any]) -> Spec:
    """What methods will be built from: text has become tokens, or whatever the encoder chosen reads.

    encoders: modality → choice, of which those for other sets' modalities are left out.
    """
    from consilience.core.targets import Task
    from consilience.encoders import seen_by_encoder
    from consilience.methods import Spec

    return Spec(
        {name: seen_by_encoder(one, encoders.get(name)) for name, one in data.modalities.items()},
        Task.of(data.y[data.split == "train"], data.task),
        {name: choice for name, choice in encoders.items() if name in data.modalities},
    )
