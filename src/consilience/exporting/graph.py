"""An exported model's graph: raw inputs → preparation → method → probabilities, trust and reliability."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError
from consilience.core.tracing import is_traced
from consilience.data.files.column_encoding import Encoding
from consilience.exporting.raw_inputs import PADDING, Columns, Ids, Numbers
from consilience.methods import Method
from consilience.preparation import Preparation
from consilience.preparation.transforms import Standardise, Tokens, Words

# What an input holds, which its metadata names.
NUMBERS, CODES, TIMES, IDS = "numbers", "category codes", "seconds since 1970", "token ids"
STRINGS = "strings"
_SIZE = r"L\['inputs'\]\[(?:'[^']*'|\"[^\"]*\")\]\.size\(\)\[\d+\]"
_EQUAL_SIZES = re.compile(f"{_SIZE} == {_SIZE}")


@dataclass(frozen=True)
class Input:
    """One input tensor of a graph.

    Attributes:
        name: Of the input.
        modality: That it belongs to.
        holds: "numbers", "category codes", "seconds since 1970", "token ids" or "strings".
        dtype: Of its values; of strings, that of the codes they become.
        shape: Without the rows; None for a length that may differ.
        columns: The names of its columns, where it is of a table.
        categories: Of category codes, the strings of each column, in the order of their codes.
        words: Of the ids of a text, the words in the order of their ids from 2 on.
    """

    name: str
    modality: str
    holds: str
    dtype: torch.dtype
    shape: tuple[int | None, ...]
    columns: tuple[str, ...] = ()
    categories: tuple[tuple[str, ...], ...] = ()
    words: tuple[str, ...] | None = None

    def empty(self, rows: int, steps: int = 1) -> Tensor:
        """The values that stand for a missing modality: `[rows, *shape]`."""
        shape = (rows, *(steps if size is None else size for size in self.shape))
        return torch.full(shape, torch.nan if self.dtype.is_floating_point else PADDING, dtype=self.dtype)

    def describe(self) -> dict[str, Any]:
        """JSON values for the metadata of a file."""
        described: dict[str, Any] = {
            "name": self.name,
            "modality": self.modality,
            "holds": self.holds,
            "type": "string" if self.holds == STRINGS else str(self.dtype).removeprefix("torch."),
            "shape": ["row", *("step" if size is None else size for size in self.shape)],
        }
        if self.columns:
            described["columns"] = list(self.columns)
        if self.categories:
            described["categories"] = [list(known) for known in self.categories]
        if self.words is not None:
            described |= {"words": list(self.words), "first id": 2, "unknown id": 1, "pattern": Words.pattern.pattern}
        return described


class Graph(nn.Module):
    """What is exported of a trained method; its inputs are a mapping name → tensor, and `present` `[n, modality]`.

    A row that our own prediction would refuse, because a modality is NaN or infinite in part, is NaN in all outputs.

    Args:
        method: A trained method.
        preparation: Of its inputs.
        encodings: Modality → how columns of a table become its features.
        outputs: Of "probabilities", "numbers", "variance", "trust" and "reliability" those that the method has.
    """

    def __init__(
        self,
        method: Method,
        preparation: Preparation,
        encodings: Mapping[str, Encoding],
        outputs: Sequence[str],
    ):
        super().__init__()
        self.method, self.task = method, preparation.task
        self.names = tuple(preparation.transforms)
        self.outputs = tuple(outputs)
        self.inputs = inputs_of_all(preparation, encodings)
        self.reads = [[own.name for own in self.inputs if own.modality == name] for name in self.names]
        columns: list[nn.Module] = []
        values: list[nn.Module] = []
        for name, transform in preparation.transforms.items():
            encoding = encodings.get(name)
            tabular = encoding is not None and encoding.text is None
            columns.append(Columns(encoding, _dtype(transform, encoding)) if tabular else nn.Identity())  # type: ignore[arg-type]
            values.append(Numbers(transform) if isinstance(transform, Standardise) else Ids(transform.output))
        self.columns, self.values = nn.ModuleList(columns), nn.ModuleList(values)
        if not self.task.classification:
            assert self.task.mean is not None
            assert self.task.scale is not None
            self.register_buffer("target_mean", torch.from_numpy(np.array(self.task.mean, dtype=np.float64)))
            self.register_buffer("target_scale", torch.from_numpy(np.array(self.task.scale, dtype=np.float64)))

    def forward(self, inputs: Mapping[str, Tensor], present: Tensor) -> tuple[Tensor, ...]:
        """The outputs in the order of `outputs`."""
        values: dict[str, Tensor] = {}
        lengths: dict[str, Tensor] = {}
        there, broken = [], []
        for place, name in enumerate(self.names):
            parts = [inputs[own] for own in self.reads[place]]
            columns = self.columns[place]
            x = columns(parts) if isinstance(columns, Columns) else parts[0]
            prepare: Any = self.values[place]
            value, length, has, spoilt = prepare(x)
            has = has & present[:, place]
            values[name] = value.masked_fill(~has.view(-1, *[1] * (value.ndim - 1)), 0)
            if length is not None:
                lengths[name] = torch.where(has, length, 0)
            there.append(has)
            broken.append(spoilt & has)
        mask = torch.stack(there, dim=1)
        batch = Batch(
            values,
            mask,
            index=torch.arange(mask.shape[0]),
            weight=torch.ones(mask.shape[0]),
            lengths=lengths,
            stacked=True,
        )
        prediction = self.method(batch)
        output, found = prediction.output.double(), {}
        if self.task.classification:
            found["probabilities"] = output.softmax(dim=1)
        else:
            found["numbers"] = output * self.target_scale + self.target_mean
            if "variance" in prediction.extra:
                scale: Any = self.target_scale
                found["variance"] = prediction.extra["variance"].double() * scale.square()
        if "trust" in self.outputs:
            assert prediction.weights is not None
            found["trust"] = _trust(prediction.weights, mask)
        if "reliability" in prediction.extra:
            found["reliability"] = prediction.extra["reliability"]
        spoilt = torch.stack(broken, dim=1).any(dim=1, keepdim=True)
        return tuple(found[name].float().masked_fill(spoilt, torch.nan) for name in self.outputs)


def inputs_of_all(preparation: Preparation, encodings: Mapping[str, Encoding]) -> list[Input]:
    """The inputs of a graph, modality by modality."""
    return [
        own
        for name, transform in preparation.transforms.items()
        for own in inputs_of(name, transform, encodings.get(name))
    ]


def inputs_of(name: str, transform: Any, encoding: Encoding | None) -> list[Input]:
    """The inputs of one modality."""
    if isinstance(transform, Words):
        return [Input(name, name, IDS, torch.int64, (None,), words=tuple(transform.words))]
    if isinstance(transform, Tokens):
        return [Input(name, name, IDS, torch.int64, (None,))]
    if not isinstance(transform, Standardise):
        raise UnsupportedError(
            f"export: modality {name!r} is prepared by {type(transform).__name__} of its encoder, which is no part "
            "of a graph: choose an encoder that reads standardised numbers or token ids"
        )
    dtype = _dtype(transform, encoding)
    if encoding is None:
        shape = transform.output.shape
        return [Input(name, name, NUMBERS, dtype, (None, *shape[1:]) if transform.output.timed else tuple(shape))]
    found = []
    if encoding.numbers:
        found.append(Input(name, name, NUMBERS, dtype, (len(encoding.numbers),), tuple(encoding.numbers)))
    if encoding.calendars:
        times = tuple(encoding.calendars)
        found.append(Input(f"{name} times", name, TIMES, torch.float64, (len(times),), times))
    if encoding.categories:
        known = tuple(tuple(values.tolist()) for values in encoding.categories.values())
        own = tuple(encoding.categories)
        found.append(Input(f"{name} categories", name, CODES, torch.int64, (len(own),), own, known))
    return found


def _dtype(transform: Any, encoding: Encoding | None) -> torch.dtype:
    """The type of raw numbers: 64 bits where 32 are too few."""
    wide = (encoding is not None and encoding.wide) or (isinstance(transform, Standardise) and transform.needs_64_bits)
    return torch.float64 if wide else torch.float32


def _trust(weights: Tensor, present: Tensor) -> Tensor:
    """As `trust_from_weights`, without its checks."""
    assert is_traced() or weights.isfinite().all()
    positive = weights.double().masked_fill(~present, 0).clamp(min=0)
    largest = positive.amax(dim=1, keepdim=True)
    share = torch.where(largest > 0, positive / largest.where(largest > 0, 1), present.double())
    return share / share.sum(dim=1, keepdim=True).clamp(min=1)


def example_of(inputs: Sequence[Input], preparation: Preparation, rows: int = 3) -> dict[str, Tensor]:
    """Values to trace with, of as many steps as training had."""
    steps = {name: max(transform.output.shape[0], 2) for name, transform in preparation.transforms.items()}
    return {one.name: one.empty(rows, steps[one.modality]).nan_to_num().clamp(min=0) for one in inputs}


def shared_steps(inputs: Sequence[Input], program: Any) -> dict[str, str]:
    """Input → the symbol of its number of steps in a trace; those with the same one must have as many steps."""
    return {own.name: str(_sizes(own, inputs, program)[0]) for own in inputs if None in own.shape}


def as_traced(inputs: Sequence[Input], program: Any) -> list[Input]:
    """The inputs, those for which a trace holds for one number of steps with that number.

    Recurrent networks are unrolled over the steps. A graph may also hold only while one sequence is longer than
    another, or up to a number of steps. All of these take as many steps as in training.
    """
    bounded = {str(symbol) for symbol, bounds in program.range_constraints.items() if bounds.upper < 2**30}
    # What the trace relies on, as conditions in Python; inputs with as many steps as one another share a symbol.
    relations = [guard for guard in getattr(program, "_guards_code", ()) if not _EQUAL_SIZES.fullmatch(guard)]
    fixed = []
    for own in inputs:
        shape = list(own.shape)
        for place, size in enumerate(_sizes(own, inputs, program)):
            if shape[place] is not None:
                continue
            shape[place] = _number(size)
            written = f"L['inputs'][{own.name!r}].size()[{place + 1}]"
            if shape[place] is None and (str(size) in bounded or any(written in guard for guard in relations)):
                shape[place] = size.node.hint  # of the example
        fixed.append(replace(own, shape=tuple(shape)))
    return fixed


def _sizes(own: Input, inputs: Sequence[Input], program: Any) -> Sequence[Any]:
    """The shape of an input in a trace, without the rows: numbers and symbols."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    return placeholders[list(inputs).index(own) - len(inputs) - 1].meta["val"].shape[1:]  # the mask is the last


def _number(size: Any) -> int | None:
    """A size that is fixed, also one that began as a symbol."""
    return size if isinstance(size, int) else size.node.maybe_as_int()
