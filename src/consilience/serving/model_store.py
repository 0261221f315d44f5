"""The models of a server: by name, each with its thread; replaced whole by a newer version, or kept."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from consilience.core.errors import ConsilienceError, InputError, show
from consilience.core.samples import Samples
from consilience.encoders import EncoderChoice
from consilience.serving.batching import Batcher
from consilience.serving.request_log import log
from consilience.serving.served_model import ServedModel, unknown_model, version_of
from consilience.serving.server_metrics import ServerMetrics
from consilience.serving.serving_settings import ServingSettings
from consilience.serving.watching import Watcher, watched_metrics

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def named_folders(given: Sequence[str]) -> dict[str, Path]:
    """Return name → folder of `FOLDER` or `NAME=FOLDER`; by default the name is that of the folder.

    Raises:
        InputError: A name is not one of letters, digits, dots, hyphens and underscores, or is given twice.

    Example:
        >>> {name: str(path) for name, path in named_folders(["runs/machines/best", "b=model"]).items()}
        {'best': 'runs/machines/best', 'b': 'model'}
    """
    found: dict[str, Path] = {}
    for each in given:
        name, equals, folder = each.partition("=")
        path = Path(folder if equals else each)
        name = name if equals else path.absolute().name
        if not _NAME.fullmatch(name):
            raise InputError(
                f"serve: {show(name)} cannot be the name of a model in an address: give NAME={path}, with letters, "
                "digits, dots, hyphens and underscores"
            )
        if name in found:
            raise InputError(f"serve: two models are named {name!r}: give one of them another name, NAME={path}")
        found[name] = path
    return found


class ModelStore:
    """Loads models, and gives each request the one that it asks for.

    Args:
        folders: Name → folder.
        settings: Limits.
        references: Name → file of reference rows, for models that a `Monitor` watches.
        false_alarms: Of each monitor.
        encoders: As for `consilience.load`.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        settings: ServingSettings | None = None,
        *,
        references: Mapping[str, str] | None = None,
        false_alarms: float = 0.01,
        encoders: Mapping[str, EncoderChoice] | None = None,
    ):
        self.folders = {name: Path(path) for name, path in folders.items()}
        self.settings, self.metrics = settings or ServingSettings(), ServerMetrics()
        self.references, self.false_alarms, self.encoders = dict(references or {}), false_alarms, encoders
        self._watchers: dict[str, Watcher] = {}
        self._batchers: dict[str, Batcher] = {}
        self._reloading = threading.Lock()
        self._refused: dict[str, tuple[Any, str]] = {}  # what was in a folder that did not load, and the reason
        self.metrics.watched = lambda: watched_metrics(list(self._watchers.values()))
        for name in self.folders:
            self._put(self._load(name))

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return list(self._batchers)

    def batcher(self, name: str) -> Batcher:
        """Return the thread of a model.

        Raises:
            Refusal: There is none of this name (404).
        """
        found = self._batchers.get(name)
        if found is None:
            raise unknown_model(name, self.names)
        return found

    def reload(self, *, only_changed: bool = False) -> dict[str, str]:
        """Load every model anew; one that cannot be loaded, or has not changed, stays as it is.

        Requests that have begun are answered by the model that they began with.

        Args:
            only_changed: Read only the models whose folders have changed. One that did not load is tried again, and
                logged again if its folder or the reason is another than before.

        Returns:
            Name → "loaded", "unchanged" or the reason why the old model is kept.
        """
        results: dict[str, str] = {}
        with self._reloading:
            for name, batcher in list(self._batchers.items()):
                try:
                    if version_of(self.folders[name]) == batcher.model.version:
                        results[name] = "unchanged"
                        self._refused.pop(name, None)
                        if not only_changed:
                            log("reload", model=name, result="unchanged", version=batcher.model.version)
                        continue
                    new = self._load(name)
                except (ConsilienceError, OSError, MemoryError) as error:
                    results[name] = str(error)
                    self._log_kept(name, str(error), again=not only_changed)
                    self.metrics.reloads.add(name, "kept")
                    continue
                self._put(new)
                results[name] = "loaded"
                self._refused.pop(name, None)
                log("reload", model=name, result="loaded", version=new[0].version, before=batcher.model.version)
                self.metrics.reloads.add(name, "loaded")
        return results

    def text_of_metrics(self) -> str:
        """Return `/metrics`."""
        for name, batcher in self._batchers.items():
            self.metrics.waiting.set(batcher.waiting, name)
        return self.metrics.text()

    def close(self, wait: float = 5.0) -> None:
        """Finish what waits, and end all threads."""
        for batcher in self._batchers.values():
            batcher.close(wait)
        for watcher in self._watchers.values():
            watcher.close(wait)

    def _log_kept(self, name: str, reason: str, again: bool) -> None:
        """Log that a model is kept; again: even if that was logged of the same folder before."""
        refused = _content_of(self.folders[name]), reason
        if again or self._refused.get(name) != refused:
            version = self._batchers[name].model.version
            log("reload", "error", model=name, result="kept", version=version, reason=reason)
        self._refused[name] = refused

    def _load(self, name: str) -> tuple[ServedModel, Watcher | None]:
        """A model that has predicted once, and its monitor."""
        model = ServedModel(name, self.folders[name], self.settings.coverage, self.encoders)
        watcher = None
        if name in self.references:
            watcher = Watcher(model, self.references[name], self.false_alarms, self._alarm_of(name))
        return model, watcher

    def _put(self, loaded: tuple[ServedModel, Watcher | None]) -> None:
        model, watcher = loaded
        name = model.name
        before, watched = self._batchers.get(name), self._watchers.get(name)

        def on_batch(samples: list[Samples], requests: int, seconds: float) -> None:
            rows = sum(map(len, samples))
            self.metrics.rows.add(name, amount=rows)
            self.metrics.batch_rows.observe(rows, name)
            self.metrics.batch_requests.observe(requests, name)
            self.metrics.batch_seconds.observe(seconds, name)
            for modality in model.known:
                if absent := sum(int((~part.present_among([modality])).sum()) for part in samples):
                    self.metrics.missing.add(name, modality, amount=absent)
            if watcher is not None:
                watcher.watch(samples)

        self._batchers[name] = Batcher(model, self.settings, on_batch)
        if watcher is not None:
            self._watchers[name] = watcher
        self.metrics.model.forget()
        for each in self._batchers.values():
            self.metrics.model.set(1, each.model.name, each.model.version)
        if before is not None:
            before.close()
        if watched is not None:
            watched.close()

    def _alarm_of(self, name: str) -> Any:
        def tell(event: str, alarm: Any) -> None:
            if event == "alarm":
                log("alarm", "warning", model=name, quantity=alarm.quantity, said=alarm.describe())
            else:
                log(event, "error", model=name, reason=str(alarm))

        return tell


def _content_of(folder: Path) -> frozenset[tuple[str, int, int, int]]:
    """The files of a folder, each with its inode, size and time of change: another set where anything was changed."""
    found = set()
    for path in folder.rglob("*"):
        with suppress(OSError):  # removed since it was listed
            state = path.stat()
            found.add((str(path), state.st_ino, state.st_size, state.st_mtime_ns))
    return frozenset(found)
