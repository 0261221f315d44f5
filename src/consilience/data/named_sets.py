"""The named data sets: what each is, under which licence, which files it needs and from whom they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from consilience.core.errors import InputError, MissingDataError
from consilience.core.registry import Registry
from consilience.core.settings import check_settings, checked, settings_of
from consilience.data.dataset import DataSet

DATA_VARIABLE = "CONSILIENCE_DATA"


@dataclass(frozen=True)
class Files:
    """Files that a data set is read from: what they are, who offers them, and the folder they lie in.

    A name that ends in a slash is a folder of files.
    """

    folder: str
    names: tuple[str, ...]
    what: str
    origin: str
    licence: str

    def check(self, found: Path) -> None:
        """Say what to get when a file is not in the folder found."""
        missing = [
            name
            for name in self.names
            if not ((found / name).is_dir() if name.endswith("/") else (found / name).is_file())
        ]
        if missing:
            raise self.missing(missing, f"was not found in {found}")

    def missing(self, names: Sequence[str], why: str) -> MissingDataError:
        """One sentence: what to get, from whom, under which licence, where to put it."""
        return MissingDataError(
            f"{self.what} {why}: get {', '.join(names)} from {self.origin} (licence: {self.licence}), put "
            f"{'it' if len(names) == 1 else 'them'} into DIR/{self.folder} and give DIR as data_dir, or in the "
            f"environment variable {DATA_VARIABLE}"
        )


@dataclass(frozen=True)
class NamedSet:
    """A data set that can be loaded by name."""

    name: str
    description: str
    licence: str
    make: Callable[..., DataSet]
    files: Files | None = None

    @property
    def built_in(self) -> bool:
        """Whether it needs no files."""
        return self.files is None

    @property
    def options(self) -> tuple[str, ...]:
        """The names of its options."""
        return tuple(settings_of(self.make))

    def load(self, data_dir: str | os.PathLike[str] | None, options: Mapping[str, Any]) -> DataSet:
        """Make the set, from its files if it needs any."""
        options = check_settings(f"data set {self.name!r}", self.make, options, noun="option")
        arguments = [] if self.files is None else [find_folder(self.files, data_dir)]
        try:
            data = self.make(*arguments, **options)
        except InputError as error:
            if type(error) is not InputError or str(error).startswith("data set"):
                raise
            raise InputError(f"data set {self.name!r}: {error}") from error
        reading = {**data.reading, "options": dict(options)}
        return replace(data, name=self.name, description=self.description, licence=self.licence, reading=reading)

    def available(self, data_dir: str | os.PathLike[str] | None = None) -> bool:
        """Whether it could be loaded now: it needs no files, or they are where they should be."""
        try:
            return self.files is None or find_folder(self.files, data_dir).is_dir()
        except MissingDataError:
            return False


def find_folder(files: Files, data_dir: str | os.PathLike[str] | None) -> Path:
    """The folder these files lie in, below `data_dir` or what the environment names."""
    root = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE)
    if not root:
        raise files.missing(files.names, "does not come with the library")
    folder = Path(root) / files.folder
    files.check(folder)
    return folder


_Make = TypeVar("_Make", bound=Callable[..., DataSet])
DATA_SETS: Registry[NamedSet] = Registry("data set", packages=("consilience.data.sets",), group="consilience.data_sets")


def register(name: str, *, description: str, licence: str = "", files: Files | None = None) -> Callable[[_Make], _Make]:
    """Put a data set into the registry under a name, from the file that makes it.

    The function takes its options as keyword-only arguments and, where `files` are named, their folder first.
    """

    def enter(make: _Make) -> _Make:
        make = checked(make)
        DATA_SETS.add(name, NamedSet(name, description, files.licence if files else licence, make, files))
        return make

    return enter


def registry() -> dict[str, NamedSet]:
    """All named data sets, in alphabetical order."""
    return dict(DATA_SETS)


def data_names() -> list[str]:
    """The names that `load_data` knows.

    >>> data_names()[:3]
    ['av-mnist', 'avmnist-predictions', 'breast-tcga']
    """
    return DATA_SETS.names()


def list_sets(data_dir: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Every named set in plain values; `available` says whether its files are found now. Nothing is read.

    >>> [one["name"] for one in list_sets() if one["built_in"]]
    ['captions', 'digits', 'gaussians', 'progressive-synthetic', 'sequences']
    """
    return [
        {
            "name": name,
            "description": entry.description,
            "licence": entry.licence,
            "built_in": entry.built_in,
            "available": entry.available(data_dir),
        }
        for name, entry in DATA_SETS.items()
    ]
