"""A traced graph as an ONNX file: inputs that may be left out, categories as strings, and metadata."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from consilience.exporting.graph import CODES, STRINGS, Input
from consilience.exporting.raw_inputs import EMPTY, UNKNOWN

PRESENT = "present"
_INSIDE = "inside "  # begins the names of what the inputs become


def to_onnx(program: Any, inputs: Sequence[Input], outputs: Sequence[str]) -> Any:
    """Translate an exported program into an ONNX model (`onnx.ModelProto`), whose inputs are all required."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what the translation does inside
        translated = torch.onnx.export(
            program,
            (),
            dynamo=True,
            verbose=False,
            optimize=False,  # the runtime does, and the rewriting of torch 2.13 loses constants of clamped numbers
            input_names=[_INSIDE + one.name for one in inputs] + [_INSIDE + PRESENT],
            output_names=list(outputs),
            custom_translation_table={torch.ops.aten.logaddexp.default: _log_of_sum},
        )
    assert translated is not None
    return translated.model_proto


def _log_of_sum(first: Any, second: Any) -> Any:
    """log(eᵃ + eᵇ) in ONNX operations; the translation of torch takes both exponentials, which overflow and vanish."""
    from onnxscript import opset18 as op

    largest, apart = op.Max(first, second), op.Abs(op.Sub(first, second))
    one: Any = op.CastLike(op.Constant(value_float=1.0), first)  # type: ignore[type-var]  # its types are a union
    return op.Where(op.IsNaN(apart), largest, op.Add(largest, op.Log(op.Add(one, op.Exp(op.Neg(apart))))))


