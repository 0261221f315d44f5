"""The Open Inference Protocol v2: metadata, health, JSON tensors and the binary extension."""

import json
import struct

import numpy as np
import pytest

import consilience as cs
from consilience.serving.tensors import read_tensor

VIBRATION = {"name": "vibration", "shape": [2, 2], "datatype": "FP64", "data": [1.0, 2.0, 3.0, 4.0]}


def infer(client, *inputs, model="machines", **further):
    return client.post(f"/v2/models/{model}/infer", json={"inputs": list(inputs), **further})


def by_name(response):
    return {each["name"]: each for each in response.json()["outputs"]}


def test_health_and_metadata(serve):
    client = serve("machines", "hours")
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/machines/ready"):
        assert client.get(path).status_code == 200
    described = client.get("/v2/models/machines").json()
    assert [(each["name"], each["datatype"], each["shape"]) for each in described["inputs"]] == [
        ("vibration", "FP64", [-1, 2]),
        ("temp", "FP64", [-1, 3]),
        ("note", "BYTES", [-1]),
    ]
    assert [(each["name"], each["datatype"], each["shape"]) for each in described["outputs"]] == [
        ("label", "BYTES", [-1]),
        ("probabilities", "FP64", [-1, 3]),
        ("trust", "FP64", [-1, 3]),
        ("set", "BOOL", [-1, 3]),
    ]
    version = described["versions"][0]
    assert client.get(f"/v2/models/machines/versions/{version}/ready").status_code == 200
    assert client.get(f"/v2/models/machines/versions/{version}").json() == described
    assert client.get("/v2/models/machines/versions/7").status_code == 404
    assert [each["name"] for each in client.get("/v1/models").json()["models"]] == ["machines", "hours"]
    nowhere = "there is no such address: GET /v1/models lists models; POST rows to"
    for method, path, status, said in (
        ("GET", "/nothing", 404, nowhere),
        ("GET", "/v1/models/", 404, nowhere),  # not a redirect to the host that the request names
        ("GET", "/v1/models/machines/predict", 405, "GET is not allowed at this address, which takes POST: "),
    ):
        wrong = client.ask(method, path)
        assert wrong.status_code == status
        assert wrong.json()["error"].startswith(said)
        assert "\n" not in wrong.json()["error"]
    unknown = client.get("/v2/models/machine")
    assert unknown.status_code == 404
    assert unknown.json()["error"].startswith("unknown model 'machine': did you mean 'machines'?")


def test_outputs_have_the_shapes_and_types_of_the_metadata(serve):
    client = serve("machines", "hours", "arrays")
    inputs = {"machines": VIBRATION, "hours": VIBRATION, "arrays": VIBRATION | {"name": "level", "shape": [2, 3]}}
    inputs["arrays"] |= {"data": [0.5] * 6}
    for name, tensor in inputs.items():
        said = {each["name"]: each for each in client.get(f"/v2/models/{name}").json()["outputs"]}
        found = by_name(infer(client, tensor, model=name))
        assert list(found) == list(said)
        for output, each in found.items():
            assert each["datatype"] == said[output]["datatype"]
            assert each["shape"] == [2, *said[output]["shape"][1:]]


@pytest.mark.parametrize("binary", [False, True])
def test_answers_are_those_of_the_estimator(serve, models, binary):
    rng = np.random.default_rng(2)
    motion, level = rng.normal(size=(4, 5, 2)), rng.normal(size=(4, 3)).astype(np.float32)
    motion[1] = np.nan  # a row of NaN is missing
    inputs = [("motion", motion, "FP64"), ("level", level, "FP32")]
    expected = cs.load(models / "arrays").predict_proba({"motion": motion, "level": level})
    client = serve("arrays")
    if binary:
        described = [
            {"name": name, "shape": list(x.shape), "datatype": kind, "parameters": {"binary_data_size": x.nbytes}}
            for name, x, kind in inputs
        ]
        asked = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
        body = asked + b"".join(x.tobytes() for _, x, _ in inputs)
        headers = {"Inference-Header-Content-Length": str(len(asked))}
        response = client.post("/v2/models/arrays/infer", content=body, headers=headers)
        assert response.status_code == 200, response.text
        length = int(response.headers["inference-header-content-length"])
        outputs = json.loads(response.content[:length])["outputs"]
        rest, found = response.content[length:], {}
        for each in outputs:
            size = each["parameters"]["binary_data_size"]
            found[each["name"]], rest = rest[:size], rest[size:]
        assert rest == b""
        probabilities = np.frombuffer(found["probabilities"], "<f8").reshape(4, 2)
    else:
        tensors = [
            {"name": name, "shape": list(x.shape), "datatype": kind, "data": json.loads(pd_nulls(x))}
            for name, x, kind in inputs
        ]
        response = infer(client, *tensors, model="arrays", id="a 1")
        assert response.status_code == 200, response.text
        assert response.json()["id"] == "a 1"
        probabilities = np.reshape(by_name(response)["probabilities"]["data"], (4, 2))
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def pd_nulls(x):
    """JSON of an array, nested, with null where it is NaN."""
    return json.dumps(x.tolist()).replace("NaN", "null")


