"""`consilience serve` in a process of its own: foreign clients, signals, and clients with bad intentions."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest

import consilience as cs
from serving.conftest import PATIENCE, ROW, wait_for
from serving.test_model_store import other_model

pytestmark = pytest.mark.slow


def post(server, body, path="/v1/models/machines/predict"):
    response = httpx.post(server.url + path, content=body, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    return response.json()


def refuses(server):
    """Whether nobody listens any more."""
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def curl(*words):
    done = subprocess.run(["curl", "-s", "-i", *words], capture_output=True, text=True, check=False, timeout=PATIENCE)
    head, _, body = done.stdout.rpartition("\n\n")
    return head, body


@pytest.fixture(scope="module")
def server(models):
    from serving.conftest import Running

    started = Running(models / "machines", models / "arrays", "--max-waiting", "2000")
    yield started
    started.stop()


def test_curl(server):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    path = f"{server.url}/v1/models/machines/predict"
    head, body = curl(path, "-d", json.dumps({"rows": [ROW]}))
    assert head.startswith("HTTP/1.1 200")
    assert json.loads(body)["predictions"][0]["label"] in ("ok", "worn", "leak")
    head, body = curl(path, "-d", '{"rows": [{"vibration_0": NaN}]}')
    assert head.startswith("HTTP/1.1 400")
    assert "NaN is not a number" in json.loads(body)["error"]
    assert curl(f"{server.url}/metrics")[1].startswith("# HELP consilience_requests_total")


def test_tritonclient_in_binary_and_in_json(server, models):
    http = pytest.importorskip("tritonclient.http")
    rng = np.random.default_rng(0)
    motion, level = rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 3))
    motion[2] = np.nan
    expected = cs.load(models / "arrays").predict_proba({"motion": motion, "level": level})
    client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("arrays")
    described = client.get_model_metadata("arrays")
    assert [each["name"] for each in described["inputs"]] == ["motion", "level"]

    def inputs(binary, motion=motion):
        made = []
        for name, values in (("motion", motion), ("level", level[: len(motion)])):
            made.append(http.InferInput(name, list(values.shape), "FP64"))
            made[-1].set_data_from_numpy(values, binary_data=binary)
        return made

    found = client.infer("arrays", inputs(True), request_id="7")
    assert found.get_response()["id"] == "7"
    np.testing.assert_allclose(found.as_numpy("probabilities"), expected, atol=1e-6)
    assert found.as_numpy("label").dtype == np.int64
    outputs = [http.InferRequestedOutput("probabilities", binary_data=False)]
    found = client.infer("arrays", inputs(False, motion[:2]), outputs=outputs, model_version=described["versions"][0])
    np.testing.assert_allclose(found.as_numpy("probabilities"), expected[:2], atol=1e-6)
    note = http.InferInput("note", [2], "BYTES")
    note.set_data_from_numpy(np.array([b"oil leaks", "ünïcode".encode()], dtype=object))
    labels = client.infer("machines", [note]).as_numpy("label")
    assert {label.decode() for label in labels} <= {"ok", "worn", "leak"}
    with pytest.raises(Exception, match="unknown modality"):
        client.infer("arrays", [note])


def test_a_body_of_a_gigabyte_is_refused_before_it_is_read(server):
    before = server.memory()
    head = b"POST /v1/models/machines/predict HTTP/1.1\r\nHost: localhost\r\n"
    with server.connect() as declared:
        declared.sendall(head + b"Content-Length: 1073741824\r\n\r\n")
        assert declared.recv(4096).startswith(b"HTTP/1.1 413")
    with server.connect() as chunked:
        chunked.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        sent = 0
        try:
            for _ in range(1024):
                chunked.sendall(piece)
                sent += 1
        except OSError:  # the server has closed the connection
            pass
        assert sent < 100, "most of it was never read"
    assert server.memory() - before < 200_000
    assert post(server, json.dumps({"rows": [ROW]}).encode())["predictions"]


def test_a_thousand_parallel_clients(server):
    body = json.dumps({"rows": [ROW]}).encode()
    request = b"POST /v1/models/machines/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    connections = []
    try:
        connections += [server.connect() for _ in range(1000)]
        for each in connections:
            each.sendall(request + body)
        answers = [each.recv(65536) for each in connections]
    finally:
        for each in connections:
            each.close()
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 200"] * 1000


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/models/machines/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET /v2/" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v2/models/..%2f..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: attacker.example\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_request_for_us_is_refused(server, sent):
    with server.connect() as connection:
        connection.settimeout(PATIENCE)
        connection.sendall(sent)
        answer = connection.recv(4096)
    assert answer[:10] == b"HTTP/1.1 4"
    assert post(server, json.dumps({"rows": [ROW]}).encode())["predictions"]


def test_headers_that_never_end_are_given_up(server):
    with server.connect() as slow:
        slow.settimeout(PATIENCE)  # the server waits for ten seconds
        slow.sendall(b"GET /v2 HTTP/1.1\r\nHost: loc")
        assert slow.recv(100) == b"", "the server closes the connection"


def test_clients_that_hang_up_leave_nothing_behind(server):
    body = json.dumps({"rows": [ROW]}).encode()
    head = b"POST /v1/models/machines/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    for sent in (head, head + body[:10], head + body):
        for _ in range(20):
            with server.connect() as connection:
                connection.sendall(sent)
                linger = __import__("struct").pack("ii", 1, 0)  # reset instead of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert post(server, body)["predictions"]

    def text():
        return httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text

    wait_for(lambda: "consilience_requests_in_flight 1\n" in text())
    assert 'consilience_waiting_requests{model="machines"} 0' in text()


def test_sigterm_finishes_what_runs_and_sighup_loads_the_new_model(running, models, tmp_path):
    shutil.copytree(models / "machines", tmp_path / "machines")
    server = running(tmp_path / "machines")
    body = json.dumps({"rows": [ROW]}).encode()
    first = post(server, body)["version"]
    other_model(models, tmp_path / "machines")
    for count in range(1, 4):  # more than one: a second signal of another kind would end the command
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda count=count: server.logged().count('"event": "reload"') == count)
    assert post(server, body)["version"] != first
    with server.connect() as slow:
        head = b"POST /v1/models/machines/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        slow.sendall(head + body[:5])
        metrics = f"{server.url}/metrics"  # a request too
        wait_for(lambda: "consilience_requests_in_flight 2\n" in httpx.get(metrics, timeout=PATIENCE).text)
        ended: list = []
        stopping = threading.Thread(target=lambda: ended.append(server.stop()))
        stopping.start()
        wait_for(lambda: refuses(server))
        slow.sendall(body[5:])
        answer = slow.recv(65536)
    stopping.join(PATIENCE)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    code, log = ended[0]
    assert code == 0
    entries = [json.loads(line) for line in log.splitlines()]
    assert [entry["result"] for entry in entries if entry["event"] == "reload"] == ["loaded", "unchanged", "unchanged"]
    assert entries[-1]["event"] == "stopped"


def test_a_log_that_nobody_reads_stops_no_answer(models):
    words = [sys.executable, "-m", "consilience", "serve", str(models / "machines"), "--port", "0"]
    reading, writing = os.pipe()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=writing, text=True)
    os.close(writing)
    try:
        url = process.stdout.readline().split()[-1]
        with httpx.Client() as client:
            for _ in range(600):  # more lines than a pipe of 64 KiB holds
                assert client.get(f"{url}/v2", timeout=PATIENCE).status_code == 200
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        os.close(reading)
        process.kill()
        process.wait()


def test_an_expired_key_is_refused_until_the_file_is_read_again(running, models, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("ann 0123456789abcdef 2020-01-31\nbob fedcba9876543210\n")
    server = running(models / "machines", "--api-key-file", keys)
    for key, status, reason in (
        ("0123456789abcdef", 401, "the API key 'ann' expired at 2020-01-31T00:00:00+00:00"),
        ("fedcba9876543210", 200, ""),
    ):
        head, body = curl(f"{server.url}/v2", "-H", f"Authorization: Bearer {key}")
        assert f" {status} " in head.splitlines()[0]
        assert (json.loads(body).get("error") or "").startswith(reason)
    keys.write_text("ann 0123456789abcdef\n")
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: " 200 " in curl(f"{server.url}/v2", "-H", "X-API-Key: 0123456789abcdef")[0].splitlines()[0])
    assert "0123456789abcdef" not in server.stop()[1]
