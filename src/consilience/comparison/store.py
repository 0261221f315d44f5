"""The run folder: one file per finished job, written completely or not at all, readable without the others."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from consilience.comparison.plan import EXTENDABLE, REFITTED, Job
from consilience.core.errors import ConsilienceError, InputError, TrainingError, WriteError
from consilience.core.file_names import file_name, path_inside
from consilience.core.files import atomic_folder, is_temporary, remove_leftovers, write_atomically
from consilience.core.locks import locked
from consilience.version import __version__

PLAN = "plan.json"
_JOBS, _MODELS, _BEST = "jobs", "models", "best"
_LOCK, _OLD_LOCK = ".lock", ".publish.lock"  # the second was left behind by earlier versions
_MARKER = "job.key"  # the file of a published model that names its job
_ABOUT = "about"  # the array of a result file that holds its JSON
# Libraries that figures depend on. Fabric comes in a distribution of its own, or inside one of the two others.
_RECORDED = ("torch", "numpy", "scikit-learn", "lightning-fabric", "lightning", "pytorch-lightning")


class StoreError(WriteError):
    """The run folder cannot be written: no permission, or no space left."""


@dataclass
class Result:
    """The result of a job: `about` in plain values, and arrays of per-sample predictions by name."""

    about: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the job raised."""
        return "error" in self.about


