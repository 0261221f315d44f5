"""The graphs of the live page, computed by Node as in a browser, against onnxruntime on graphs of one node."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'consilience[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from onnx import TensorProto, helper  # noqa: E402

import consilience.live  # noqa: E402
from consilience.core.errors import UnsupportedError  # noqa: E402
from consilience.live.graph_json import Block, graph_json, known_operations  # noqa: E402

node = shutil.which("node")
needs_node = pytest.mark.skipif(node is None, reason="needs Node.js, which runs the page's script: nodejs.org")
SCRIPT = Path(consilience.live.__file__).with_name("templates") / "graph.js"
RUN = """
const asked = JSON.parse(require("fs").readFileSync(0));
const raw = Buffer.from(asked.block, "base64");
const bytes = raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength);
const plain = (value) => (Number.isFinite(value) ? value : String(value).replace("Infinity", "inf").toLowerCase());
console.log(JSON.stringify(asked.graphs.map(([graph, inputs]) => {
  graph.constants = readTensors(graph.constants, bytes);
  const found = runGraph(graph, readTensors(inputs, bytes));
  return Object.values(found).map(({ dims, data }) => [dims, Array.from(data, plain)]);
})));
"""
TYPES = {"float32": 1, "float64": 11, "int64": 7, "bool": 9}  # as onnx.TensorProto numbers them


def run_in_node(graphs, block):
    """The outputs of graphs (graph, inputs) as arrays of 64-bit numbers."""
    asked = {"graphs": graphs, "block": base64.b64encode(bytes(block.content)).decode()}
    done = subprocess.run(
        [str(node), "-e", SCRIPT.read_text(encoding="utf-8") + RUN],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        [np.array(data, dtype=float).reshape(dims) for dims, data in outputs] for outputs in json.loads(done.stdout)
    ]


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def whole(*values):
    return np.array(values, dtype=np.int64)


def flags(*shape):
    return random(*shape) > 0


# Operation, inputs, which of them are constants, attributes, number of outputs.
CASES = [
    *((op, [random(2, 1, 3), random(4, 1, seed=1)], (), {}, 1) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    *(
        (op, [whole(1, -7, 9).reshape(3, 1), whole(2, 3)], (), {}, 1)
        for op in ("Div", "Mul", "Less", "Equal", "Greater")
    ),
    ("Pow", [np.abs(random(3, 2)), np.float32([2, 0.5])], (), {}, 1),
    *((op, [random(3, 4)], (), {}, 1) for op in ("Neg", "Abs", "Exp", "Sign", "Tanh", "Sigmoid", "Relu", "Softplus")),
    *((op, [np.abs(random(3, 4)) + 0.1], (), {}, 1) for op in ("Log", "Sqrt", "Reciprocal", "Floor")),
    *((op, [np.float32([1, np.nan, np.inf, -np.inf])], (), {}, 1) for op in ("IsNaN", "IsInf")),
    *((op, [flags(3, 1), flags(2)], (), {}, 1) for op in ("And", "Or")),
    ("Not", [flags(4)], (), {}, 1),
    *((op, [random(2, 3), random(3, seed=1)], (), {}, 1) for op in ("LessOrEqual", "GreaterOrEqual")),
    ("Where", [flags(3, 1), random(4), random(2, 1, 1)], (), {}, 1),
    ("Clip", [random(3, 3), np.float32(-0.5), np.float32(0.5)], (1, 2), {}, 1),
    ("Shape", [random(2, 3, 4)], (), {"start": 1}, 1),
    ("Reshape", [random(2, 3, 4), whole(0, -1)], (1,), {}, 1),
    ("Unsqueeze", [random(2, 3), whole(0, -1)], (1,), {}, 1),
    ("Squeeze", [random(2, 1, 3), whole(1)], (1,), {}, 1),
    ("Transpose", [random(2, 3, 4)], (), {"perm": [2, 0, 1]}, 1),
    ("Expand", [random(2, 1), whole(3, 1, 4)], (1,), {}, 1),
    ("Concat", [random(2, 3), random(2, 1)], (), {"axis": -1}, 1),
    ("Slice", [random(4, 5), whole(1, -1), whole(3, -6), whole(0, 1), whole(1, -2)], (1, 2, 3, 4), {}, 1),
    ("Slice", [random(4, 5), whole(0), whole(2**63 - 1), whole(1)], (1, 2, 3), {}, 1),
    ("Gather", [random(3, 4), whole(2, -1, 0).reshape(1, 3)], (), {"axis": 1}, 1),
    ("GatherElements", [random(3, 4), whole(1, -1, 0, 2).reshape(2, 2)], (), {"axis": 1}, 1),
    ("GatherND", [random(2, 3, 4), whole(1, 0, -1, 2).reshape(2, 2)], (), {}, 1),
    ("GatherND", [random(2, 3, 4), whole(1, 2).reshape(2, 1)], (), {"batch_dims": 1}, 1),
    ("ScatterND", [random(4, 3), whole(1, 3).reshape(2, 1), random(2, 3, seed=1)], (), {}, 1),
    ("ScatterElements", [random(3, 4), whole(1, 0, 3).reshape(3, 1), random(3, 1, seed=1)], (), {"axis": 1}, 1),
    ("NonZero", [flags(3, 4)], (), {}, 1),
    ("TopK", [random(3, 5), whole(2)], (1,), {"largest": 0}, 2),
    ("TopK", [random(4, 3), whole(2)], (1,), {"axis": 0}, 2),
    ("ArgMax", [random(3, 5)], (), {"axis": 1, "keepdims": 0}, 1),
    *((f"Reduce{name}", [np.abs(random(2, 3, 4)), whole(0, 2)], (1,), {}, 1) for name in ("Sum", "Mean", "Max", "Min")),
    *((f"Reduce{name}", [random(2, 3), whole(1)], (1,), {"keepdims": 0}, 1) for name in ("L2", "LogSumExp", "Prod")),
    *((f"Reduce{name}", [random(2, 3)], (), {}, 1) for name in ("Sum", "SumSquare")),
    ("CumSum", [random(2, 3), whole(1)[0]], (1,), {}, 1),
    ("Softmax", [random(2, 3, 4)], (), {"axis": 1}, 1),
    ("LogSoftmax", [30 * random(2, 3)], (), {}, 1),
    ("LayerNormalization", [random(2, 4), random(4, seed=1), random(4, seed=2)], (), {"epsilon": 1e-3}, 1),
    ("Gemm", [random(3, 2), random(4, 3, seed=1), random(4, seed=2)], (), {"transA": 1, "transB": 1, "alpha": 0.5}, 1),
    ("MatMul", [random(2, 1, 3, 4), random(5, 4, 2, seed=1)], (), {}, 1),
    ("MatMul", [random(3), random(3, 2, seed=1)], (), {}, 1),
    ("MatMul", [random(2, 3), random(3, seed=1)], (), {}, 1),
    ("Einsum", [random(2, 3), random(4, 3, 5, seed=1)], (), {"equation": "bi,kij->kbj"}, 1),
    ("Einsum", [random(3, 3)], (), {"equation": "ii->i"}, 1),
    ("Cast", [np.float32([1.7, -1.7, 0])], (), {"to": TensorProto.INT64}, 1),
    ("Cast", [np.float32([1.7, -1.7, 0])], (), {"to": TensorProto.BOOL}, 1),
    ("Range", [whole(1)[0], whole(7)[0], whole(2)[0]], (), {}, 1),
    ("Split", [random(2, 5), whole(2, 3)], (1,), {"axis": 1}, 2),
    ("Identity", [random(2)], (), {}, 1),
]


def save(path, op, values, constant, attributes, outputs):
    names = [f"x{place}" for place in range(len(values))]
    found = [f"y{place}" for place in range(outputs)]
    types = [TYPES[np.asarray(value).dtype.name] for value in values]
    free = [place for place in range(len(values)) if place not in constant]
    graph = helper.make_graph(
        [helper.make_node(op, names, found, **attributes)],
        "one",
        [
            helper.make_tensor_value_info(names[p], types[p], [f"d{p}{d}" for d in range(np.ndim(values[p]))])
            for p in free
        ],
        [helper.make_empty_tensor_value_info(name) for name in found],
        [onnx.numpy_helper.from_array(np.asarray(values[place]), names[place]) for place in constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    # The types of outputs follow from the node.
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return {names[place]: np.asarray(values[place]) for place in free}


@needs_node
def test_every_operation_gives_what_onnxruntime_gives(tmp_path):
    block, graphs, expected = Block(), [], []
    for number, (op, values, constant, attributes, outputs) in enumerate(CASES):
        path = tmp_path / f"{number}.onnx"
        given = save(path, op, values, constant, attributes, outputs)
        expected.append(onnxruntime.InferenceSession(str(path)).run(None, given))
        graph = graph_json(path, block)
        # Node by node: a graph whose nodes were all folded would show nothing.
        assert [each[0] for each in graph["nodes"]] == [op], op
        graphs.append([graph, {name: block.tensor(array) for name, array in given.items()}])
    for (op, *_), wanted, found in zip(CASES, expected, run_in_node(graphs, block), strict=True):
        for one, other in zip(wanted, found, strict=True):
            assert other.shape == one.shape, op
            np.testing.assert_allclose(other, one.astype(float), rtol=1e-5, atol=1e-6, err_msg=op)


def test_all_operations_but_those_of_sequences_are_tried():
    tried = {case[0] for case in CASES}
    assert known_operations() - tried == {"Sum", "Size", "Flatten", "ConstantOfShape", "SplitToSequence", "SequenceAt"}


def test_an_operation_that_the_page_does_not_know_is_named(tmp_path):
    save(tmp_path / "odd.onnx", "Erf", [random(2)], (), {}, 1)
    with pytest.raises(UnsupportedError, match=r"cannot compute these operations of odd\.onnx: 'Erf'"):
        graph_json(tmp_path / "odd.onnx", Block())


def test_equal_arrays_are_stored_once():
    block = Block()
    places = [block.tensor(random(5, 4))["at"] for _ in range(2)] + [block.tensor(random(5, 4, seed=1))["at"]]
    assert places[0] == places[1] != places[2]
    assert len(block.content) == 2 * 5 * 4 * 4
    assert block.tensor(np.float32([np.nan, -np.inf]))["values"] == ["nan", "-inf"]
