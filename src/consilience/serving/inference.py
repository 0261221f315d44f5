"""Requests of both forms → jobs, and answers → responses; pure functions of bytes, without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import show
from consilience.core.samples import Samples
from consilience.serving.answers import Answer, chosen_outputs
from consilience.serving.json_rows import check_row_count
from consilience.serving.refusals import malformed, read_flag
from consilience.serving.served_model import ServedModel
from consilience.serving.serving_settings import ServingSettings
from consilience.serving.strict_json import read_json, write_json
from consilience.serving.tensors import read_tensor, split_binary, write_tensor

JSON = "application/json"
HEADER_LENGTH = "inference-header-content-length"
# A tensor in binary, or of short numbers in JSON, may take so many times its bytes in memory.
_GROWTH = 8


@dataclass(frozen=True)
class Asked:
    """A request that was parsed.

    Attributes:
        read: Returns its samples and what reading them warned of.
        rows: Their number.
        respond: Returns body and headers for the answer.
    """

    read: Callable[[], tuple[Samples, tuple[str, ...]]]
    rows: int
    respond: Callable[[Answer], tuple[bytes, dict[str, str]]]


def parse_rows(body: bytes, model: ServedModel, settings: ServingSettings) -> Asked:
    """Parse a request in plain JSON, `{"rows": [{…}, …]}`."""
    asked = _as_object(read_json(body))
    if "inputs" in asked and "rows" not in asked:
        raise malformed(f"a request with inputs is for /v2/models/{model.name}/infer; this address takes rows")
    if unknown := [name for name in asked if name != "rows"]:
        raise malformed(f"a request has the key rows alone, got {show(unknown[0])}")
    if "rows" not in asked:
        raise malformed('a request must have rows: {"rows": [{"NAME": VALUE}]}')
    rows = asked["rows"]
    if isinstance(rows, list):
        check_row_count(len(rows), settings.max_rows)

    def respond(answer: Answer) -> tuple[bytes, dict[str, str]]:
        return write_json({"model": model.name, "version": model.version, **answer.as_json()}), {"content-type": JSON}

    completed = model.layout.read(rows, settings.max_rows)
    return Asked(lambda: model.read_rows(completed), len(completed), respond)


def parse_tensors(body: bytes, headers: Mapping[str, str], model: ServedModel, settings: ServingSettings) -> Asked:
    """Parse an inference request of the Open Inference Protocol v2, whose tensors may be binary."""
    described, content = _split(body, headers.get(HEADER_LENGTH))
    asked = _as_object(read_json(described))
    inputs, number = asked.get("inputs"), asked.get("id", "")
    if "rows" in asked and inputs is None:
        raise malformed(f"a request with rows is for /v1/models/{model.name}/predict; this address takes inputs")
    if not isinstance(inputs, list):
        raise malformed(f"inputs must be a list of tensors, got {show(inputs)}")
    if not isinstance(number, str) or len(number) > 256:
        raise malformed(f"id must be a string of at most 256 characters, got {show(number)}")
    parameters = asked.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise malformed("parameters must be an object")
    all_binary = read_flag("", parameters, "binary_data_output", False)
    outputs = chosen_outputs(asked.get("outputs"), model.output_names, all_binary)
    binary = split_binary(asked, content)
    tensors: dict[str, np.ndarray] = {}
    for place, tensor in enumerate(inputs):
        name, values = read_tensor(tensor, binary.get(place), settings.body_bytes * _GROWTH)
        if name in tensors:
            raise malformed(f"input {show(name)} is given twice")
        tensors[name] = values
    checked = model.check_tensors(tensors, settings.max_rows)

    def respond(answer: Answer) -> tuple[bytes, dict[str, str]]:
        found = answer.tensors()
        written = [write_tensor(name, found[name], binary) for name, binary in outputs.items()]
        response: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
        if number:
            response["id"] = number
        text = write_json(response | {"outputs": [tensor for tensor, _ in written]})
        if all(content is None for _, content in written):
            return text, {"content-type": JSON}
        joined = b"".join([text, *(content for _, content in written if content is not None)])
        return joined, {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(text))}

    rows = len(next(iter(checked.values())))
    return Asked(lambda: (model.read_tensors(checked), ()), rows, respond)


def _split(body: bytes, length: str | None) -> tuple[bytes, memoryview]:
    if length is None:
        return body, memoryview(b"")
    if not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > len(body):
        raise malformed(
            f"Inference-Header-Content-Length must be the length of the JSON, at most the {len(body)} bytes of the "
            f"request, got {show(length, 30)}"
        )
    return body[: int(length)], memoryview(body)[int(length) :]


def _as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed(f"the request must be a JSON object, got {show(value)}")
    return value
