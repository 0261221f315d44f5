"""What a comparison is to do: data × methods × seeds, and everything else that decides the numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.data import DataSet, load_data
from consilience.data.named_sets import DATA_SETS, find_folder
from consilience.version import __version__

# Files up to this size are known by their content, larger ones by size and time of change.
_HASHED_BYTES = 2**28
# What may grow between two calls on one run folder: finished jobs stay valid.
EXTENDABLE = ("methods", "seeds", "reference", "metric", "registered")


@dataclass(frozen=True)
class Source:
    """Where a set comes from: a name or path with the options of `load_data`, or a `DataSet` in memory."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: DataSet | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, given: Any, options: Mapping[str, Any] | None = None) -> Source:
        """From whatever a user names a set by."""
        if isinstance(given, Source):
            return given
        if isinstance(given, DataSet):
            if options:
                raise InputError(f"compare: a DataSet is loaded already; {', '.join(options)} would change nothing")
            return cls(given.name, {}, given)
        return cls(str(given), {key: value for key, value in (options or {}).items() if value is not None})

    @property
    def label(self) -> str:
        """How tables call it: a file by its name without folder and ending."""
        if self.data is not None or self.name in DATA_SETS:
            return self.name
        return Path(self.name).name.split(".")[0] or self.name

    def load(self) -> DataSet:
        """The set itself."""
        return load_data(self.name, **self.options) if self.data is None else self.data

    def fingerprint(self) -> str:
        """Changes whenever the data does."""
        if self.data is not None:
            return _digest_of_samples(self.data)
        path, named = Path(self.name), DATA_SETS.get(self.name)
        files: list[Path] = []
        if named is not None and named.files is not None:
            folder = find_folder(named.files, self.options.get("data_dir"))
            files = [one for name in named.files.names for one in _files_below(folder / name)]
        elif named is None and path.exists():
            files = _files_below(path)
        contents = [[one.name, _digest_of_file(one)] for one in files if one.is_file()]
        # Where the files lie is no part of what they are.
        options = {name: value for name, value in self.options.items() if name != "data_dir"}
        return digest({"name": self.label, "options": options, "files": contents})


