"""An ONNX model as JSON and one block of bytes, which `templates/graph.js` runs in a browser."""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, listed

# Up to so many numbers are written out as JSON; others are a place in the block of bytes.
_WRITTEN_OUT = 8
_LARGEST = 2**53
_ALIGNED = 8  # bytes at which each array begins
_KINDS = {"float32": "float", "float64": "double", "int64": "int", "int32": "int", "bool": "bool"}
_STORED = {"float": "<f4", "double": "<f8", "int": "<i4", "bool": "u1"}
_GRAPH = Path(__file__).with_name("templates") / "graph.js"


class Block:
    """The arrays of all graphs of a page; equal ones are stored once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._places: dict[bytes, int] = {}

    def add(self, array: np.ndarray) -> int:
        """Store an array and return where it begins."""
        data = array.tobytes()
        key = hashlib.sha256(data).digest()
        if key not in self._places:
            self.content.extend(bytes(-len(self.content) % _ALIGNED))
            self._places[key] = len(self.content)
            self.content.extend(data)
        return self._places[key]

    def tensor(self, array: np.ndarray) -> dict[str, Any]:
        """Return JSON values of a tensor: `{kind, dims, values}`, or `{kind, dims, at}` for one in the block.

        Raises:
            UnsupportedError: Its type is none that the page computes with.
        """
        kind = _KINDS.get(array.dtype.name)
        if kind is None:
            raise UnsupportedError(
                f"live page: a graph holds {array.dtype.name} numbers, which a page cannot compute with"
            )
        if kind == "int":  # what a number of JavaScript holds; larger ones stand for "to the end"
            array = array.clip(-_LARGEST, _LARGEST)
        described: dict[str, Any] = {"kind": kind, "dims": list(array.shape)}
        if array.size <= _WRITTEN_OUT or (kind == "int" and np.abs(array).max() >= 2**31):
            return described | {"values": [_plain(value) for value in array.ravel().tolist()]}
        return described | {"at": self.add(np.ascontiguousarray(array, dtype=_STORED[kind]))}


def known_operations() -> frozenset[str]:
    """Return the names of the ONNX operations that a page can compute."""
    return frozenset(re.findall(r"^    ([A-Z]\w+)[(:]", _GRAPH.read_text(encoding="utf-8"), flags=re.MULTILINE))


def graph_json(path: str | Path, block: Block) -> dict[str, Any]:
    """Return the graph of an ONNX file as JSON values, its constants folded.

    Args:
        path: The file.
        block: Where its arrays are stored.

    Returns:
        inputs, outputs · nodes: `[operation, inputs, outputs, attributes]` in order · constants: name → tensor.

    Raises:
        UnsupportedError: It has operations that a page cannot compute.
        InputError: onnxruntime is not installed.
    """
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise InputError("the live page needs onnx and onnxruntime: pip install 'consilience[onnx]'") from error
    graph = _folded(path).graph
    unknown = sorted({node.op_type for node in graph.node} - known_operations())
    if unknown:
        raise UnsupportedError(f"live page: it cannot compute these operations of {Path(path).name}: {listed(unknown)}")
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    names: dict[str, str] = {"": ""}
    kept = [each.name for each in (*graph.input, *graph.output)]

    def short(name: str) -> str:
        if name not in names:
            names[name] = name if name in kept else f"#{len(names)}"
        return names[name]

    def value(attribute: Any) -> Any:
        found = helper.get_attribute_value(attribute)
        if isinstance(found, onnx.TensorProto):
            array = numpy_helper.to_array(found)
            return {"kind": _KINDS[array.dtype.name], "data": array.ravel().tolist()}
        if attribute.name == "to":
            return _KINDS.get(np.dtype(helper.tensor_dtype_to_np_dtype(found)).name, str(found))
        if isinstance(found, bytes):
            return found.decode()
        return list(found) if isinstance(found, list | tuple) else found

    nodes: list[list[Any]] = []
    for node in graph.node:
        attributes = {each.name: value(each) for each in node.attribute}
        nodes.append([node.op_type, [short(n) for n in node.input], [short(n) for n in node.output]])
        if attributes:
            nodes[-1].append(attributes)
    given = {each.name for each in graph.input}
    return {
        "inputs": [each.name for each in graph.input],
        "outputs": [each.name for each in graph.output],
        "nodes": nodes,
        "constants": {short(name): block.tensor(array) for name, array in constants.items() if name not in given},
    }


def _folded(path: str | Path) -> Any:
    """The model after onnxruntime has computed everything that does not depend on the inputs."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)  # the options above come too late for what is said while reading
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def _plain(value: float) -> float | str:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
