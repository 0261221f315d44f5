"""One registry class for everything that has a name: methods, encoders, corruptions, data sets, metrics, …"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from consilience.core.errors import ConsilienceError, unknown_name

_Item = TypeVar("_Item")
_Entered = TypeVar("_Entered")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*:?")


class Registry(Generic[_Item]):
    """Items of one kind by name.

    Names are lower-case words joined by hyphens; one that ends in a colon is a family (`pro:`). A second item under a
    name raises an error. Before the first look-up every module of the `packages` is imported, so that what is in them
    registers itself, and so is what other packages declare under the entry point group.

    Args:
        kind: What is registered, as messages call it ("encoder").
        packages: Packages all of whose modules register something.
        group: The entry point group of plugins, such as "consilience.methods"; none if empty.

    Example:
        >>> shapes = Registry[type]("shape")
        >>> @shapes.register("circle")
        ... class Circle: ...
        >>> shapes.find("cirle")
        Traceback (most recent call last):
        consilience.core.errors.UnknownNameError: unknown shape 'cirle': did you mean 'circle'? Known: circle
    """

    def __init__(self, kind: str, *, packages: Sequence[str] = (), group: str = ""):
        self.kind, self.packages, self.group = kind, tuple(packages), group
        self._items: dict[str, _Item] = {}
        self._loaded = not packages and not group

    def register(self, name: str) -> Callable[[_Entered], _Entered]:
        """Return a decorator that enters a class or function under a name and returns it unchanged."""

        def enter(item: _Entered) -> _Entered:
            self.add(name, item)  # type: ignore[arg-type]
            return item

        return enter

    def add(self, name: str, item: _Item) -> None:
        """Enter an item under a name.

        Raises:
            ConsilienceError: If the name is malformed or taken.
        """
        if not _NAME.fullmatch(name):
            raise ConsilienceError(f"{self.kind} name {name!r} must be lower-case words joined by hyphens")
        if name in self._items:
            known, new = (getattr(each, "__qualname__", repr(each)) for each in (self._items[name], item))
            raise ConsilienceError(f"{self.kind} {name!r} is registered twice: {known} and {new}")
        self._items[name] = item

    def remove(self, name: str) -> None:
        """Forget an item, for tests and notebooks that register a name again."""
        self._items.pop(name, None)

    def find(self, name: str, hint: str = "") -> _Item:
        """Return the item of a name.

        Args:
            name: What is looked for.
            hint: A sentence that is added to the message, such as what the name was chosen for.

        Raises:
            UnknownNameError: If there is none; the nearest name is suggested.
        """
        items = self.items()
        if name not in items:
            raise unknown_name(self.kind, name, items, hint)
        return items[name]

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        return list(self.items())

    def items(self) -> dict[str, _Item]:
        """Return all items by name, in alphabetical order."""
        self._load()
        return dict(sorted(self._items.items()))

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.items())

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # first: a module that is being imported may look something up
        try:
            for package in self.packages:
                import_all(package)
            for plugin in entry_points(group=self.group) if self.group else ():
                try:
                    plugin.load()
                except Exception as error:
                    raise ConsilienceError(
                        f"the plugin {plugin.name!r} ({plugin.value}) of entry point group {self.group!r} failed to "
                        f"load: {type(error).__name__}: {error}. Mend or uninstall it"
                    ) from error
        except BaseException:
            self._loaded = False
            raise


def import_all(package: str) -> None:
    """Import every module of a package."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
