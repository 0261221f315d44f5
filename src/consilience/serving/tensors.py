"""Tensors of the Open Inference Protocol v2, in JSON and in its binary extension, as NumPy arrays."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.core.errors import listed, show
from consilience.serving.refusals import malformed

# Of the protocol → of NumPy. BYTES are strings, each after its length in 32 bits.
DATATYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype("bool"),
    "UINT8": np.dtype("uint8"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("int8"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
_MOST_DIMENSIONS = 8


def read_tensor(tensor: Any, binary: memoryview | None, most_bytes: int) -> tuple[str, np.ndarray]:
    """Return name and values of one input of an inference request.

    Args:
        tensor: Its object, with name, shape, datatype, and data unless it is binary.
        binary: What follows the JSON of the request, if the tensor is binary.
        most_bytes: The largest array that is made.

    Returns:
        The name, and an array of the shape that is stated; strings as objects. null in JSON becomes NaN.

    Raises:
        Refusal: Something is missing, of a wrong type, or does not agree.
    """
    if not isinstance(tensor, Mapping):
        raise malformed(f"an input must be an object with name, shape, datatype and data, got {show(tensor)}")
    name, datatype = tensor.get("name"), tensor.get("datatype")
    if not isinstance(name, str) or not 0 < len(name) <= 256:
        raise malformed(f"an input must have a name of 1 to 256 characters, got {show(name)}")
    if datatype != "BYTES" and (not isinstance(datatype, str) or datatype not in DATATYPES):
        raise malformed(
            f"input {show(name)}: datatype must be one of {', '.join(DATATYPES)} or BYTES, got {show(datatype)}"
        )
    shape = _read_shape(name, tensor.get("shape"), datatype, most_bytes)
    if binary is not None:
        if "data" in tensor:
            raise malformed(f"input {show(name)} has data both in JSON and in binary: leave one out")
        return name, _from_bytes(name, binary, datatype, shape)
    if "data" not in tensor:
        raise malformed(f"input {show(name)} has no data")
    return name, _from_list(name, tensor["data"], datatype, shape)


def write_tensor(name: str, values: np.ndarray, binary: bool) -> tuple[dict[str, Any], bytes | None]:
    """Return the object of one output, and its bytes if it is binary.

    >>> write_tensor("label", np.array(["ok", "leak"]), binary=False)[0]
    {'name': 'label', 'datatype': 'BYTES', 'shape': [2], 'data': ['ok', 'leak']}
    >>> write_tensor("label", np.array(["ok"]), binary=True)[1]
    b'\\x02\\x00\\x00\\x00ok'
    """
    datatype = datatype_of(values)
    described: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(values.shape)}
    if not binary:
        return described | {"data": values.ravel().tolist()}, None
    if datatype == "BYTES":
        encoded = [str(value).encode("utf-8", "backslashreplace") for value in values.ravel()]
        content = b"".join(struct.pack("<I", len(each)) + each for each in encoded)
    else:
        content = np.ascontiguousarray(values, dtype=DATATYPES[datatype]).tobytes()
    return described | {"parameters": {"binary_data_size": len(content)}}, content


def datatype_of(values: np.ndarray) -> str:
    """Return the name of an array's type in the protocol: BYTES for strings."""
    return next((name for name, dtype in DATATYPES.items() if values.dtype == dtype), "BYTES")


def _read_shape(name: str, shape: Any, datatype: str, most_bytes: int) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise malformed(f"input {show(name)}: shape must be a list of whole numbers ≥ 0, got {show(shape)}")
    if not 1 <= len(shape) <= _MOST_DIMENSIONS:
        raise malformed(f"input {show(name)}: shape must have 1 to {_MOST_DIMENSIONS} sizes, got {len(shape)}")
    size = 1 if datatype == "BYTES" else DATATYPES[datatype].itemsize
    if math.prod(shape) * size > most_bytes:
        raise malformed(f"input {show(name)}: a tensor of shape {show(shape)} is larger than a request may be")
    return tuple(shape)


