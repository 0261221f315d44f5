"""Where the sets of a comparison come from, what they are called, and digests of their content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.data import DataSet, load_data
from consilience.data.files.table_reading import is_frame
from consilience.data.named_sets import DATA_SETS, find_folder
from consilience.data.shards.locations import find_shards, is_url, names_shards, size_of

# Files up to this size are known by their content, larger ones by size and time of change.
_HASHED_BYTES = 2**28


@dataclass(frozen=True)
class Source:
    """Where a set comes from: a name or path with the options of `load_data`, or a `DataSet` in memory."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: DataSet | None = field(default=None, compare=False, repr=False)
    called: str = ""  # the label, where the name of the file alone is that of another set too

    @classmethod
    def of(cls, given: Any, options: Mapping[str, Any] | None = None) -> Source:
        """Return the source of a name, a path or a `DataSet`."""
        if isinstance(given, Source):
            return given
        if isinstance(given, DataSet):
            if options:
                raise InputError(f"compare: a DataSet is loaded already; {', '.join(options)} would change nothing")
            return cls(given.name, {}, given)
        if not isinstance(given, str | os.PathLike):
            raise InputError(f"compare takes names, paths and DataSets, not a {type(given).__name__}: {_advice(given)}")
        return cls(str(given), {key: value for key, value in (options or {}).items() if value is not None})

    @property
    def label(self) -> str:
        """The name in tables: of a file, its name without folder and ending; that of a hidden one begins with a dot.

        What is no text, such as bytes of a file's name that are not UTF-8, is shown with backslashes.
        """
        name = self.called or self.name
        if self.is_path and not self.called:
            whole = self.parts[-1]
            shown = whole.lstrip(".")
            name = whole[: len(whole) - len(shown)] + shown.split(".")[0]
        return name.encode("utf-8", "backslashreplace").decode()

    @property
    def is_path(self) -> bool:
        """Whether it is read from a path, and is neither a named set nor in memory."""
        return self.data is None and self.name not in DATA_SETS

    @property
    def folds(self) -> int | None:
        """In how many folds its samples are tested, one for each seed; None without folds."""
        if self.data is not None:
            return None if self.data.rule is None else self.data.rule.folds
        given = self.options.get("folds")
        return given if isinstance(given, int) and given > 1 else None  # `load` says what else is wrong

    @property
    def parts(self) -> tuple[str, ...]:
        """The whole path in its parts."""
        return Path(os.path.abspath(self.name)).parts

    def load(self) -> DataSet:
        """Load the set."""
        return load_data(self.name, **self.options) if self.data is None else self.data

    def fingerprint(self) -> str:
        """Return a digest of the content."""
        if self.data is not None:
            return _digest_of_samples(self.data)
        path, named = Path(self.name), DATA_SETS.get(self.name)
        files: list[Path] = []
        if named is not None and named.files is not None:
            folder = find_folder(named.files, self.options.get("data_dir"))
            files = [file for name in named.files.names for file in _files_below(folder / name)]
        elif named is None and path.exists():
            files = [*_files_below(path), *self._named_files()]
        contents: list[list[Any]] = [_known_as(file) for file in files if file.is_file()]
        if named is None and not path.exists() and names_shards(self.name):
            places = find_shards(self.name)
            contents += [[place, size_of(place)] if is_url(place) else _known_as(Path(place)) for place in places]
        # The folder is not part of the content.
        options = {name: value for name, value in self.options.items() if name != "data_dir"}
        return digest({"name": self.label, "options": options, "files": contents})

    def _named_files(self) -> list[Path]:
        """The files that the cells of a table name; none where the table cannot be read, which `load` says."""
        from consilience.data.media.named_files import named_files

        try:
            return named_files(Path(self.name), self.options.get("modalities"), self.options.get("kinds"))
        except InputError:
            return []


def _advice(given: Any) -> str:
    """How data in memory of another form are compared."""
    if is_frame(given):
        return "load_data(frame, target=…, modalities=…) makes a DataSet of a DataFrame"
    return 'save its arrays with np.savez("set.npz", modality=…, y=…) and give that path'


def tell_apart(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Return the sources; a file called like another set gets a label with its ending, or with folders as needed.

    >>> [source.label for source in tell_apart([Source("a/x.csv"), Source("b/x.csv"), Source("a/y.csv")])]
    ['a/x.csv', 'b/x.csv', 'y']
    """
    named = {source.label for source in sources if not source.is_path}
    apart = []
    for source in sources:
        alike = [other.parts for other in sources if other.is_path and other.label == source.label]
        if source.is_path and (len(alike) > 1 or source.label in named):
            for depth in range(1, max(map(len, alike)) + 1):
                labels = {str(Path(*parts[-depth:])) for parts in alike}
                if len(labels) == len(alike) and labels.isdisjoint(named):
                    source = replace(source, called=str(Path(*source.parts[-depth:])))
                    break
        apart.append(source)
    return tuple(apart)


def to_json(value: Any) -> str:
    """JSON that does not depend on the order of keys; what cannot be written is an error that names it."""

    def plain(member: Any) -> Any:
        if isinstance(member, Mapping):
            return dict(member)
        if hasattr(member, "tolist"):
            return member.tolist()
        if isinstance(member, Path):
            return str(member)
        raise InputError(f"compare: {member!r} cannot be a setting of a comparison: use numbers, strings and lists")

    return json.dumps(value, sort_keys=True, default=plain)


def digest(value: Any) -> str:
    """A short name for a value, other for any other value.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}), digest({"a": 1}) == digest({"a": 2})
    (True, False)
    """
    return hashlib.sha256(to_json(value).encode()).hexdigest()[:24]


def _files_below(path: Path) -> list[Path]:
    return sorted(path.rglob("*")) if path.is_dir() else [path]


def _known_as(file: Path) -> list[Any]:
    return [file.name, digest_of_file(file)]


def digest_of_file(path: Path) -> str:
    """A digest of a file's content, of a very large file that of its size and time of change."""
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
    if data.rule is not None:
        summed.update(to_json(data.rule.describe()).encode())
    ordering = (samples.group, samples.time)
    for array in (samples.present, data.y, data.split, samples.weight, *samples.lengths.values(), *ordering):
        if array is not None:
            text = array.dtype.kind in "OUS"
            summed.update(to_json(array.tolist()).encode() if text else np.ascontiguousarray(array).data)
    return summed.hexdigest()[:24]