def open_inputs(model: Any, inputs: Sequence[Input], modalities: int, steps: Mapping[str, str]) -> list[Input]:
    """Let a caller leave inputs out, and give categories as strings.

    Each input gets a default of one row that says "missing", or "present" for the mask. Inside, all are repeated to as
    many rows as the longest input has. Category codes become one input of strings for each column.

    Args:
        model: An ONNX model; it is changed.
        inputs: Of the graph.
        modalities: The number of columns of the mask.
        steps: Input → the symbol of its steps: those with the same symbol are repeated to the longest of them.

    Returns:
        The inputs of the changed model, without the mask.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    opened = _with_strings(inputs)
    nodes: list[Any] = []
    defaults: list[Any] = []
    infos: list[Any] = []
    rows: list[str] = []
    types = {
        torch.float32: TensorProto.FLOAT,
        torch.float64: TensorProto.DOUBLE,
        torch.int64: TensorProto.INT64,
        torch.bool: TensorProto.BOOL,
    }
    one = numpy_helper.from_array(np.array([1], dtype=np.int64), "one")
    axis = numpy_helper.from_array(np.array([1], dtype=np.int64), "axis 1")
    graph.initializer.extend([one, axis])

    def declare(name: str, kind: int, default: Any, shape: Sequence[int | str]) -> None:
        infos.append(helper.make_tensor_value_info(name, kind, shape))
        defaults.append(default)
        nodes.append(helper.make_node("Shape", [name], [f"rows of {name}"], start=0, end=1))
        rows.append(f"rows of {name}")

    joined: dict[str, list[str]] = {}
    for own in opened:
        sizes = ["steps of " + own.name if size is None else size for size in own.shape]
        if own.holds == STRINGS:
            default = helper.make_tensor(own.name, TensorProto.STRING, [1], [b""])  # type: ignore[list-item]
            declare(own.name, TensorProto.STRING, default, [f"rows of {own.name}"])
            codes = helper.make_node(
                "LabelEncoder",
                [own.name],
                [f"codes of {own.name}"],
                domain="ai.onnx.ml",
                keys_strings=["", *own.categories[0]],
                values_int64s=[EMPTY, *range(len(own.categories[0]))],
                default_int64=UNKNOWN,
            )
            unsqueezed = helper.make_node("Unsqueeze", [f"codes of {own.name}", "axis 1"], [f"column {own.name}"])
            nodes.extend([codes, unsqueezed])
            joined.setdefault(_codes_input(inputs, own), []).append(own.name)
            continue
        values = own.empty(1).numpy()
        declare(own.name, types[own.dtype], numpy_helper.from_array(values, own.name), [f"rows of {own.name}", *sizes])
    mask = numpy_helper.from_array(np.ones((1, modalities), dtype=bool), PRESENT)
    declare(PRESENT, TensorProto.BOOL, mask, [f"rows of {PRESENT}", modalities])
    nodes.append(helper.make_node("Max", rows, ["rows"]))
    for symbol in sorted(set(steps.values())):
        own_steps = [name for name, of in steps.items() if of == symbol]
        nodes.extend(helper.make_node("Shape", [name], [f"steps in {name}"], start=1, end=2) for name in own_steps)
        nodes.append(helper.make_node("Max", [f"steps in {name}" for name in own_steps], [f"steps {symbol}"]))
    dimensions = {own.name: len(own.shape) for own in inputs} | {PRESENT: 1}
    for name, count in dimensions.items():
        given = name
        if name in joined:
            for column in joined[name]:
                nodes += _expanded(f"column {column}", f"whole {column}", 1)
            wholes = [f"whole {column}" for column in joined[name]]
            nodes.append(helper.make_node("Concat", wholes, [_INSIDE + name], axis=1))
        else:
            second = f"steps {steps[name]}" if name in steps else "one"
            nodes += _expanded(given, _INSIDE + name, count, second)
    inner = list(graph.node)
    del graph.input[:], graph.node[:], graph.value_info[:]
    graph.input.extend(infos)
    graph.initializer.extend(defaults)
    graph.node.extend([*nodes, *inner])
    if not any(known.domain == "ai.onnx.ml" for known in model.opset_import):
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    _name_rows(graph)
    return opened


def _expanded(name: str, to: str, dimensions: int, second: str = "one") -> list[Any]:
    """Nodes that repeat a tensor of one row to as many rows as there are."""
    from onnx import helper

    shape = f"shape of {to}"
    return [
        helper.make_node(
            "Concat", ["rows", *([second] if dimensions else []), *["one"] * (dimensions - 1)], [shape], axis=0
        ),
        helper.make_node("Expand", [name, shape], [to]),
    ]


def _name_rows(graph: Any) -> None:
    """Call the first dimension of every output "rows"."""
    for output in graph.output:
        output.type.tensor_type.shape.dim[0].dim_param = "rows"


def _with_strings(inputs: Sequence[Input]) -> list[Input]:
    """The inputs with one of strings for each column of categories, by the column's name if no other input has it."""
    taken = [own.name for own in inputs if own.holds != CODES] + [PRESENT]
    taken += [column for own in inputs if own.holds == CODES for column in own.columns]
    opened = []
    for own in inputs:
        if own.holds != CODES:
            opened.append(own)
            continue
        for column, known in zip(own.columns, own.categories):
            name = column if taken.count(column) == 1 else f"{own.modality}.{column}"
            opened.append(replace(own, name=name, holds=STRINGS, shape=(), columns=(column,), categories=(known,)))
    return opened


def _codes_input(inputs: Sequence[Input], strings: Input) -> str:
    return next(own.name for own in inputs if own.holds == CODES and own.modality == strings.modality)


def write_metadata(model: Any, described: Mapping[str, Any]) -> None:
    """Put what is described into the file, as JSON under "consilience", and the class names once more by themselves."""
    from onnx import helper

    helper.set_model_props(
        model,
        {
            "consilience": json.dumps(described),
            "consilience_version": described["version"],
            **({"classes": json.dumps(described["classes"])} if "classes" in described else {}),
        },
    )
    model.producer_name, model.producer_version = "consilience", described["version"]
