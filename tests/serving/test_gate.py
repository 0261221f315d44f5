"""Keys, hosts, limits, the log and the metrics."""

import asyncio
import json
import logging
import re
import threading
from datetime import UTC, datetime

import pytest

from consilience.core.errors import InputError
from consilience.serving.api_keys import check_key, read_keys
from consilience.serving.prometheus import Histogram, Metric, exposition
from consilience.serving.refusals import Refusal
from consilience.serving.serving_settings import ServingSettings
from serving.conftest import PATIENCE, ROW

KEYS = "ann  0123456789abcdef0123\n# a note\n\nbob  fedcba98765432100000 2020-01-31\n"


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(KEYS)
    return read_keys(path)


def test_a_key_is_needed_everywhere_but_for_probes(serve, keys):
    client = serve(keys=lambda: keys)
    good = {"Authorization": "Bearer 0123456789abcdef0123"}
    for path in ("/v2/models/machines", "/metrics", "/v1/models", "/openapi.json", "/nothing"):
        refused = client.get(path)
        assert refused.status_code == 401, path
        assert refused.headers["www-authenticate"] == "Bearer"
        assert client.get(path, headers=good).status_code == (404 if path == "/nothing" else 200)
    assert client.get("/v2/health/live").status_code == client.get("/v2/health/ready").status_code == 200
    assert client.post("/v1/models/machines/predict", json={"rows": [ROW]}).status_code == 401
    also = {"X-API-Key": "0123456789abcdef0123"}
    assert client.post("/v1/models/machines/predict", json={"rows": [ROW]}, headers=also).status_code == 200


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "an API key is needed"),
        ({"authorization": "Basic 0123456789abcdef0123"}, "an API key is needed"),
        ({"authorization": "Bearer 0123456789abcdef012"}, "the API key is not known"),
        ({"authorization": "Bearer \xff\xfe"}, "the API key is not known: check it, or ask the operator"),
        ({"x-api-key": "fedcba98765432100000"}, "'bob' expired at 2020-01-31T00:00:00+00:00: ask the operator"),
    ],
)
def test_refused_keys(keys, headers, reason):
    with pytest.raises(Refusal, match=re.escape(reason)) as refused:
        check_key(keys, headers)
    assert refused.value.status == 401


def test_a_key_ends_at_its_time(keys):
    headers = {"x-api-key": "fedcba98765432100000"}
    assert check_key(keys, headers, datetime(2020, 1, 30, 23, 59, tzinfo=UTC)) == "bob"
    with pytest.raises(Refusal):
        check_key(keys, headers, datetime(2020, 1, 31, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no key"),
        ("ann\n", "line 1: it must be NAME KEY"),
        ("ann short\n", "line 1: the key must have at least 16 characters"),
        ("ann 0123456789abcdef soon\n", "the expiry must be a date"),
        ("ann 0123456789abcdef\nbob 0123456789abcdef\n", "the same key twice"),
    ],
)
def test_wrong_key_files(tmp_path, text, reason):
    path = tmp_path / "keys.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(reason)) as error:
        read_keys(path)
    assert "0123456789abcdef" not in str(error.value)


def test_other_hosts_are_refused(serve):
    client = serve(hosts={"127.0.0.1", "::1", "localhost"})
    for host, status in {"localhost:8080": 200, "[::1]:8080": 200, "127.0.0.1": 200, "evil.example:8080": 421}.items():
        assert client.get("/v2/health/live", headers={"host": host}).status_code == status, host


def test_bodies_are_limited(serve):
    client = serve(max_body=0.01)
    limit = int(0.01 * 2**20)
    taken = 0

    async def pieces():
        nonlocal taken
        for _ in range(1000):
            taken += 4096
            yield b" " * 4096

    declared = client.post("/v1/models/machines/predict", content=b" " * (limit + 1))
    chunked = client.post("/v1/models/machines/predict", content=pieces())
    for response in (declared, chunked):
        assert response.status_code == 413
        assert response.json()["error"].startswith(f"a request may have {limit} bytes")
        assert response.headers["connection"] == "close", "the rest is not read"
    assert taken <= limit + 2 * 4096
    zipped = client.post("/v1/models/machines/predict", content=b"x", headers={"Content-Encoding": "gzip"})
    assert zipped.status_code == 415
    bad = client.post("/v1/models/machines/predict", content=pieces(), headers={"Content-Length": "many"})
    assert bad.status_code == 400
    assert client.rows([ROW]).status_code == 200


def test_all_requests_together_are_limited_in_memory(serve):
    client = serve(max_body=0.01, max_memory=0.01)

    async def both():
        arrived, refused = asyncio.Event(), asyncio.Event()

        async def slow():
            arrived.set()
            await refused.wait()
            yield b"{"

        import httpx

        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
            path, length = "/v1/models/machines/predict", {"Content-Length": "9000"}
            first = asyncio.create_task(asking.post(path, content=slow(), headers=length))
            await arrived.wait()
            second = await asking.post(path, content=b" " * 9000)
            refused.set()
            await first
            third = await asking.post(path, json={"rows": [ROW]})
        return second, third

    refused, after = asyncio.run(both())
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert after.status_code == 200, "what a request took is given back"