class Store:
    """A folder with `plan.json`, `jobs/KEY.npz` (results), `jobs/KEY.lock` (at work), `models/KEY` and `best`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.jobs = self.folder / _JOBS
        self.models = self.folder / _MODELS

    def settle(self, asked: dict[str, Any], resolve: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the plan of the folder for a call; where there is none, or it is extended, write what `resolve` gives.

        What killed processes left in the folder is removed. Of two processes that begin at the same time with other
        settings, the second is refused.
        """
        self.check(asked)
        written = self.read_plan()
        if written is None or written["asked"] != asked:
            resolved = resolve()  # may take long: before others have to wait
            with self.alone():
                self.check(asked)
                written = self.read_plan()
                if written is None or written["asked"] != asked:
                    self.write_plan(written := resolved)
        self.tidy()
        return written

    def check(self, asked: dict[str, Any]) -> None:
        """Refuse a folder that holds something else, or a comparison made with other settings."""
        existing = self.read_plan()
        if existing is None and self.folder.exists() and not self._only_begun():
            raise InputError(f"{self.folder} exists and holds no comparison: choose another folder with --out")
        for name in (_JOBS, _MODELS, _BEST, _LOCK):
            path_inside(self.folder, name)
        if existing is not None and (differences := _differences(existing, asked)):
            raise InputError(
                f"{self.folder} holds a comparison made with other settings: {'; '.join(differences)}. "
                "Choose another folder with --out, or delete this one"
            )

    def _only_begun(self) -> bool:
        """Whether the folder holds only what a comparison leaves that was killed before its plan was written."""
        if not self.folder.is_dir():
            return False
        ours = (self.jobs, self.folder / _LOCK)
        beyond = [path for path in self.folder.iterdir() if path not in ours and not is_temporary(path)]
        return not beyond and not (self.jobs.is_dir() and any(self.jobs.iterdir()))

    def read_plan(self) -> dict[str, Any] | None:
        """Return the content of `plan.json`, or None where there is no such file.

        Raises:
            InputError: If the file is damaged, or is not the plan of a comparison.
        """
        path = self.folder / PLAN
        try:
            plan = json.loads(path.read_text(encoding="utf-8"))
            intact = isinstance(plan["asked"], dict) and all(_is_job(job) for job in plan["jobs"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, RecursionError):
            intact = False
        if not intact:
            raise InputError(
                f"{path} is damaged, or is not the plan of a comparison. If {self.folder} is a copy, copy it again; "
                "otherwise choose another folder with --out"
            )
        return plan

    def check_unchanged(self, plan: Mapping[str, Any]) -> None:
        """Raise an error if another process has extended the plan since this one read it."""
        if json.dumps(self.read_plan()) != json.dumps(plan):
            raise StoreError(
                f"{self.folder}: another process has changed the plan meanwhile, with other methods, seeds or another "
                "metric. All results are kept; run the comparison again when the other has ended"
            )

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Create the folder, and write `plan.json`."""
        with writing(self.folder):
            self.jobs.mkdir(parents=True, exist_ok=True)
        self.write_text(PLAN, json.dumps(plan, indent=1))

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file of the run folder, completely or not at all."""
        path = path_inside(self.folder, name)
        with writing(self.folder):
            return write_atomically(path, text)

    def tidy(self) -> None:
        """Remove what killed processes left: unfinished files and folders, and locks that nobody holds."""
        with writing(self.folder):
            self.jobs.mkdir(parents=True, exist_ok=True)
            for name in ("", _JOBS, _MODELS, _BEST, "figures"):
                remove_leftovers(path_inside(self.folder, *filter(None, [name])))
            for path in (*self.jobs.glob("*.lock"), *(self.folder / name for name in (_LOCK, _OLD_LOCK))):
                if path.exists():
                    with locked(path, wait=False):
                        pass

    def has(self, job: Job) -> bool:
        """Return whether there is a file with the job's result, without reading it."""
        return self._path(job).exists()

    def read(self, job: Job) -> Result | None:
        """Return a job's result; None where there is no intact file.

        Raises:
            StoreError: If the file may not be read.
        """
        path = self._path(job)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(arrays.pop(_ABOUT).tobytes())
            if about.keys() == {_ABOUT, "arrays"}:  # else a file of an earlier version, which does not list its arrays
                names, about = about["arrays"], about[_ABOUT]
                whole = names == sorted(arrays)
            else:
                whole = True
            # What NumPy does not recognise as an array, it returns as bytes.
            whole = whole and all(isinstance(array, np.ndarray) for array in arrays.values())
            return Result(about, arrays) if whole and isinstance(about, dict) else None
        except Exception:  # whatever a damaged file raises: beside zipfile's errors those of zlib, NumPy's parser, …
            return None

    def done(self, job: Job) -> bool:
        """Return whether the job has an intact result and did not fail."""
        result = self.read(job)
        return result is not None and not result.failed

    def damaged(self, jobs: Iterable[Job]) -> list[Path]:
        """Return the files of results that cannot be read, as in a folder that was copied in part."""
        return [self._path(job) for job in jobs if self.has(job) and self.read(job) is None]

    def read_all(self, jobs: Iterable[Job], name: str) -> dict[str, Result]:
        """Return every job's result by its key; raise a `TrainingError` if one is missing or failed."""
        results = {}
        for job in jobs:
            result = self.read(job)
            if result is None or result.failed:
                why = "it has no readable result" if result is None else result.about["error"]
                raise TrainingError(f"{name} has no result for {job.describe()}: {why}")
            results[job.key] = result
        return results

    def write(self, job: Job, result: Result) -> None:
        """Write a result: to a file beside its place, flushed to disk, then moved."""
        described = {_ABOUT: result.about, "arrays": sorted(result.arrays)}
        about = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
        arrays: dict[str, Any] = {_ABOUT: about, **result.arrays}
        with writing(self.folder):
            write_atomically(path_inside(self.jobs, self._path(job).name), lambda file: np.savez(file, **arrays))

    def discard(self, job: Job) -> None:
        """Remove a result, so that the job is run again."""
        self._path(job).unlink(missing_ok=True)

    def drop_refits(self, kept: Iterable[Job]) -> None:
        """Remove the results and models of refits that others have replaced. The caller holds the lock of `alone`."""
        names = {file_name(job.key) for job in kept}
        for path in self.jobs.glob(f"{REFITTED}*.npz"):
            if path.stem not in names:
                path.unlink(missing_ok=True)
                self.drop_models([Job("", "", 0, "", path.stem)])

    @contextlib.contextmanager
    def claim(self, job: Job) -> Iterator[bool]:
        """Lock a job while working on it; yields False if another process has it."""
        with writing(self.folder), locked(self.jobs / f"{file_name(job.key)}.lock", wait=False) as mine:
            yield mine

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process writes the plan or the best models."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / _LOCK):
                yield

    def model(self, job: Job) -> Path:
        """Return the folder of a job's trained model."""
        return self.models / file_name(job.key)

    def has_model(self, job: Job) -> bool:
        """Return whether a job's trained model is there, whole and unchanged."""
        from consilience.training.model_folder import is_intact

        return is_intact(self.model(job))

    def drop_models(self, jobs: Iterable[Job]) -> None:
        """Delete the models of these jobs; a folder that holds anything else stays."""
        from consilience.training.model_folder import foreign_files

        for job in jobs:
            folder = path_inside(self.folder, _MODELS, file_name(job.key))
            if folder.is_dir() and not foreign_files(folder):
                with writing(self.folder):
                    shutil.rmtree(folder)

    def best(self, label: str, labels: Iterable[str]) -> Path:
        """Return where the best model on a set is published: in `best`, or of several sets in a folder there."""
        others = [other for other in labels if other != label]
        return self.folder.joinpath(_BEST, *([file_name(label, among=others)] if others else []))

    def check_published(self, target: Path) -> None:
        """Raise an error if a folder for a published model holds anything else, which would be lost."""
        from consilience.training.model_folder import foreign_files, is_saved_model

        path_inside(self.folder, *target.relative_to(self.folder).parts)
        if not os.path.lexists(target):
            return
        foreign = foreign_files(target, _MARKER) if target.is_dir() else [target.name]
        if foreign or not ((target / _MARKER).exists() or is_saved_model(target) or not any(target.iterdir())):
            held = f"holds {foreign[0]!r}, which" if foreign else "holds what"
            raise InputError(
                f"{target} {held} is no part of a model of this comparison; it would be replaced by the best model: "
                "move it elsewhere, or choose another folder with --out"
            )

    def publish(self, job: Job, target: Path) -> None:
        """Copy a job's model to `target`, which is replaced in one move. The caller holds the lock of `alone`."""
        if self.published(job, target):
            return
        self.check_published(target)
        with writing(self.folder), atomic_folder(target) as part:
            shutil.copytree(self.model(job), part, dirs_exist_ok=True)
            (part / _MARKER).write_text(job.key, encoding="utf-8")

    def published(self, job: Job, target: Path) -> bool:
        """Return whether the model in `target` is this job's, whole and unchanged."""
        from consilience.training.model_folder import is_intact

        marker = target / _MARKER
        return marker.is_file() and marker.read_bytes() == job.key.encode() and is_intact(target)

    def describe_published(self, target: Path) -> tuple[str, dict[str, Any]] | None:
        """Return the key of the job whose model is in `target`, and what the model says about its training.

        None if there is no whole model. Models of earlier versions say nothing.
        """
        from consilience.training.model_folder import is_intact, read_description

        marker = target / _MARKER
        if not (marker.is_file() and is_intact(target)):
            return None
        extra = read_description(target).get("extra", {})
        return marker.read_text(encoding="utf-8", errors="replace"), dict(extra.get("trained_on", {}))

    def _path(self, job: Job) -> Path:
        return self.jobs / f"{file_name(job.key)}.npz"


def _is_job(described: Any) -> bool:
    """Whether an entry of a plan describes a job."""
    fields = ("source", "method", "data", "key")
    return all(isinstance(described[name], str) for name in fields) and isinstance(described["seed"], int)


def _differences(existing: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """In what a call differs from the comparison in its folder so that finished jobs would not be valid.

    Settings of a method that was not run before, such as a new variant, change no finished job.
    """
    # 1 repeat and no class weights are not written.
    before, now = ({"repeats": 1, "class_weight": None} | described for described in (existing["asked"], asked))
    ran = {job["method"] for job in existing["jobs"]}
    pairs = {name: (before.get(name), value) for name, value in now.items() if name not in (*EXTENDABLE, "settings")}
    for method in sorted(ran):
        old, new = (described.get("settings", {}).get(method, {}) for described in (before, now))
        pairs[f"the settings of {method}"] = (old, new)
    return [f"{name} was {_short(old)}, now {_short(new)}" for name, (old, new) in pairs.items() if old != new]


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into a `StoreError` of one sentence."""
    try:
        yield
    except OSError as error:
        known = isinstance(error, ConsilienceError) and type(error) is not WriteError
        if known or error.errno is None:
            raise
        raise store_error(folder, error.errno) from error


def store_error(folder: Path, number: int) -> StoreError:
    """The error of a run folder that cannot be written, by the number that the operating system gave it."""
    error = StoreError(f"cannot write to {folder}: {os.strerror(number)}. Results already there are kept")
    error.errno = number
    return error


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "…"


def versions_used() -> dict[str, str]:
    """Return the versions of this library, Python and the libraries that numbers depend on, and the platform."""
    return {
        "consilience": __version__,
        "python": platform.python_version(),
        **installed_versions(),
        "platform": platform.platform(terse=True),
    }


def installed_versions() -> dict[str, str]:
    """Return the versions of those libraries that are installed under their own name.

    >>> installed_versions()["torch"].split(".")[0]
    '2'
    """
    found = {}
    for name in _RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