def test_strings_in_binary(serve):
    texts = ["oil leaks", "", "a strange noise"]
    body = b"".join(struct.pack("<I", len(text)) + text.encode() for text in texts)
    note = {"name": "note", "shape": [3], "datatype": "BYTES", "parameters": {"binary_data_size": len(body)}}
    vibration = {"name": "vibration", "shape": [3, 2], "datatype": "INT8", "data": [1, 2, 3, 4, 5, 6]}
    asked = json.dumps({"inputs": [note, vibration], "outputs": [{"name": "label"}, {"name": "trust"}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(asked))}
    client = serve()
    response = client.post("/v2/models/machines/infer", content=asked + body, headers=headers)
    assert response.status_code == 200, response.text
    assert [each["name"] for each in response.json()["outputs"]] == ["label", "trust"]
    trust = np.reshape(by_name(response)["trust"]["data"], (3, 3))
    assert trust[1, 2] == 0, "an empty text is missing"
    assert trust[0, 2] > 0


def test_lengths_of_sequences(serve, models):
    rng = np.random.default_rng(4)
    motion = rng.normal(size=(2, 5, 2))
    tensors = [
        {"name": "motion", "shape": [2, 5, 2], "datatype": "FP64", "data": motion.ravel().tolist()},
        {"name": "motion.lengths", "shape": [2], "datatype": "INT64", "data": [5, 3]},
    ]
    found = by_name(infer(serve("arrays"), *tensors, model="arrays"))["probabilities"]["data"]
    samples = cs.Samples.of({"motion": motion}, lengths={"motion": [5, 3]})
    expected = cs.load(models / "arrays").predict_proba(samples)
    np.testing.assert_allclose(np.reshape(found, (2, 2)), expected, atol=1e-6)


def binary_request(**changed):
    tensor = {"name": "vibration", "shape": [1, 2], "datatype": "FP64", "parameters": {"binary_data_size": 16}}
    return json.dumps({"inputs": [tensor | changed]}).encode()


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        ({"name": "vibration"}, "datatype must be one of"),
        (VIBRATION | {"datatype": "FP128"}, "datatype must be one of"),
        (VIBRATION | {"datatype": "BYTES"}, "BYTES must be strings"),
        (VIBRATION | {"datatype": "INT64"}, "INT64 must be whole numbers, got 1.0"),
        (VIBRATION | {"datatype": "BOOL"}, "BOOL must be true or false"),
        (VIBRATION | {"datatype": "UINT8", "data": [1, 2, 3, -1]}, "outside the range of UINT8"),
        (VIBRATION | {"datatype": "INT64", "data": [1, 2, 3, 10**30]}, "outside the range of INT64"),
        (VIBRATION | {"datatype": "FP64", "data": [1, 2, 3, 10**400]}, "outside the range of FP64"),
        (VIBRATION | {"datatype": "FP16", "data": [1, 2, 3, 1e30]}, "outside the range of FP16"),
        (VIBRATION | {"datatype": "BYTES", "data": list("abcd")}, "datatype cannot be BYTES"),
        (VIBRATION | {"datatype": "BOOL", "data": [True] * 4}, "datatype cannot be BOOL"),
        (VIBRATION | {"shape": [2, 3]}, "shape [2, 3] has 6 values, and data has 4"),
        (VIBRATION | {"shape": [4, 1]}, "vibration (vector 2) is expected, got vibration (vector 1)"),
        (VIBRATION | {"shape": [4]}, "needs the shape [-1, 2], got [4]"),
        (VIBRATION | {"shape": [-2, -2]}, "whole numbers ≥ 0"),
        (VIBRATION | {"shape": "2"}, "shape must be a list"),
        (VIBRATION | {"shape": []}, "1 to 8 sizes"),
        (VIBRATION | {"shape": [10**9, 10**9]}, "larger than a request may be"),
        (VIBRATION | {"shape": [0, 2], "data": []}, "at least one row"),
        (VIBRATION | {"data": [[1.0, 2.0], [3.0]]}, "rows of different lengths"),
        (VIBRATION | {"data": [[1.0, 2.0], 3.0, 4.0]}, "mixes lists and values"),
        (VIBRATION | {"data": [[[[1.0, 2.0]]], [[[3.0, 4.0]]]]}, "nested deeper than its shape"),
        (VIBRATION | {"data": "1 2 3 4"}, "data must be a list"),
        (VIBRATION | {"data": [1.0, None, 3.0, 4.0]}, "vibration"),
        (VIBRATION | {"data": [1e300, 1.0, 3.0, 4.0]}, ""),
        (VIBRATION | {"name": "vibrations"}, "unknown modality 'vibrations': did you mean 'vibration'?"),
        (VIBRATION | {"name": 7}, "name of 1 to 256 characters"),
        (VIBRATION | {"name": "note"}, "is text: its datatype must be BYTES"),
        ("vibration", "an input must be an object"),
    ],
)
def test_wrong_tensors(serve, tensor, reason):
    client = serve()
    response = infer(client, tensor)
    assert response.status_code == 400, response.text
    assert reason in response.json()["error"]
    assert infer(client, VIBRATION).status_code == 200


