"""What a comparison does: data × methods × seeds, and everything else that decides the numbers.

`Plan` is what the user asked for; `resolve` checks it before the first job: which methods serve which sets, and why the
others do not.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consilience.comparison.sources import Source, digest, tell_apart, to_json
from consilience.core.errors import InputError, unknown_name
from consilience.core.file_names import check_text
from consilience.core.settings import settings_of
from consilience.corruption.augmentation import choose_augmentations, read_augment, within_modalities
from consilience.data import DataSet
from consilience.evaluation import find_metric
from consilience.training import part_names
from consilience.version import __version__

if TYPE_CHECKING:
    from consilience.methods import Spec

# What may grow between two calls on one run folder: finished jobs stay valid.
EXTENDABLE = ("methods", "seeds", "reference", "metric", "choose_by", "refit", "registered")

# The seed of the published model: of its initial weights, and of the split where each seed has its own.
REFIT_SEED = 0
# What the keys of refits begin with.
REFITTED = "refit-"

# Settings of training that a comparison sets itself.
DECIDED_BY_COMPARISON = frozenset({"seed", "on_interrupt"})


@dataclass(frozen=True)
class Plan:
    """What decides the numbers of a comparison; the arguments are those of `compare`.

    Attributes:
        corruptions: Each a name, a mapping modality → name of what is corrupted, or None for the default by kind.
        levels: 0, the clean set, is always among them.
        seeds: How many; a seed varies initial weights, shuffling, noise, and the split if the data have none.
        repeats: How often noise is drawn for each seed's model.
        settings: Method → its settings; settings of training among them, such as `augment`, are for this method only.
        training: Settings of `Trainer` for every method.
        class_weight: Of every method's training, as `Model.fit` takes it.
        tune: Random draws of learning rate and optimizer.
        choose_by: The metric that a method is chosen by; None: log-loss, or squared error.
        refit: Whether the chosen method is trained once more, on everything but test samples.
    """

    sources: tuple[Source, ...]
    methods: tuple[str, ...] | None = None
    corruptions: tuple[Any, ...] = (None,)
    levels: tuple[float, ...] = (0.0, 5.0, 10.0)
    seeds: int = 10
    repeats: int = 1
    probability: float = 0.5
    metric: str | None = None
    reference: str = ""  # "" is `late`, or the first method where that is not among them
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    encoders: Mapping[str, Any] | Literal["auto"] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    tune: int = 0
    choose_by: str | None = None
    refit: bool = True
    class_weight: Mapping[Any, float] | str | None = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("compare: name at least one data set")
        object.__setattr__(self, "sources", tell_apart(self.sources))
        labels = [source.label for source in self.sources]
        if len(set(labels)) < len(labels):
            raise InputError(f"compare: two data sets are called alike ({', '.join(labels)}): rename one")
        for name, least in (("seeds", 1), ("repeats", 1), ("tune", 0)):
            if not isinstance(value := getattr(self, name), int | np.integer) or value < least:
                raise InputError(f"compare: {name} must be a whole number ≥ {least}, got {value!r}")
        levels = sorted({0.0, *(float(level) for level in self.levels)})
        if not all(np.isfinite(level) and level >= 0 for level in levels):
            raise InputError(f"compare: levels must be finite and ≥ 0, got {list(self.levels)}")
        object.__setattr__(self, "levels", tuple(levels))
        if self.methods is not None:
            object.__setattr__(self, "methods", tuple(dict.fromkeys(self.methods)))
        for name in (*(self.methods or ()), self.reference):
            check_text("compare: method", name)
            if name != registered_name(name) and name not in self.settings:
                raise InputError(f"compare: {name!r} is a variant of a method, and has no settings of its own")

    def settings_of(self, method: str) -> dict[str, Any]:
        """Return the settings that a method is built with."""
        return split_settings(method, self.settings.get(method, {}))[0]

    def training_of(self, method: str, modalities: Collection[str]) -> dict[str, Any]:
        """Return the settings of `Trainer` for a method, without what is said of modalities that a set lacks."""
        training = {**self.training, **split_settings(method, self.settings.get(method, {}))[1]}
        if "augment" in training:
            training["augment"] = within_modalities(training["augment"], modalities)
        return part_names.within_modalities(training, modalities)

    def class_weight_of(self, labels: np.ndarray) -> Mapping[Any, float] | str | None:
        """Return the class weights by the labels of a set, as `Model.fit` takes them."""
        from consilience.training.class_weights import match_classes

        return None if self.class_weight is None else match_classes(self.class_weight, labels)

    @property
    def chosen_encoders(self) -> Mapping[str, Any]:
        """The encoders that the user chose, by modality."""
        return {} if isinstance(self.encoders, str) else self.encoders

    def encoders_of(self, modalities: Collection[str]) -> dict[str, Any] | Literal["auto"]:
        """Return the encoders of a set's modalities, as `Model.fit` takes them."""
        if isinstance(self.encoders, str):
            return self.encoders
        return {name: choice for name, choice in self.encoders.items() if name in modalities}

    def asked(self) -> dict[str, Any]:
        """Return the plan in JSON values, with the data identified by its content.

        Where methods are not named one by one, the names of all registered methods are part of it, those of plugins
        too: a method that was added since then extends an existing run.
        """
        described = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "sources"}
        if self.repeats == 1:
            del described["repeats"]  # as it was before there were any: folders and results keep their names
        if self.class_weight is None:
            del described["class_weight"]
        described["sources"] = {source.label: source.fingerprint() for source in self.sources}
        described["version"] = __version__
        described["registered"] = None
        if self.methods is None or any(name.endswith(":") for name in self.methods):
            from consilience.methods import METHODS

            described["registered"] = list(METHODS)
        return json.loads(to_json(described))


