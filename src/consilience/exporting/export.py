"""A trained model as one file that runs without this library: ONNX, or an exported program of torch."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from consilience.bayes.learned_buffers import knowing_values
from consilience.core.errors import ConsilienceError, InputError, UnsupportedError
from consilience.core.files import atomic_file
from consilience.core.tracing import tracing
from consilience.data.files.cell_fills import restore_fills
from consilience.data.files.column_encoding import Encoding
from consilience.data.loading import recipe_columns
from consilience.encoders import Encoder
from consilience.encoders.custom_module import CustomModule
from consilience.encoders.lora import merge_lora
from consilience.exporting.check import check, our_outputs
from consilience.exporting.example_rows import Rows, as_samples, draw_rows
from consilience.exporting.graph import STRINGS, Graph, Input, as_traced, example_of, inputs_of_all, shared_steps
from consilience.exporting.onnx_file import PRESENT, open_inputs, to_onnx, write_metadata
from consilience.exporting.raw_inputs import EMPTY
from consilience.methods import PerModality
from consilience.preparation import Preparation
from consilience.training import Model
from consilience.version import __version__

Format = Literal["onnx", "torch"]
SUFFIXES: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch"}
DESCRIPTION = "consilience.json"  # beside the program in a .pt2
_ROWS = 48  # of the check


def export_model(
    model: Model,
    path: str | Path,
    *,
    gives_weights: bool,
    encodings: Mapping[str, Encoding] | None = None,
    format: Format | None = None,
) -> Path:
    """Write a trained model as one file, after a check that it gives the same numbers.

    Args:
        model: The model.
        path: The file; an existing one is replaced.
        gives_weights: Whether the method weighs its modalities, so that there is trust.
        encodings: Modality → how columns of a table become its features. None: those of the file of training.
        format: "onnx" or "torch". None: by the suffix, `.onnx` or `.pt2`.

    Returns:
        The path.

    Raises:
        UnsupportedError: A part of the model cannot be exported; the message names it.
        OperationError: The exported model differs from this one by more than 1e-5. No file is written.
    """
    path = Path(path)
    chosen = format or SUFFIXES.get(path.suffix)
    if chosen not in SUFFIXES.values():
        raise InputError(f"export: {path.name!r} must end in .onnx or .pt2, or say format='onnx' or format='torch'")
    if chosen == "onnx":
        _need_onnx()
    known = dict(_encodings_of(model)) if encodings is None else dict(encodings)
    known = {name: encoding for name, encoding in known.items() if encoding.text is None}
    method = copy.deepcopy(model.method).cpu().eval()
    merge_lora(method)
    if any(value.dtype is torch.float64 for value in method.parameters()):
        raise UnsupportedError(
            f"export: method {model.name!r} was trained in 64 bits (precision='64'), and graphs compute networks in 32"
        )
    inputs = inputs_of_all(model.preparation, known)
    rows = draw_rows(inputs, model.preparation, known, _ROWS, seed=0)
    expected = our_outputs(model, as_samples(rows, inputs, model.preparation, known), gives_weights)
    graph = Graph(method, model.preparation, known, tuple(expected)).eval().requires_grad_(False)
    program = _trace(model.name, graph, model.preparation)
    graph.inputs = as_traced(graph.inputs, program)
    described = {
        "version": __version__,
        "method": model.name,
        "task": model.task.kind,
        **({"classes": np.asarray(model.task.classes).tolist()} if model.task.classification else {}),
        "modalities": list(graph.names),
        "outputs": list(graph.outputs),
        "missing": "a modality is missing where present is False, all of its numbers are NaN, all its token ids are "
        f"{EMPTY}, or all its cells are empty",
    }
    write = _write_onnx if chosen == "onnx" else _write_torch
    units = {} if model.task.scale is None else {"numbers": model.task.scale, "variance": np.square(model.task.scale)}
    write(path, _Traced(program, graph, described, rows, expected, units))
    return path


class _Traced(NamedTuple):
    """A traced model, and what its file is checked with before it is written."""

    program: Any
    graph: Graph
    described: dict[str, Any]
    rows: Rows
    expected: Mapping[str, np.ndarray]  # output → what the model gives for the rows
    units: Mapping[str, np.ndarray]  # output → what a difference is divided by

    def check(self, run: Any, runtime: str, first: int = 0, last: int = _ROWS) -> None:
        """Raise an error if what runs the file gives other numbers for some of the rows."""
        expected = {output: values[first:last] for output, values in self.expected.items()}
        check(self.described["method"], run, self.rows.part(first, last), expected, self.units, runtime)


def _encodings_of(model: Model) -> dict[str, Encoding]:
    """How the columns of the file of training become features; also the fills of arrays."""
    recipe = model.recipe or {}
    if recipe.get("format") == "table":
        return {name: known for name, known in recipe_columns(recipe).items() if isinstance(known, Encoding)}
    found = {}
    for entry in recipe.get("modalities", ()):
        if isinstance(entry, Mapping) and entry.get("fills") is not None:
            fills = restore_fills(entry["fills"])
            columns = [f"column {number}" for number in range(len(fills))]
            flagged = [columns[place] for place in entry.get("flagged", ())]
            found[str(entry["name"])] = Encoding(None, columns, fills, {}, flagged=flagged)
    return found


def _trace(name: str, graph: Graph, preparation: Preparation) -> Any:
    """The graph as an exported program of torch."""
    rows = torch.export.Dim("rows", min=1, max=2**31 - 1)
    dynamic = {
        own.name: {0: rows} | {place + 1: torch.export.Dim.AUTO for place, size in enumerate(own.shape) if size is None}
        for own in graph.inputs
    }
    example = example_of(graph.inputs, preparation)
    present = torch.ones((3, len(graph.names)), dtype=torch.bool)
    try:
        with torch.no_grad(), knowing_values(graph), tracing(), _quiet():
            return torch.export.export(graph, (example, present), dynamic_shapes=(dynamic, {0: rows}), strict=False)
    except ConsilienceError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"export: {_culprit(graph, error) or f'method {name!r}'} cannot be exported: torch.export cannot trace it "
            f"({_first_line(error)})"
        ) from error


def _culprit(graph: Graph, error: BaseException) -> str | None:
    """The encoder in whose code an error was raised, if it was in one."""
    of_part: dict[int, str] = {}
    for module in graph.method.modules():
        if isinstance(module, PerModality):
            for name, encoder in module.items():
                if isinstance(encoder, Encoder):
                    what = (
                        type(encoder.stages["module"]).__name__ if isinstance(encoder, CustomModule) else encoder.name
                    )
                    label = f"encoder {what!r} of modality {name!r}"
                    of_part |= {id(part): label for part in encoder.modules()}
    raised: BaseException | None = error
    while raised is not None:
        trace = raised.__traceback__
        while trace is not None:
            found = of_part.get(id(trace.tb_frame.f_locals.get("self")))
            if found is not None:
                return found
            trace = trace.tb_next
        raised = raised.__cause__ or raised.__context__
    return None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]


def _write_onnx(path: Path, traced: _Traced) -> None:
    import onnx

    graph, described = traced.graph, traced.described
    try:
        with _quiet():
            model = to_onnx(traced.program, graph.inputs, graph.outputs)
    except Exception as error:
        raise UnsupportedError(
            f"export: method {described['method']!r} cannot be written as ONNX: {_first_line(error)}. format='torch' "
            "may work"
        ) from error
    opened = open_inputs(model, graph.inputs, len(graph.names), shared_steps(graph.inputs, traced.program))
    write_metadata(model, {**described, "inputs": [own.describe() for own in opened]})
    content = model.SerializeToString()
    onnx.checker.check_model(content)
    session = open_session(content)
    feeds = [_masked, _by_values, *([_padded] if any(None in own.shape for own in graph.inputs) else [])]
    for feed in feeds:
        traced.check(_runner(session, feed, graph, opened), "onnxruntime")
    run = _runner(session, _left_out, graph, opened)
    for one in range(2 * len(graph.names) + 2):  # a modality is left out for all rows at once
        traced.check(run, "onnxruntime", one, one + 1)
    with atomic_file(path) as file:
        file.write(content)


def _write_torch(path: Path, traced: _Traced) -> None:
    module, graph = traced.program.module(), traced.graph

    def run(part: Rows) -> dict[str, np.ndarray]:
        inputs = {name: torch.from_numpy(values) for name, values in part.inputs.items()}
        with torch.no_grad():
            found = module(inputs, torch.from_numpy(part.present))
        return {output: values.numpy() for output, values in zip(graph.outputs, found)}

    traced.check(run, "torch")
    whole = {**traced.described, "inputs": [own.describe() for own in graph.inputs]}
    with atomic_file(path) as file:
        torch.export.save(traced.program, file, extra_files={DESCRIPTION: json.dumps(whole)})


def open_session(content: bytes | str) -> Any:
    """An onnxruntime session on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _runner(session: Any, feed: Any, graph: Graph, opened: list[Input]) -> Any:
    def run(part: Rows) -> dict[str, np.ndarray]:
        found = session.run(list(graph.outputs), _as_opened(feed(part, graph), graph, opened))
        return dict(zip(graph.outputs, found))

    return run


