"""Equal experts are trained once: what a training learned is kept in memory, and given to the next one that is equal.

The methods of a comparison have many experts in common: `auto` trains those of `bayes-robust` and a network beside
them. Two trainings are equal if everything is equal that decides their numbers: initial weights and structure of the
models, samples, preparation, settings and seed. A digest of all of that is the key, so that no list of methods that go
together is needed, and a setting that differs by a little is another training. What cannot be compared in this way,
such as a module of the user's own, is trained again. Models with a time limit share nothing.

Nothing is written to disk. A process that is killed loses what it kept, and trains it again.
"""

from __future__ import annotations

import copy
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.samples import Samples
from consilience.methods import Method
from consilience.training.training_log import Log

if TYPE_CHECKING:
    from consilience.training.trainer import Trainer

T = TypeVar("T")

# The most memory that is kept; what was not used for longest is dropped first.
MOST_BYTES = 2**29
# Objects within objects, beyond which something contains itself.
_DEEPEST = 60
# Whose objects are described by their attributes. A foreign class may keep what it learns elsewhere.
_KNOWN = ("consilience.", "torch.nn.")


class Kept:
    """What trainings have learned, by the digest of what they learned from.

    Args:
        scope: What these trainings have in common, such as the set and the seed.
        most_bytes: Memory that is kept.

    Attributes:
        found: How often a training was not repeated.
        saved_seconds: How long these trainings took when they ran.
    """

    def __init__(self, scope: Hashable, most_bytes: int):
        self.scope, self.most_bytes = scope, most_bytes
        self.found, self.saved_seconds, self.bytes = 0, 0.0, 0
        self._results: OrderedDict[bytes, tuple[Any, float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def once(self, key: bytes, compute: Callable[[], T], whole: Callable[[T], bool]) -> T:
        """Return what is kept under a key; where nothing is, compute it, and keep it if it is whole."""
        if key in self._results:
            self._results.move_to_end(key)
            result, seconds, _ = self._results[key]
            self.found += 1
            self.saved_seconds += seconds
            return result
        began = time.perf_counter()
        result = compute()
        size = bytes_of(result)
        if size <= self.most_bytes and whole(result):
            self._results[key] = result, time.perf_counter() - began, size
            self.bytes += size
            while self.bytes > self.most_bytes:
                self.bytes -= self._results.popitem(last=False)[1][2]
        return result


class _Active(threading.local):
    """What this thread keeps, and whether it is within a block of `sharing`."""

    kept: Kept | None = None
    on: bool = False


_active = _Active()


@contextmanager
def sharing(scope: Hashable) -> Iterator[Kept]:
    """Within the block, trainings that are equal to earlier ones in blocks of the same scope are not repeated.

    The scope says what may have trainings in common. With another one everything kept so far is dropped.

    >>> with sharing("set, seed 0"):
    ...     first = once(["trees", 1], lambda: np.zeros(2))
    >>> with sharing("set, seed 0") as kept:
    ...     again = once(["trees", 1], lambda: np.zeros(2))
    >>> first is again, kept.found
    (True, 1)
    >>> forget_shared()
    """
    if _active.kept is None or _active.kept.scope != scope:
        _active.kept = Kept(scope, MOST_BYTES)
    kept = _active.kept
    kept.found, kept.saved_seconds = 0, 0.0
    before, _active.on = _active.on, True
    try:
        yield kept
    finally:
        _active.on = before


@contextmanager
def not_sharing(when: bool = True) -> Iterator[None]:
    """Within the block nothing is shared, if `when` holds.

    How far a training comes within a time limit must not depend on what trainings before it have left.

    >>> with sharing("set, seed 0") as kept, not_sharing():
    ...     array = once(["trees", 1], lambda: np.zeros(2))
    >>> len(kept)
    0
    >>> forget_shared()
    """
    before = _active.on
    _active.on = before and not when
    try:
        yield
    finally:
        _active.on = before


def forget_shared() -> None:
    """Drop everything that this thread has kept."""
    _active.kept = None


def once(described: Any, compute: Callable[[], T], whole: Callable[[T], bool] = lambda result: True) -> T:
    """Return what `compute` returns, or within `sharing` what it returned for an equal description before.

    Args:
        described: Everything that the result depends on.
        compute: Computes it. The caller must not change what is returned.
        whole: Whether a result may be kept, unlike that of a training that was interrupted.
    """
    if not _active.on or _active.kept is None:
        return compute()
    try:
        key = digest(described)
    except _Indescribable:
        return compute()
    return _active.kept.once(key, compute, whole)


@dataclass(frozen=True)
class _Trained:
    """What a run of the training loop leaves: the module's state, and its log."""

    state: Mapping[str, Tensor]
    log: Log
    device: torch.device
    training: bool


def train_once(
    trainer: Trainer, module: Method, train: Samples, validation: Samples | None, run: Callable[[], Log]
) -> Log:
    """Train a module by `run`, which returns the log; or give it what an equal training has learned."""
    if not (_active.on and _shareable(trainer, module, train)):
        return run()

    def learn() -> _Trained:
        log = run()
        state = {name: value.detach().clone() for name, value in module.state_dict().items()}
        device = next((value.device for value in state.values()), torch.device("cpu"))
        return _Trained(state, copy.deepcopy(log), device, module.training)

    # Described before it is trained.
    described = ["alone", module, train, validation, trainer.preparation, trainer.settings()]
    learned = once(described, learn, lambda learned: learned.log.whole)
    module.to(learned.device).train(learned.training)
    module.load_state_dict(learned.state)
    return copy.deepcopy(learned.log)


def _shareable(trainer: Trainer, module: Method, train: Samples) -> bool:
    """Whether nothing but a state and a log follows from a training, and several methods have such an expert."""
    alone = not trainer.callbacks and trainer.checkpoint is None and trainer.refit_steps is None
    plain = trainer.precision == "32" and trainer.devices == trainer.nodes == 1
    return module.common_expert and alone and plain and not train.on_disk


class _Indescribable(Exception):
    """Something of which it is not known what decides its numbers."""


@dataclass
class _Digest:
    """A hash of values of any kind, equal for what computes equal numbers; see `digest`."""

    hashed: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=20))

    def add(self, value: Any, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise _Indescribable
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype | torch.device):
            self._say(type(value).__name__, repr(value))
        elif isinstance(value, np.ndarray | np.generic):
            self._add_array(np.asarray(value), depth)
        elif isinstance(value, Tensor):
            self._say("tensor", str(value.dtype), str(value.device), value.requires_grad)
            self._add_array(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy(), depth)
            self._say(tuple(value.shape))
        elif isinstance(value, type):
            self._say("class", value.__module__, value.__qualname__, id(value))
        elif isinstance(value, Mapping):
            self._say(type(value).__name__, len(value))
            for key, each in value.items():
                self.add(key, depth + 1)
                self.add(each, depth + 1)
        elif isinstance(value, Sequence):
            self._say(type(value).__name__, len(value))
            for each in value:
                self.add(each, depth + 1)
        elif isinstance(value, set | frozenset):
            self.add(sorted(digest(each) for each in value), depth + 1)
        else:
            self._add_object(value, depth)

    def _add_array(self, array: np.ndarray, depth: int) -> None:
        self._say("array", array.dtype.str, array.shape)
        if array.dtype.hasobject:
            self.add(array.reshape(-1).tolist(), depth + 1)
        else:
            self.hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def _add_object(self, value: Any, depth: int) -> None:
        cls = type(value)
        if not cls.__module__.startswith(_KNOWN) or not hasattr(value, "__dict__"):
            raise _Indescribable
        attributes = vars(value)
        if isinstance(value, nn.Module):
            hooks = {name for name, own in attributes.items() if name.endswith("hooks") and own}
            if hooks:  # which may do anything
                raise _Indescribable
            attributes = {
                name: own for name, own in attributes.items() if not name.startswith(("_backward", "_forward"))
            }
        self.add(cls, depth + 1)
        self.add({name: own for name, own in attributes.items() if own is not value}, depth + 1)

    def _say(self, *words: Any) -> None:
        self.hashed.update(repr(words).encode())


def digest(value: Any) -> bytes:
    """Return a hash of everything within a value, by content; within one process.

    Raises:
        _Indescribable: For an object that neither this library nor `torch.nn` defines.

    >>> digest([nn.Linear, 1]) == digest([nn.Linear, 1.0])
    False
    """
    digest = _Digest()
    digest.add(value)
    return bytes(digest.hashed.digest())


def bytes_of(value: Any) -> int:
    """Return the size of the arrays and tensors in nested mappings, sequences and dataclasses.

    >>> bytes_of({"a": [np.zeros(3), torch.zeros(2)]})
    32
    """
    if isinstance(value, np.ndarray | Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(bytes_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    return sum(map(bytes_of, vars(value).values())) if hasattr(value, "__dataclass_fields__") else 0
