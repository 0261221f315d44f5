"""Damage to bytes, to archives and to JSON values, as lists of operations that are JSON values themselves."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from random import Random
from typing import Any

Operation = list[Any]

EDGES = (0, 1, -1, 2, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
WORDS = (
    *("0", "-0", "1e999", "-1e999", "nan", "NaN", "inf", "1,5", '"', "'", ",", ";", "\t", "\n", "\r\n", "\0", "\\"),
    *("9223372036854775808", "1" * 400, "1e-400", "0x1p3", "{", "}", "[" * 50, "]", ":", "- ", "&a", "*a", "!!x", "%"),
    *("\ufeff", "\u2028", "é", "\U0001f600", "true", "null", "None", "<script>", "../", "x" * 3000, "__class__", "1_0"),
)
_FORMATS = ("<b", "<h", ">h", "<i", ">i", "<q", ">q")


def draw_damage(random: Random, most: int = 3) -> list[Operation]:
    """Draw one to `most` operations on bytes; places are shares of the length, so that they fit any content."""
    return [_draw_operation(random) for _ in range(random.randint(1, most))]


def _draw_operation(random: Random) -> Operation:
    kind = random.choice(("flip", "flip", "byte", "byte", "cut", "drop", "repeat", "move", "insert", "word", "number"))
    # Headers are at the beginning of files, and of some formats at their end.
    place = random.choice((random.random(), random.random() * 0.05, 1 - random.random() * 0.05))
    if kind == "flip":
        return [kind, place, 1 << random.randrange(8)]
    if kind == "byte":
        return [kind, place, random.choice((0, 1, 127, 128, 255, random.randrange(256)))]
    if kind == "cut":
        return [kind, place]
    if kind in ("drop", "repeat"):
        return [kind, place, random.choice((1, 2, 4, 8, 64, 1000)), *([random.randint(1, 20)] * (kind == "repeat"))]
    if kind == "move":
        return [kind, place, random.choice((1, 4, 16, 256)), random.random()]
    if kind == "insert":
        return [kind, place, bytes(random.randrange(256) for _ in range(random.randint(1, 8))).hex()]
    if kind == "word":
        return [kind, place, random.choice(WORDS)]
    return [kind, place, random.choice(_FORMATS), random.choice(EDGES)]


def damage(content: bytes, operations: list[Operation]) -> bytes:
    """Apply operations on bytes, one after another.

    >>> damage(b"abcdef", [["cut", 0.5], ["word", 0.0, "x"]])
    b'xabc'
    """
    for kind, share, *given in operations:
        place = min(int(share * len(content)), max(0, len(content) - 1))
        head, tail = content[:place], content[place:]
        if kind == "flip":
            content = head + bytes(byte ^ given[0] for byte in tail[:1]) + tail[1:]
        elif kind == "byte":
            content = head + bytes([given[0]]) + tail[1:]
        elif kind == "cut":
            content = head
        elif kind == "drop":
            content = head + tail[given[0] :]
        elif kind == "repeat":
            content = head + tail[: given[0]] * given[1] + tail
        elif kind == "move":
            rest = head + tail[given[0] :]
            other = int(given[1] * len(rest))
            content = rest[:other] + tail[: given[0]] + rest[other:]
        elif kind == "insert":
            content = head + bytes.fromhex(given[0]) + tail
        elif kind == "word":
            content = head + given[0].encode("utf-8", "surrogatepass") + tail
        else:
            form = given[0]
            bits = 8 * struct.calcsize(form)
            packed = struct.pack(form.upper(), given[1] % 2**bits)
            content = head + packed + tail[len(packed) :]
    return content


def damage_inside(content: bytes, member: float, operations: list[Operation]) -> bytes:
    """Damage what an archive holds, and pack it again with right checksums; of other content, the bytes.

    member: which file of a zip archive, as a share of their number.
    """
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(damage(gzip.decompress(content), operations), 1, mtime=0)
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        chosen = list(files)[min(int(member * len(files)), len(files) - 1)]
        return packed({**files, chosen: damage(files[chosen], operations)})
    if content.startswith(b"\x89PNG"):
        return _damage_png(content, member, operations)
    return damage(content, operations)


def packed(files: dict[str, bytes]) -> bytes:
    """A zip archive of these files, not compressed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def _damage_png(content: bytes, member: float, operations: list[Operation]) -> bytes:
    """Damage one chunk of a PNG, and give it the right length and checksum."""
    chunks, place = [], 8
    while place + 12 <= len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    number = min(int(member * len(chunks)), len(chunks) - 1)
    chunks[number] = (chunks[number][0], damage(chunks[number][1], operations))
    whole = content[:8]
    for kind, data in chunks:
        whole += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return whole


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, -1e308, 10**9, 2**63, -(2**63), 10**30, 1e-320, "", "x"),
    *("../x", "/etc/passwd", "nan", "\ud800", "a\0b", "x" * 500, [], {}, [[]], {"a": {}}, [0], ["x"], [None], [1e308]),
    *(float("nan"), float("inf"), [0] * 1000, [1, [2, [3]]], {"name": "mlp"}, {"0": 1}, "__import__", "frozen:/tmp"),
)


def places_in(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values within a JSON value, its own left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[tuple[str | int, ...]] = []
    for key, part in items:
        found += [(*path, key), *places_in(part, (*path, key))]
    return found


def draw_edits(random: Random, most: int = 2) -> list[Operation]:
    """Draw operations on a JSON value: `[kind, place, …]`; the place is a share of the values, in their order."""
    edits: list[Operation] = []
    for _ in range(random.randint(1, most)):
        kind = random.choice(("set", "set", "set", "delete", "copy", "scale", "twice", "rename", "wrap"))
        place = random.random()
        if kind == "set":
            edits.append([kind, place, random.choice(VALUES)])
        elif kind == "copy":
            edits.append([kind, place, random.random()])
        elif kind == "scale":
            edits.append([kind, place, random.choice((-1, 0, 2, 10, 10**6, 10**12, 1e-9))])
        elif kind == "rename":
            edits.append([kind, place, random.choice(("", "x", "../x", "0", "a\0b", "\ud800", "x" * 300))])
        else:
            edits.append([kind, place])
    return edits


def edited(value: Any, edits: list[Operation]) -> Any:
    """Apply operations to a copy of a JSON value; one that does not fit its place does nothing.

    >>> edited({"a": [1, 2]}, [["set", 0.5, "x"], ["delete", 0.9]])
    {'a': ['x']}
    """
    value = json.loads(json.dumps(value))
    for kind, share, *given in edits:
        places = places_in(value)
        if not places:
            break
        path = places[min(int(share * len(places)), len(places) - 1)]
        around, key = _at(value, path[:-1]), path[-1]
        if kind == "set":
            around[key] = given[0]
        elif kind == "delete":
            del around[key]
        elif kind == "copy":
            around[key] = json.loads(json.dumps(_at(value, places[int(given[0] * len(places))])))
        elif kind == "wrap":
            around[key] = [around[key]]
        elif kind == "rename" and isinstance(around, dict):
            around[given[0]] = around.pop(key)
        elif kind == "twice" and isinstance(around, list):
            around.insert(int(key), around[key])
        elif kind == "scale" and isinstance(around[key], int | float) and not isinstance(around[key], bool):
            around[key] = around[key] * given[0]
    return value


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