@dataclass(frozen=True)
class Plan:
    """What decides the numbers of a comparison.

    methods: names, or None for every registered method that serves a set; NAME@LABEL is a variant of a method, with the
    settings given for NAME@LABEL · corruptions: each a name, a mapping modality → name, or None for the default by kind
    · levels: 0, the clean set, always belongs to them · seeds: how many; a seed varies initial weights, shuffling,
    noise, and the split where it is not the data's own · repeats: how often each seed's model meets its samples with
    other noise · settings: method → its settings · training: settings of `Trainer` · tune: random draws of learning
    rate and optimizer.
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
    encoders: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    tune: int = 0

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("compare: name at least one data set")
        labels = [source.label for source in self.sources]
        if len(set(labels)) < len(labels):
            raise InputError(f"compare: two data sets are called alike ({', '.join(labels)}): rename one")
        if not isinstance(self.seeds, int | np.integer) or self.seeds < 1:
            raise InputError(f"compare: seeds must be a whole number ≥ 1, got {self.seeds!r}")
        if not isinstance(self.repeats, int | np.integer) or self.repeats < 1:
            raise InputError(f"compare: repeats must be a whole number ≥ 1, got {self.repeats!r}")
        if not isinstance(self.tune, int | np.integer) or self.tune < 0:
            raise InputError(f"compare: tune must be a whole number ≥ 0, got {self.tune!r}")
        levels = sorted({0.0, *(float(level) for level in self.levels)})
        if not all(np.isfinite(level) and level >= 0 for level in levels):
            raise InputError(f"compare: levels must be finite and ≥ 0, got {list(self.levels)}")
        object.__setattr__(self, "levels", tuple(levels))
        if self.methods is not None:
            object.__setattr__(self, "methods", tuple(dict.fromkeys(self.methods)))
        for name in (*(self.methods or ()), self.reference):
            if name != registered_name(name) and name not in self.settings:
                raise InputError(f"compare: {name!r} is a variant of a method, and has no settings of its own")

    def asked(self) -> dict[str, Any]:
        """The plan in JSON values, with the data known by its content."""
        described = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "sources"}
        if self.repeats == 1:
            del described["repeats"]  # as it was before there were any: folders and results keep their names
        described["sources"] = {source.label: source.fingerprint() for source in self.sources}
        described["version"] = __version__
        described["registered"] = _method_files() if self.methods is None else None
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


def registered_name(method: str) -> str:
    """The method that a name in a comparison stands for; variants of one are told apart by a label.

    >>> registered_name("qmf@msp"), registered_name("pro:concat")
    ('qmf', 'pro:concat')
    """
    return method.partition("@")[0]


def jobs_of(plan: Plan, methods: Mapping[str, list[str]], fingerprints: Mapping[str, str]) -> list[Job]:
    """Every job of a plan; seeds outermost, so that a run stopped early has compared all methods on some seeds."""
    shared = {
        "corruptions": plan.corruptions,
        "levels": plan.levels,
        "probability": plan.probability,
        "encoders": plan.encoders,
        "training": plan.training,
        "tune": plan.tune,
        "version": __version__,
        **({} if plan.repeats == 1 else {"repeats": plan.repeats}),
    }
    return [
        Job(
            label,
            method,
            seed,
            fingerprints[label],
            digest(
                {
                    **shared,
                    "data": fingerprints[label],
                    "method": method,
                    "seed": seed,
                    "settings": plan.settings.get(method, {}),
                }
            ),
        )
        for seed in range(plan.seeds)
        for label, names in methods.items()
        for method in names
    ]


def _method_files() -> list[str]:
    """The modules in which methods live, so that a method that came since is noticed without importing torch."""
    rooms = (Path(__file__).parent.parent / room for room in ("fusion", "decision", "feedback", "generative"))
    return sorted(f"{room.name}/{one.stem}" for room in rooms if room.is_dir() for one in room.glob("*.py"))


def to_json(value: Any) -> str:
    """JSON that does not depend on the order of keys; what cannot be written is an error that names it."""

    def plain(one: Any) -> Any:
        if isinstance(one, Mapping):
            return dict(one)
        if hasattr(one, "tolist"):
            return one.tolist()
        if isinstance(one, Path):
            return str(one)
        raise InputError(f"compare: {one!r} cannot be part of a comparison's settings: use numbers, strings and lists")

    return json.dumps(value, sort_keys=True, default=plain)


def digest(value: Any) -> str:
    """A short name for a value, other for any other value.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}), digest({"a": 1}) == digest({"a": 2})
    (True, False)
    """
    return hashlib.sha256(to_json(value).encode()).hexdigest()[:24]


def _files_below(path: Path) -> list[Path]:
    return sorted(path.rglob("*")) if path.is_dir() else [path]


def _digest_of_file(path: Path) -> str:
    stat = path.stat()
    if stat.st_size > _HASHED_BYTES:
        return digest([stat.st_size, stat.st_mtime_ns])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:24]


def _digest_of_samples(data: DataSet) -> str:
    summed = hashlib.sha256(to_json([data.name, data.task, data.official_split, data.drawn_validation]).encode())
    samples = data.samples
    for name in samples.names:
        values = samples[name]
        summed.update(to_json([name, samples.modalities[name].kind, values.shape, str(values.dtype)]).encode())
        if values.dtype.kind == "O":
            summed.update(to_json(np.asarray(values).tolist()).encode())
        else:
            summed.update(np.ascontiguousarray(values).data)
    for array in (samples.present, data.y, data.split, samples.weight, *samples.lengths.values()):
        if array is not None:
            text = array.dtype.kind in "OUS"
            summed.update(to_json(array.tolist()).encode() if text else np.ascontiguousarray(array).data)
    return summed.hexdigest()[:24]
