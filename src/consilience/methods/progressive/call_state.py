"""The state of a forward pass, kept outside the modules: eight threads may call one model at the same time.

A link, a batch norm or an encoder deep inside a model needs the context and the number of the current pass, which its
arguments do not carry. They are stored here, separately for each thread. `torch.compile` and `torch.export` trace it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


class _Calls(threading.local):
    def __init__(self) -> None:
        self.states: dict[int, Any] = {}


_CALLS = _Calls()


@contextmanager
def call_state(states: Mapping[nn.Module, Any]) -> Iterator[None]:
    """Give modules a state until the end of the block, in this thread only."""
    before = _CALLS.states
    _CALLS.states = {**before, **{id(module): state for module, state in states.items()}}
    try:
        yield
    finally:
        _CALLS.states = before


def state_of(module: nn.Module) -> Any:
    """Return the state that the current call gave a module, or None outside such a call."""
    return _CALLS.states.get(id(module))