def _masked(part: Rows, graph: Graph) -> dict[str, np.ndarray]:
    """What is missing said by the mask alone: its values are there."""
    return {**part.inputs, PRESENT: part.present}


def _by_values(part: Rows, graph: Graph) -> dict[str, np.ndarray]:
    """What is missing said by the values, without a mask."""
    given = {}
    for own in graph.inputs:
        values = np.array(part.inputs[own.name])
        absent = ~part.present[:, graph.names.index(own.modality)]
        values[absent] = np.nan if values.dtype.kind == "f" else EMPTY
        given[own.name] = values
    return given


def _padded(part: Rows, graph: Graph) -> dict[str, np.ndarray]:
    """Sequences of any number of steps with more padding, each with more than the one before."""
    given, more = _by_values(part, graph), 0
    for own in graph.inputs:
        if None in own.shape:
            more += 2
            values = given[own.name]
            missing = np.nan if values.dtype.kind == "f" else EMPTY
            padding = np.full((len(values), more, *values.shape[2:]), missing, dtype=values.dtype)
            given[own.name] = np.concatenate([values, padding], axis=1)
    return given


def _left_out(part: Rows, graph: Graph) -> dict[str, np.ndarray]:
    """The inputs of what the first row has; the rows without any modality have a mask."""
    has = dict(zip(graph.names, part.present[0]))
    given = {own.name: part.inputs[own.name] for own in graph.inputs if has[own.modality]}
    return given or {PRESENT: part.present}


def _as_opened(given: Mapping[str, np.ndarray], graph: Graph, opened: list[Input]) -> dict[str, np.ndarray]:
    """The same with strings in place of codes."""
    codes = {own.name: own for own in graph.inputs if own.categories}
    feed = {name: values for name, values in given.items() if name not in codes}
    for name, own in codes.items():
        if name not in given:
            continue
        strings = [one for one in opened if one.holds == STRINGS and one.modality == own.modality]
        for place, (one, known) in enumerate(zip(strings, own.categories)):
            cells = given[name][:, place].tolist()
            named = [known[code] if code >= 0 else "" if code == EMPTY else "?" + "".join(known) for code in cells]
            feed[one.name] = np.array(named, dtype=object)
    return feed


def _need_onnx() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError:
            raise InputError(
                f"export: the package {package!r} is needed for ONNX files: pip install 'consilience[onnx]'"
            ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notes that torch and onnxscript log and print about their own work."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "torch.onnx", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)
