"""Files of R's save(), written byte by byte after R Internals, Serialization Formats."""

import struct

import numpy as np

NIL = struct.pack(">i", 254)
IS_OBJECT, HAS_ATTRIBUTES, HAS_TAG = 1 << 8, 1 << 9, 1 << 10


def flags(kind, more=0):
    return struct.pack(">i", kind | more)


def text(value):
    return flags(9) + struct.pack(">i", -1) if value is None else flags(9, 1 << 15) + sized(value.encode())


def sized(content):
    return struct.pack(">i", len(content)) + content


def pairs(values):
    links = [flags(2, HAS_TAG) + flags(1) + text(name) + item for name, item in values.items()]
    return b"".join(links) + NIL


def vector(kind, length, content, attributes):
    more = (HAS_ATTRIBUTES if attributes else 0) | (IS_OBJECT if "class" in attributes else 0)
    return flags(kind, more) + struct.pack(">i", length) + content + (pairs(attributes) if attributes else b"")


def reals(values, **attributes):
    return vector(14, len(values), np.asarray(values, ">f8").tobytes(), attributes)


def integers(values, kind=13, **attributes):
    return vector(kind, len(values), np.asarray(values, ">i4").tobytes(), attributes)


def strings(values, **attributes):
    return vector(16, len(values), b"".join(map(text, values)), attributes)


def items(values, **attributes):
    return vector(19, len(values), b"".join(values), attributes)


def named(values):
    return items(list(values.values()), names=strings(list(values)))


def matrix(values):
    return reals(np.ravel(values, order="F"), dim=integers(np.shape(values)))


def factor(labels):
    levels, codes = np.unique(labels, return_inverse=True)
    return integers(codes + 1, levels=strings(levels.tolist()), **{"class": strings(["factor"])})


def saved(objects, version=2):
    start = struct.pack(">3i", version, 0x40301, 0x20300) + (sized(b"UTF-8") if version == 3 else b"")
    return f"RDX{version}\nX\n".encode() + start + pairs(objects)
