"""One registry class for everything that has a name: methods, encoders, corruptions, data sets, metrics, …"""

from __future__ import annotations

import importlib
import pkgutil
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, TypeVar

from consilience.core.errors import ConsilienceError, unknown_name

_Item = TypeVar("_Item")
_Registered = TypeVar("_Registered")
_SEPARATORS = {"-": "hyphens", "_": "underscores"}
# One lock for all registries: modules of one may look something up in another while they are imported. Registering
# takes no lock, so that a module can be imported by any thread while another waits for it here.
_LOCK = threading.RLock()


class Registry(Mapping[str, _Item]):
    """A mapping of name → item.

    Names are lower-case words joined by hyphens; a name that ends in a colon is a family (`pro:`).
    Modules are imported when they are needed: looking up `late-probs` imports the module `late_probs` of one of the
    packages if there is such a module and that module registers the name. Otherwise all modules of the packages and
    all plugins are imported.

    Args:
        kind: What is registered, as messages call it ("encoder").
        packages: Packages all of whose modules register something.
        group: The entry point group of plugins, such as "consilience.methods"; none if empty.
        separator: What joins the words of a name, "-" or "_".
        alphabetical: Whether names are listed in alphabetical order, else in the order of registration.

    Example:
        >>> shapes = Registry[type]("shape")
        >>> @shapes.register("circle")
        ... class Circle: ...
        >>> shapes.find("cirle")
        Traceback (most recent call last):
        consilience.core.errors.UnknownNameError: unknown shape 'cirle': did you mean 'circle'? Known: circle
    """

    def __init__(
        self,
        kind: str,
        *,
        packages: Sequence[str] = (),
        group: str = "",
        separator: str = "-",
        alphabetical: bool = True,
    ):
        self.kind, self.packages, self.group, self.alphabetical = kind, tuple(packages), group, alphabetical
        self._separator, self._pattern = separator, re.compile(rf"[a-z][a-z0-9]*({separator}[a-z0-9]+)*:?")
        self._items: dict[str, _Item] = {}
        self._complete = not packages and not group
        self._importing = False

    def register(self, name: str, /, **attributes: Any) -> Callable[[_Registered], _Registered]:
        """Return a decorator that registers a class or function under a name.

        Args:
            name: The name to register.
            **attributes: Set on the class or function.

        Raises:
            ConsilienceError: If the name is malformed, or taken when the decorator is applied.
        """
        self._check(name)

        def decorate(item: _Registered) -> _Registered:
            self.add(name, item)  # type: ignore[arg-type]
            for attribute, value in attributes.items():
                setattr(item, attribute, value)
            return item

        return decorate

    def add(self, name: str, item: _Item) -> None:
        """Register an item under a name.

        Raises:
            ConsilienceError: If the name is malformed or taken.
        """
        self._check(name)
        if name not in self._items and not self._is_own(item):
            self._import_packages()  # a name of ours is taken, imported yet or not
        if name in self._items:
            known, new = (getattr(each, "__qualname__", repr(each)) for each in (self._items[name], item))
            raise ConsilienceError(f"{self.kind} {name!r} is registered twice: {known} and {new}")
        self._items[name] = item

    def find(self, name: object, hint: str = "") -> _Item:
        """Return the item of a name.

        Args:
            name: The name to look up.
            hint: A sentence that is added to the message, such as what the name was chosen for.

        Raises:
            UnknownNameError: If the name is not registered; the nearest name is suggested.
        """
        if not isinstance(name, str) or name not in self:
            raise unknown_name(self.kind, name, self, hint)
        return self._items[name]

    def names(self) -> list[str]:
        """Return all names."""
        return list(self)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Forget at the end of the block what was registered in it, for tests and notebooks."""
        self._import_everything()
        before = dict(self._items)
        try:
            yield
        finally:
            self._items = before

    def remove(self, name: str) -> None:
        """Remove an item, so that its name can be registered again."""
        self._items.pop(name, None)

    def __getitem__(self, name: str) -> _Item:
        if name not in self:
            raise KeyError(name)
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not self._pattern.fullmatch(name):
            return False
        if name not in self._items and not self._complete:
            self._import_module_of(name)
            if name not in self._items:
                self._import_everything()
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        self._import_everything()
        return iter(sorted(self._items) if self.alphabetical else list(self._items))

    def __len__(self) -> int:
        self._import_everything()
        return len(self._items)

    def _check(self, name: str) -> None:
        if not self._pattern.fullmatch(name):
            words = f"lower-case words joined by {_SEPARATORS[self._separator]}"
            raise ConsilienceError(f"{self.kind} name {name!r} must be {words}")

    def _import_module_of(self, name: str) -> None:
        for package in self.packages:
            module = f"{package}.{name.rstrip(':').replace('-', '_')}"
            if find_spec(module) is not None:
                importlib.import_module(module)

    def _is_own(self, item: object) -> bool:
        """Whether an item is one of our own, or being imported by the registry itself."""
        module = getattr(item, "__module__", "")
        return self._importing or not isinstance(item, type) or module.startswith(self.packages)

    def _import_packages(self) -> None:
        for package in self.packages:
            import_all(package)

    def _import_everything(self) -> None:
        if self._complete:
            return
        with _LOCK:
            if self._complete or self._importing:  # another thread was first; or a module looks something up
                return
            self._importing = True
            try:
                self._import_packages()
                for plugin in entry_points(group=self.group) if self.group else ():
                    self._import_plugin(plugin)
                self._complete = True
            finally:
                self._importing = False

    def _import_plugin(self, plugin: EntryPoint) -> None:
        before = dict(self._items)
        try:
            plugin.load()
        except Exception as error:
            self._items = before  # the next try imports the plugin again
            raise ConsilienceError(
                f"the plugin {plugin.name!r} ({plugin.value}) of entry point group {self.group!r} failed to load: "
                f"{type(error).__name__}: {error}. Fix or uninstall it"
            ) from error


def import_all(package: str) -> None:
    """Import every module of a package."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
