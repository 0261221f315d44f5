"""An interpreter for those opcodes of a pickle that make plain data; it calls nothing that its user does not name.

Python's own unpickler takes memory as a file tells it to, and hashes keys that can take for ever. Here lengths and
indices are compared with the size of the file before they are used, and keys are single values.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

_MOST_OPCODES = 20_000_000
_DEEPEST = 100
# Calls may use so many times the bytes of the file: one content can serve many calls, and each copies it.
_MOST_USES = 50
_USES_ALLOWED = 2**20
_SCALARS = (str, bytes, int, float, type(None), np.generic)
_KEYS = (str, bytes, int, float, type(None))
_MARK = object()
_UNSUPPORTED = {
    "i": "an instance of a class",
    "o": "an instance of a class",
    "\x81": "an instance of a class",
    "\x92": "an instance of a class",
    "\x82": "a registered extension",
    "\x83": "a registered extension",
    "\x84": "a registered extension",
    "\x8f": "a set",
    "\x91": "a frozenset",
    "\x97": "a buffer outside of itself",
}


class Refused(Exception):
    """Content that is not allowed; the message says what it is."""


class Buffer(bytes):
    """The content of a bytearray, which is allowed as the content of an array only."""


def read_pickle(content: Any, find: Callable[[str, str], Any], described: tuple[type[Any], ...]) -> Any:
    """The value of a pickle.

    Args:
        content: The bytes of the file, or a memory map of it.
        find: Returns what a module and a name in the file stand for; raises `Refused` if it is unknown.
        described: The types of values that a file describes in two steps, a call and a state: `build(state)` takes
            the state, `settled()` returns the value.

    Raises:
        Refused: The file holds something else than dicts, lists, tuples, arrays, strings, bytes and numbers.
        ValueError: The file is damaged.
    """
    value = _Machine(content, find, described).run()
    _check_data(value)
    return value


class _Machine:
    """The state of one reading: the place in the file, the stack and the memo."""

    def __init__(self, content: Any, find: Callable[[str, str], Any], described: tuple[type[Any], ...]):
        self.content, self.find, self.described = content, find, described
        self.at = self.opcodes = self.used = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for self.opcodes in range(1, _MOST_OPCODES + 1):
            opcode = chr(self.take(1)[0])
            if opcode == ".":
                return self.pop()
            handle = _HANDLERS.get(opcode)
            if handle is None:
                if opcode in _UNSUPPORTED:
                    raise Refused(_UNSUPPORTED[opcode])
                raise ValueError(f"unknown opcode {opcode!r} at byte {self.at - 1}")
            handle(self)
        raise ValueError(f"it has more than {_MOST_OPCODES} opcodes")

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.content):
            raise ValueError(f"it ends within {size} bytes at {self.at}")
        self.at, taken = end, self.content[self.at : end]
        return taken

    def begin_frame(self, size: int) -> None:
        if self.at + size > len(self.content):
            raise ValueError(f"it ends within a frame of {size} bytes")

    def sized(self, form: str) -> bytes:
        """The bytes that follow their number, which is packed as `form` says."""
        return self.take(self.number(form))

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> bytes:
        end = self.content.find(b"\n", self.at)
        if end < 0:
            raise ValueError("it ends within a line")
        return self.take(end + 1 - self.at)[:-1]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value is expected")
        return value.settled() if isinstance(value, self.described) else value

    def top(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"a {type(self.stack[-1]).__name__} where a {kind.__name__} is expected")
        return self.stack[-1]

    def pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while self.stack[-1] is not _MARK:
            values.append(self.pop())
        self.stack.pop()
        return values[::-1]

    def pop_tuple(self, size: int) -> None:
        values = [self.pop() for _ in range(size)]
        self.push(tuple(values[::-1]))

    def put(self, index: int) -> None:
        # A value is made by an opcode before it is numbered, so an honest index is no larger than this.
        if not 0 <= index <= self.opcodes:
            raise ValueError(f"value {index} is numbered where there are {self.opcodes} opcodes")
        if self.stack[-1] is _MARK:
            raise ValueError("a mark is numbered")
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.push(self.memo[index])

    def set_items(self, values: list[Any]) -> None:
        target = self.top(dict)
        if len(values) % 2:
            raise ValueError("a key without a value")
        for key, value in zip(values[::2], values[1::2]):
            if not isinstance(key, _KEYS):
                raise Refused(f"a {type(key).__name__} as a key")
            target[key] = value

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(arguments, tuple) or not callable(function):
            raise ValueError("a call without a function or arguments")
        self.use(arguments)
        self.push(function(*arguments))

    def build(self) -> None:
        state = self.pop()
        if not isinstance(self.stack[-1], self.described):
            raise Refused(f"a state of a {type(self.stack[-1]).__name__}")
        self.use(state if isinstance(state, tuple) else ())
        self.stack[-1].build(state)

    def use(self, arguments: tuple[Any, ...]) -> None:
        self.used += sum(len(given) for given in arguments if isinstance(given, str | bytes | list | tuple))
        if self.used > _MOST_USES * len(self.content) + _USES_ALLOWED:
            raise ValueError("it uses the same content too often")

    def quoted(self) -> str:
        text = self.line().strip()
        if len(text) < 2 or text[0] != text[-1] or text[:1] not in (b"'", b'"'):
            raise ValueError("a string without quotes")
        return codecs.escape_decode(text[1:-1])[0].decode("latin-1")

    def whole(self, text: bytes) -> int | bool:
        return text == b"01" if text in (b"00", b"01") else int(text.removesuffix(b"L"))

    def refer(self, reference: Any) -> None:
        # The text of a list that contains another many times over could be endless.
        what = repr(reference) if isinstance(reference, _KEYS) else f"a {type(reference).__name__}"
        raise Refused(f"a reference to {what} outside of itself")

    def name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a name that is not a string")
        self.push(self.find(module, name))


def _utf8(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def _long(content: bytes) -> int:
    return int.from_bytes(content, "little", signed=True)


def _ignore(_: Any) -> None:
    """Read, and not used."""


def _append(machine: _Machine, values: list[Any]) -> None:
    machine.top(list).extend(values)


def _duplicate(machine: _Machine) -> None:
    value = machine.pop()
    machine.push(value)
    machine.push(value)


def _discard(machine: _Machine) -> None:
    machine.stack.pop()


# Names as in Python's pickletools are in the comments.
_HANDLERS: dict[str, Callable[[_Machine], None]] = {
    "\x80": lambda m: _ignore(m.take(1)),  # PROTO
    "\x95": lambda m: m.begin_frame(m.number("<Q")),
    "(": lambda m: m.push(_MARK),
    "0": _discard,  # POP
    "1": lambda m: _ignore(m.pop_to_mark()),  # POP_MARK
    "2": _duplicate,  # DUP
    "N": lambda m: m.push(None),
    "\x88": lambda m: m.push(True),
    "\x89": lambda m: m.push(False),
    "I": lambda m: m.push(m.whole(m.line())),
    "L": lambda m: m.push(int(m.line().removesuffix(b"L"))),
    "J": lambda m: m.push(m.number("<i")),  # BININT
    "K": lambda m: m.push(m.number("<B")),
    "M": lambda m: m.push(m.number("<H")),
    "\x8a": lambda m: m.push(_long(m.sized("<B"))),  # LONG1
    "\x8b": lambda m: m.push(_long(m.sized("<i"))),  # LONG4
    "F": lambda m: m.push(float(m.line())),
    "G": lambda m: m.push(m.number(">d")),
    "S": lambda m: m.push(m.quoted()),
    "T": lambda m: m.push(m.sized("<i").decode("latin-1")),  # BINSTRING
    "U": lambda m: m.push(m.sized("<B").decode("latin-1")),
    "B": lambda m: m.push(m.sized("<I")),  # BINBYTES
    "C": lambda m: m.push(m.sized("<B")),
    "\x8e": lambda m: m.push(m.sized("<Q")),
    "\x96": lambda m: m.push(Buffer(m.sized("<Q"))),  # BYTEARRAY8
    "\x98": lambda m: None,  # READONLY_BUFFER
    "V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
    "X": lambda m: m.push(_utf8(m.sized("<I"))),  # BINUNICODE
    "\x8c": lambda m: m.push(_utf8(m.sized("<B"))),
    "\x8d": lambda m: m.push(_utf8(m.sized("<Q"))),
    "]": lambda m: m.push([]),
    "l": lambda m: m.push(m.pop_to_mark()),  # LIST
    "a": lambda m: _append(m, [m.pop()]),
    "e": lambda m: _append(m, m.pop_to_mark()),
    ")": lambda m: m.push(()),
    "t": lambda m: m.push(tuple(m.pop_to_mark())),
    "\x85": lambda m: m.pop_tuple(1),
    "\x86": lambda m: m.pop_tuple(2),
    "\x87": lambda m: m.pop_tuple(3),
    "}": lambda m: m.push({}),
    "d": lambda m: _new_dict(m, m.pop_to_mark()),  # DICT
    "s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    "u": lambda m: m.set_items(m.pop_to_mark()),
    "p": lambda m: m.put(int(m.line())),
    "q": lambda m: m.put(m.number("<B")),
    "r": lambda m: m.put(m.number("<I")),
    "\x94": lambda m: m.put(len(m.memo)),  # MEMOIZE
    "g": lambda m: m.get(int(m.line())),
    "h": lambda m: m.get(m.number("<B")),
    "j": lambda m: m.get(m.number("<I")),
    "c": lambda m: m.name(_utf8(m.line()), _utf8(m.line())),  # GLOBAL
    "\x93": lambda m: m.name(*[m.pop(), m.pop()][::-1]),  # STACK_GLOBAL
    "R": lambda m: m.reduce(),
    "b": lambda m: m.build(),
    "P": lambda m: m.refer(m.line().decode("latin-1")),  # PERSID
    "Q": lambda m: m.refer(m.pop()),
}


def _new_dict(machine: _Machine, values: list[Any]) -> None:
    machine.push({})
    machine.set_items(values)


def _check_data(value: Any) -> None:
    """Refuse what is no data, a value that contains itself, and nesting that is too deep.

    A container that occurs many times is looked at once, so the time is proportional to the size of the file.
    """
    depths: dict[int, int] = {}  # of containers that are done: how deep they are
    open_: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, False)]
    while stack:
        item, leaving = stack.pop()
        key = id(item)
        if key in depths or (parts := _parts(item)) is None:
            continue
        if leaving:
            open_.discard(key)
            depths[key] = 1 + max((depths.get(id(part), 0) for part in parts), default=0)
            if depths[key] > _DEEPEST:
                raise Refused(f"values more than {_DEEPEST} levels deep")
        elif key in open_:
            raise Refused("a value that contains itself")
        else:
            open_.add(key)
            stack.append((item, True))
            stack.extend((part, False) for part in parts)


def _parts(value: Any) -> Any:
    """What a container contains; None for a single value."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, np.ndarray):
        return value.ravel().tolist() if value.dtype.kind == "O" else None
    if isinstance(value, _SCALARS) and not isinstance(value, Buffer):
        return None
    raise Refused(f"a {'bytearray' if isinstance(value, Buffer) else type(value).__name__.strip('_')}")