@dataclass(frozen=True)
class Job:
    """One training of one method on one set with one seed, and its evaluation; `key` names its result for ever."""

    source: str
    method: str
    seed: int
    data: str  # the fingerprint of the set
    key: str

    def describe(self) -> str:
        """In one phrase, for progress and messages."""
        return f"{self.method} on {self.source}, seed {self.seed}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Refit(Job):
    """The training of the chosen method on everything but test samples.

    Attributes:
        steps: Of each run and phase of the training.
        chosen: Settings of training that tuning chose.
    """

    steps: Sequence[Sequence[int]] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> str:
        """In one phrase, for progress and messages."""
        return f"{self.method} on {self.source}, refitted on train and validation"


def registered_name(method: str) -> str:
    """The method that a name in a comparison stands for; variants of one are told apart by a label.

    >>> registered_name("qmf@msp"), registered_name("pro:concat")
    ('qmf', 'pro:concat')
    """
    return method.partition("@")[0]


def split_settings(method: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell the settings of a method from settings of its training; a name that both have is the method's.

    >>> split_settings("lowrank@noisy", {"rank": 4, "augment": "gaussian:0..1"})
    ({'rank': 4}, {'augment': 'gaussian:0..1'})
    """
    from consilience.methods import find
    from consilience.training.training_settings import TrainingSettings

    if not given.keys() & settings_of(TrainingSettings).keys():
        return dict(given), {}
    cls, _ = find(registered_name(method))
    own = settings_of(cls)
    training = {
        name
        for name in settings_of(TrainingSettings)
        if name in given and name not in own and name not in DECIDED_BY_COMPARISON
    }
    return (
        {name: value for name, value in given.items() if name not in training},
        {name: value for name, value in given.items() if name in training},
    )


def jobs_of(plan: Plan, methods: Mapping[str, list[str]], fingerprints: Mapping[str, str]) -> list[Job]:
    """Every job of a plan; seeds outermost, so that a run stopped early has compared all methods on some seeds."""
    decisive = ("corruptions", "levels", "probability", "encoders", "training", "tune")
    shared = {name: getattr(plan, name) for name in decisive} | {"version": __version__}
    if plan.repeats != 1:
        shared["repeats"] = plan.repeats
    if plan.class_weight is not None:
        shared["class_weight"] = plan.class_weight
    if any(isinstance(corruption, Mapping) for corruption in plan.corruptions):
        shared["named"] = "only"  # modalities that a mapping does not name were corrupted too, up to 0.1
    jobs = []
    for seed, (label, names) in product(range(plan.seeds), methods.items()):
        for method in names:
            settings, data = plan.settings.get(method, {}), fingerprints[label]
            key = digest({**shared, "data": data, "method": method, "seed": seed, "settings": settings})
            jobs.append(Job(label, method, seed, data, key))
    return jobs


def resolve(plan: Plan, asked: Mapping[str, Any], command: str | None) -> dict[str, Any]:
    """Check a plan and return what `plan.json` keeps: the jobs, and what is needed to reopen the comparison."""
    from consilience import methods as room
    from consilience.comparison.job import label_of
    from consilience.comparison.split_check import split_facts
    from consilience.comparison.store import versions_used

    loaded = {source.label: source.load() for source in plan.sources}
    check_protocol(plan, loaded)
    check_members(plan.methods or (), loaded)
    chosen: dict[str, list[str]] = {}
    skipped: list[dict[str, str]] = []
    for label, data in loaded.items():
        chosen[label], reasons = applicable(plan.methods, plan.reference, data, plan.chosen_encoders)
        skipped += [{"set": label, "method": method, "reason": reason} for method, reason in reasons.items()]
    everyone = list(dict.fromkeys(name for names in chosen.values() for name in names))
    if not everyone:
        listed = "; ".join(f"{row['method']}: {row['reason']}" for row in skipped)
        raise InputError(f"compare: none of the methods can serve this data ({listed})")
    reference = plan.reference or ("late" if "late" in everyone else everyone[0])
    if reference not in everyone:
        reasons = {row["method"]: row["reason"] for row in skipped}
        why = reasons.get(reference, "it is a family of methods, not one of them")
        raise InputError(f"compare: {reference!r} cannot be the reference here: {why}. Name another, or none")
    named = {*everyone, *(row["method"] for row in skipped)}
    for name in plan.settings:
        if name not in named:
            raise unknown_name("method", name, named, "It was given in settings")
    for label, data in loaded.items():
        check_methods(plan, chosen[label], data)
    facts = {label: split_facts(data, plan.seeds) for label, data in loaded.items()}
    fingerprints = {source.label: source.fingerprint() for source in plan.sources}
    papers = {name: room.find(registered_name(name))[0].paper for name in everyone}
    return {
        "asked": asked,
        "command": command or f"consilience.compare({', '.join(repr(label) for label in loaded)}, …)",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "reference": reference,
        "sets": {label: {**data.describe(), **facts[label]} for label, data in loaded.items()},
        "corruptions": {
            label: [label_of(corruption, data.modalities) for corruption in plan.corruptions]
            for label, data in loaded.items()
        },
        "skipped": skipped,
        "papers": {name: paper for name, paper in papers.items() if paper},
        "versions": versions_used(),
        "jobs": [job.to_json() for job in jobs_of(plan, chosen, fingerprints)],
    }


def check_protocol(plan: Plan, loaded: Mapping[str, DataSet]) -> None:
    """Refuse before the first training what would fail in every job: metric, corruption, training, encoders."""
    from consilience.comparison.job import label_of
    from consilience.core.targets import Task
    from consilience.corruption import Corruptor
    from consilience.training import TrainingSettings
    from consilience.training.class_weights import weigh_classes
    from consilience.training.devices import resolve_device

    tasks = {data.task for data in loaded.values()}
    if len(tasks) > 1:
        raise InputError("compare: the sets must share one task; some are classification, some regression")
    for data in loaded.values():
        for metric in (plan.metric, plan.choose_by):
            if metric is not None:
                find_metric(metric, data.task, targets=data.y[:1].size)
        if (weights := plan.class_weight_of(data.y)) is not None:
            weigh_classes(data.train, Task.of(data.y, data.task), weights)
        few = data.train[:2]
        for corruption in plan.corruptions:
            Corruptor(few).apply(few, corruption, 0.0, probability=plan.probability)
        labels = [label_of(corruption, data.modalities) for corruption in plan.corruptions]
        if len(set(labels)) < len(labels):
            raise InputError(f"compare: two of the corruptions are the same: {', '.join(labels)}")
    fields = TrainingSettings.__dataclass_fields__.keys() - DECIDED_BY_COMPARISON
    for name in plan.training:
        if name not in fields:
            raise unknown_name("training setting", name, fields)
    resolve_device(TrainingSettings(**plan.training).device)
    modalities = {name for data in loaded.values() for name in data.modalities}
    for given in (plan.training, *(split_settings(*pair)[1] for pair in plan.settings.items())):
        for modality in read_augment(given.get("augment")):
            if modality is not None and modality not in modalities:
                raise unknown_name("modality", modality, modalities, "An augmentation was given for it")
        part_names.check_part_names(given, modalities, tuned=bool(plan.tune))
    for name in plan.chosen_encoders:
        if name not in modalities:
            raise unknown_name("modality", name, modalities, "It was given in encoders")


def check_methods(plan: Plan, names: Sequence[str], data: DataSet) -> None:
    """Build every method once as it will be trained, so that settings and encoders that do not fit raise at once."""
    from consilience import methods as room
    from consilience.core.seeding import seeded
    from consilience.training import TrainingSettings

    spec = spec_of(data, plan.chosen_encoders)
    for name in names:
        augment = TrainingSettings(**plan.training_of(name, data.modalities)).augment
        choose_augmentations(augment, data.modalities)
    with seeded(0):  # whose weights are not used
        for name in names:
            known = registered_name(name)
            encoders = room.choose_encoders(known, plan.encoders_of(data.modalities), spec.modalities, spec.task)
            room.build(known, replace(spec, encoders=encoders), plan.settings_of(name))


def check_members(names: Sequence[str], loaded: Mapping[str, DataSet]) -> None:
    """Raise an error for a member of a family, such as `unimodal:image`, whose argument no set has."""
    from consilience import methods as room

    modalities = list(dict.fromkeys(name for data in loaded.values() for name in data.modalities))
    for name in names:
        cls, argument = room.find(registered_name(name), modalities) if ":" in name.rstrip(":") else (None, None)
        if cls is not None and argument is not None and argument not in cls.arguments(modalities):
            raise unknown_name("method", name, [f"{cls.name}{known}" for known in cls.arguments(modalities)])


def applicable(
    names: Sequence[str] | None, reference: str, data: DataSet, encoders: Mapping[str, Any] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the methods to run on a set, and why not the others. A family without an argument means all members."""
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
            for modality in data.modalities.values():  # as the user knows it
                reason = reason.replace(spec.modalities[modality.name].describe(), modality.describe())
            reasons[name] = reason
    return run, reasons


def spec_of(data: DataSet, encoders: Mapping[str, Any]) -> Spec:
    """Return what methods are built from; text is tokens there, or what its encoder reads.

    Choices of encoders for modalities of other sets are left out.
    """
    from consilience.core.targets import Task
    from consilience.encoders import seen_by_encoder
    from consilience.methods import Spec

    return Spec(
        {name: seen_by_encoder(modality, encoders.get(name)) for name, modality in data.modalities.items()},
        Task.of(data.y[data.split == "train"], data.task),
        {name: choice for name, choice in encoders.items() if name in data.modalities},
    )