def _from_bytes(name: str, binary: memoryview, datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    if datatype == "BYTES":
        return _strings(name, bytes(binary), count).reshape(shape)
    dtype = DATATYPES[datatype]
    if len(binary) != count * dtype.itemsize:
        raise malformed(
            f"input {show(name)}: {datatype} of shape {list(shape)} takes {count * dtype.itemsize} bytes, and "
            f"binary_data_size is {len(binary)}"
        )
    values = np.frombuffer(binary, dtype=np.uint8 if datatype == "BOOL" else dtype)
    if datatype == "BOOL" and (values > 1).any():
        raise malformed(f"input {show(name)}: a BOOL must be the byte 0 or 1")
    # A copy, in the byte order of this machine, that does not keep the whole request in memory.
    return values.astype(dtype.newbyteorder("=")).reshape(shape)


def _strings(name: str, content: bytes, count: int) -> np.ndarray:
    found: list[str] = []
    place = 0
    while place < len(content):
        length = int.from_bytes(content[place : place + 4], "little")
        if place + 4 + length > len(content):
            raise malformed(f"input {show(name)}: the bytes of string {len(found)} are cut off")
        try:
            found.append(content[place + 4 : place + 4 + length].decode("utf-8"))
        except UnicodeDecodeError as error:
            raise malformed(f"input {show(name)}: string {len(found)} is not UTF-8") from error
        place += 4 + length
    if len(found) != count:
        raise malformed(f"input {show(name)}: its shape has {count} strings, and there are {len(found)}")
    strings = np.empty(count, dtype=object)
    strings[:] = found
    return strings


def _from_list(name: str, data: Any, datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    if not isinstance(data, list):
        raise malformed(f"input {show(name)}: data must be a list, got {show(data)}")
    flat = _flatten(name, data, len(shape))
    if len(flat) != math.prod(shape):
        raise malformed(
            f"input {show(name)}: shape {list(shape)} has {math.prod(shape)} values, and data has {len(flat)}"
        )
    if datatype == "BYTES":
        wrong = next((value for value in flat if value is not None and not isinstance(value, str)), None)
        if wrong is not None:
            raise malformed(f"input {show(name)}: BYTES must be strings, got {show(wrong)}")
        strings = np.empty(len(flat), dtype=object)
        strings[:] = flat
        return strings.reshape(shape)
    dtype = DATATYPES[datatype]
    kinds = {"f": (int, float, type(None)), "b": (bool,)}.get(dtype.kind, (int,))
    allowed = {bool} if dtype.kind == "b" else set(kinds)
    if others := {type(value) for value in flat} - allowed:
        wrong = next(value for value in flat if type(value) in others)
        null = " or null" if dtype.kind == "f" else ""
        raise malformed(f"input {show(name)}: {datatype} must be {_WORDS[dtype.kind]}{null}, got {show(wrong)}")
    try:
        with np.errstate(over="raise"):
            if dtype.kind in "iu" and len(flat):
                limits = np.iinfo(dtype)
                if min(flat) < limits.min or max(flat) > limits.max:
                    raise OverflowError
            values = np.array(flat, dtype=np.float64 if dtype.kind == "f" else dtype)
            return values.astype(dtype.newbyteorder("=")).reshape(shape)
    except (OverflowError, FloatingPointError, ValueError, TypeError) as error:
        raise malformed(f"input {show(name)}: a value is outside the range of {datatype}") from error


_WORDS = {"f": "numbers", "i": "whole numbers", "u": "whole numbers ≥ 0", "b": "true or false"}


def _flatten(name: str, data: list[Any], deepest: int) -> list[Any]:
    """The values of nested lists; rows of different lengths are found by their number alone, as the protocol has it."""
    for _ in range(deepest):
        nested = [isinstance(each, list) for each in data]
        if not any(nested):
            return data
        if not all(nested):
            raise malformed(f"input {show(name)}: data mixes lists and values on one level")
        if len({len(each) for each in data}) > 1:
            raise malformed(f"input {show(name)}: rows of different lengths are no tensor")
        data = [value for each in data for value in each]
    if any(isinstance(each, list) for each in data):
        raise malformed(f"input {show(name)}: data is nested deeper than its shape, which has {deepest} sizes")
    return data


def split_binary(described: Mapping[str, Any], content: memoryview) -> dict[int, memoryview]:
    """Return, for each input of a request that is binary, its part of what follows the JSON.

    Raises:
        Refusal: The sizes do not add up to the content.
    """
    parts: dict[int, memoryview] = {}
    place = 0
    for number, tensor in enumerate(described.get("inputs") or ()):
        parameters = tensor.get("parameters") if isinstance(tensor, Mapping) else None
        size = parameters.get("binary_data_size") if isinstance(parameters, Mapping) else None
        if size is None:
            continue
        if type(size) is not int or size < 0 or place + size > len(content):
            raise malformed(
                f"input {number}: binary_data_size {show(size)} is more than follows the JSON, {len(content)} bytes"
            )
        parts[number] = content[place : place + size]
        place += size
    if place != len(content):
        raise malformed(
            f"{len(content)} bytes follow the JSON, and the inputs ({listed(list(parts))}) take {place} of them"
        )
    return parts