@pytest.mark.parametrize(
    ("request_body", "reason"),
    [
        ({}, "inputs must be a list"),
        ({"inputs": []}, "there are no inputs"),
        ({"rows": [{"note": "fine"}]}, "is for /v1/models/machines/predict"),
        ({"inputs": [VIBRATION, VIBRATION]}, "given twice"),
        ({"inputs": [VIBRATION], "outputs": [{"name": "lable"}]}, "unknown output 'lable': did you mean 'label'?"),
        ({"inputs": [VIBRATION], "outputs": [{"name": "label"}] * 2}, "asked for twice"),
        ({"inputs": [VIBRATION], "outputs": "label"}, "outputs must be a list"),
        ({"inputs": [VIBRATION], "id": 5}, "id must be a string"),
        ({"inputs": [VIBRATION], "parameters": []}, None),
        ({"inputs": [VIBRATION], "parameters": [1]}, "parameters must be an object"),
        ({"inputs": [VIBRATION], "parameters": {"binary_data_output": "false"}}, "binary_data_output must be true or"),
        ({"inputs": [VIBRATION], "parameters": {"binary_data_output": 0}}, "must be true or false, got 0"),
        ({"inputs": [VIBRATION], "parameters": {"binary_data_output": None}}, None),
        (
            {"inputs": [VIBRATION], "outputs": [{"name": "label", "parameters": {"binary_data": "false"}}]},
            "output 'label': binary_data must be true or false, got 'false'",
        ),
        ({"inputs": [VIBRATION], "outputs": [{"name": "label", "parameters": {"binary_data": False}}]}, None),
        ({"inputs": [VIBRATION, {**VIBRATION, "name": "temp", "shape": [1, 3], "data": [1, 2, 3]}]}, "one row per"),
    ],
)
def test_wrong_requests(serve, request_body, reason):
    response = serve().post("/v2/models/machines/infer", json=request_body)
    assert response.status_code == (200 if reason is None else 400), response.text
    assert reason is None or reason in response.json()["error"]


@pytest.mark.parametrize(
    ("body", "length", "reason"),
    [
        (binary_request(), None, "is more than follows the JSON"),
        (binary_request() + bytes(16), 10**6, "must be the length of the JSON"),
        (binary_request() + bytes(16), "-1", "must be the length of the JSON"),
        (binary_request() + bytes(17), len(binary_request()), "17 bytes follow the JSON"),
        (binary_request(shape=[2, 2]) + bytes(16), len(binary_request()), "takes 32 bytes"),
        (binary_request() + bytes(16), None, "is not JSON: Extra data"),
        (binary_request(data=[1, 2]) + bytes(16), len(binary_request(data=[1, 2])), "both in JSON and in binary"),
        (binary_request(parameters={"binary_data_size": -1}), None, "binary_data_size -1"),
    ],
)
def test_wrong_binary(serve, body, length, reason):
    headers = {} if length is None else {"Inference-Header-Content-Length": str(length)}
    response = serve().post("/v2/models/machines/infer", content=body, headers=headers)
    assert response.status_code == 400
    assert reason in response.json()["error"]


def test_a_sequence_much_longer_than_in_training_is_refused(serve):
    tensor = {"name": "motion", "shape": [1, 21, 2], "datatype": "FP64", "data": [0.0] * 42}
    response = infer(serve("arrays"), tensor, model="arrays")
    assert response.status_code == 400
    assert "at most 20" in response.json()["error"]


def test_infinite_interval_ends_are_null(serve):
    row = {"name": "note", "shape": [1], "datatype": "BYTES", "data": [None]}
    response = infer(serve("hours"), row, model="hours")
    assert response.status_code in (200, 400)
    json.loads(response.text, parse_constant=lambda name: pytest.fail(f"{name} in the answer"))
    if response.status_code == 200:
        assert by_name(response)["interval"]["data"] == [None, None]


def test_whole_numbers_keep_their_values_up_to_the_ends_of_their_types():
    for datatype, ends in (("UINT64", [2**64 - 1, 2**63 + 1, 0]), ("INT64", [-(2**63), 2**63 - 1, 2**53 + 1])):
        tensor = {"name": "count", "datatype": datatype, "shape": [3], "data": ends}
        assert read_tensor(tensor, None, 1000)[1].tolist() == ends