def test_a_request_that_does_not_arrive_in_time(serve):
    async def slow():
        yield b"{"
        await asyncio.Event().wait()

    response = serve(timeout=0.2).post("/v1/models/machines/predict", content=slow())
    assert response.status_code == 408
    assert response.headers["connection"] == "close"


def test_a_model_that_does_not_answer_in_time(serve, monkeypatch):
    client = serve(timeout=0.2)
    model = client.store.batcher("machines").model
    predict, release = model.predict, threading.Event()
    monkeypatch.setattr(model, "predict", lambda samples: (release.wait(PATIENCE), predict(samples))[1])
    response = client.rows([ROW])
    release.set()
    assert response.status_code == 504
    assert response.json()["error"] == "the model did not answer within 0.2 s"
    monkeypatch.setattr(model, "predict", predict)
    client.store.settings = ServingSettings(timeout=PATIENCE)
    assert client.rows([ROW]).status_code == 200


def test_reasons_and_warnings_stay_short_whatever_they_quote(serve):
    client = serve()
    for cells in ({"vibration_0": "x" * 100_000}, {"mode": "y" * 100_000}, {"z" * 200: "z" * 100_000}):
        response = client.rows([{**ROW, **cells}])
        assert len(response.content) < 3000, cells.keys()


def test_an_error_of_ours_tells_no_more_than_where_to_look(serve, monkeypatch, caplog):
    client = serve()

    def broken(samples):
        raise KeyError("/secret/path")

    monkeypatch.setattr(client.store.batcher("machines").model, "predict", broken)
    with caplog.at_level(logging.INFO, "consilience.serving"):
        response = client.rows([ROW])
    assert response.status_code == 500
    assert "secret" not in response.text
    number = response.headers["x-request-id"]
    assert number in response.json()["error"]
    entries = [json.loads(record.message) for record in caplog.records]
    assert any(entry["id"] == number and "/secret/path" in entry.get("trace", "") for entry in entries)


def test_the_log_has_one_line_a_request_and_nothing_that_was_sent(serve, keys, caplog):
    client = serve(keys=lambda: keys)
    headers = {"X-API-Key": "0123456789abcdef0123"}
    with caplog.at_level(logging.INFO, "consilience.serving"):
        client.post("/v1/models/machines/predict", json={"rows": [ROW, ROW]}, headers=headers)
        secret = {**ROW, "mode": "a secret", "secret": 1}
        client.post("/v1/models/machines/predict", json={"rows": [secret]}, headers=headers)
        client.get("/v2/models/%22%0A%1B%5B31m")
    texts = [record.message for record in caplog.records]
    assert all("\n" not in text and "\x1b" not in text for text in texts)
    good, bad, refused = map(json.loads, texts)
    assert (good["event"], good["status"], good["rows"], good["key"], good["model"]) == (
        "request",
        200,
        2,
        "ann",
        "machines",
    )
    assert good["ms"] > 0
    assert bad["status"] == 400
    assert refused["status"] == 401
    assert not any(word in "".join(texts) for word in ("secret", "noise", "0123456789abcdef"))


def samples_of(text):
    """Name and labels → value, of the text format of Prometheus, read by its grammar."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-zA-Z_:][\w:]* .+", line), line
            continue
        parts = re.fullmatch(r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)', line)
        assert parts, line
        found[parts[1], parts[2] or ""] = float(parts[3].replace("Inf", "inf"))
    return found


def test_metrics(serve):
    client = serve("machines", "hours")
    client.rows([ROW, ROW])
    client.rows([{"note": "oil leaks"}])
    client.rows([{"nothing": 1}])
    client.get("/nothing")
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples_of(response.text)
    assert found["consilience_requests_total", 'route="predict",status="200"'] == 2
    assert found["consilience_errors_total", 'route="predict",status="400"'] == 1
    assert found["consilience_errors_total", 'route="other",status="404"'] == 1
    assert found["consilience_rows_total", 'model="machines"'] == 3
    assert found["consilience_missing_total", 'model="machines",modality="vibration"'] == 1
    assert found["consilience_batch_rows_sum", 'model="machines"'] == 3
    assert found["consilience_request_seconds_count", 'route="predict"'] == 3
    assert found["consilience_request_seconds_bucket", 'route="predict",le="+Inf"'] == 3
    assert found["consilience_waiting_requests", 'model="hours"'] == 0
    versions = [labels for name, labels in found if name == "consilience_model_info"]
    assert len(versions) == 2


def test_a_histogram_counts_at_most_each_bound():
    times = Histogram("t_seconds", "T.", [0.1, 1.0], ["a"])
    for value in (0.05, 0.1, 0.5, 7.0):
        times.observe(value, "x")
    found = samples_of(exposition([times]))
    assert [found["t_seconds_bucket", f'a="x",le="{bound}"'] for bound in ("0.1", "1", "+Inf")] == [2, 3, 4]
    assert found["t_seconds_sum", 'a="x"'] == pytest.approx(7.65)


def test_labels_are_escaped():
    odd = Metric("m", "a\nb", ["name"])
    odd.add('quote " slash \\ line \n')
    assert samples_of(exposition([odd])) == {("m", 'name="quote \\" slash \\\\ line \\n"'): 1.0}
