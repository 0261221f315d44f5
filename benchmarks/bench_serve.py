"""How fast `consilience serve` answers: p50, p99 and requests per second for 1 and 64 rows, and minutes of load.

A model of two vectors and a text is trained and served on 127.0.0.1 by a process of its own; this process asks. First
1 to 64 clients, each of which asks again as soon as it is answered; then --minutes at half of the highest rate, of one
row each: errors, latency, and the memory of the server at start and end. The last column is the processor time of the
server for one request, which other programs on the machine change little.

    python benchmarks/bench_serve.py                    # about two minutes
    python benchmarks/bench_serve.py --minutes 10 > docs/checks/serve.txt
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

import consilience as cs

PATH = "/v1/models/machines/predict"
COLUMNS = {"vibration": ["vibration_*"], "temp": ["temp_*"], "note": ["note"]}


def train(folder, method):
    """A model of 2 000 rows: two sensors and notes, three states."""
    rng = np.random.default_rng(0)
    state = rng.integers(3, size=2000)
    columns = {f"vibration_{n}": rng.normal(size=2000) + state for n in range(8)}
    columns |= {f"temp_{n}": rng.normal(size=2000) - state for n in range(4)}
    notes = np.array(["all fine today", "a strange noise", "oil leaks"])[rng.permutation(state)]
    table = pl.DataFrame({**columns, "note": notes, "state": np.array(["ok", "worn", "leak"])[state]})
    table.write_csv(folder / "machines.csv")
    data = cs.load_data(folder / "machines.csv", target="state", modalities=COLUMNS, kinds={"note": "text"})
    cs.FusionClassifier(method, epochs=5, device="cpu", random_state=0).fit(data.train).save(folder / "machines")
    return table.drop("state").to_dicts()


def start(folder):
    """The server, and its port."""
    words = [sys.executable, "-m", "consilience", "serve", str(folder / "machines"), "--port", "0"]
    log = (folder / "log").open("w")
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
    found = re.search(r":(\d+)$", server.stdout.readline().strip())
    assert found, (folder / "log").read_text()
    return server, int(found[1])


def request(rows):
    body = json.dumps({"rows": rows}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class Connection:
    """One kept-alive connection."""

    def __init__(self, port):
        self.port, self.reader = port, None

    async def ask(self, content):
        """The status of the answer; 0 if there was none.

        The server closes connections that are idle for long; a request on one of them is sent once more, as HTTP
        clients do.
        """
        kept = self.reader is not None
        status = await self._ask(content)
        return await self._ask(content) if kept and status == 0 else status

    async def _ask(self, content):
        try:
            if self.reader is None:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
            self.writer.write(content)
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head)[1])
            await self.reader.readexactly(length)
            return int(head[9:12])
        except (OSError, asyncio.IncompleteReadError):
            self.reader = None
            return 0


async def closed_loop(port, contents, clients, seconds):
    """As fast as so many clients can: latencies in ms, requests per second, answers by status."""
    latencies, answers = [], Counter()
    end = time.perf_counter() + seconds

    async def client(number):
        connection, n = Connection(port), number
        while (began := time.perf_counter()) < end:
            answers[await connection.ask(contents[n % len(contents)])] += 1
            latencies.append(1000 * (time.perf_counter() - began))
            n += clients

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return latencies, len(latencies) / (time.perf_counter() - began), answers


async def paced(port, contents, rate, seconds):
    """A request every 1 / rate seconds, from at most 64 clients: latencies in ms, answers by status.

    The latency counts from when the request was due, so that a server that falls behind is seen to.
    """
    latencies, answers = [], Counter()
    clients = [Connection(port) for _ in range(64)]
    free, running = asyncio.Semaphore(len(clients)), set()
    began = time.perf_counter()

    async def one(content, due):
        connection = clients.pop()
        answers[await connection.ask(content)] += 1
        clients.append(connection)
        free.release()
        latencies.append(1000 * (time.perf_counter() - due))

    for n in range(int(rate * seconds)):
        due = began + n / rate
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        await free.acquire()
        if time.perf_counter() > began + seconds:
            free.release()
            break
        task = asyncio.create_task(one(contents[n % len(contents)], due))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return latencies, answers


def memory(process):
    """Resident MB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1000


def busy(process):
    """Seconds of processor time, of all threads."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(title, latencies, rate, answers, seconds):
    p50, p99 = np.percentile(latencies, [50, 99])
    taken = 1000 * seconds / len(latencies)
    print(
        f"{title:34s} {p50:8.1f} {p99:8.1f} {rate:9.0f} {sum(answers.values()) - answers[200]:7d} {taken:8.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="late")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each line")
    parser.add_argument("--minutes", type=float, default=0.5, help="at half of the highest rate")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rows = train(folder, chosen.method)
        server, port = start(folder)
        try:
            single = [request([row]) for row in rows[:500]]
            many = [request(rows[n : n + 64]) for n in range(0, 1024, 64)]
            asyncio.run(closed_loop(port, single, 8, 3.0))  # warm
            asyncio.run(closed_loop(port, many, 2, 1.0))
            busy_cores = os.getloadavg()[0]
            print(f"{chosen.method}: two vectors and a text, 3 classes; {os.cpu_count()} cores for server and clients")
            print(f"processes that wanted a core in the minute before: {busy_cores:.0f}")
            print(f"{'ms, and requests a second':34s} {'p50':>8s} {'p99':>8s} {'rate':>9s} {'errors':>7s} {'CPU':>8s}")
            best = 0.0
            for name, contents in (("1 row", single), ("64 rows", many)):
                for clients in (1, 4, 16, 64):
                    idle = busy(server)
                    found = asyncio.run(closed_loop(port, contents, clients, chosen.seconds))
                    show(f"{name}, {clients} client{'s' if clients > 1 else ''}", *found, busy(server) - idle)
                    if name == "1 row":
                        best = max(best, found[1])
            before, began, idle = memory(server), time.perf_counter(), busy(server)
            latencies, answers = asyncio.run(paced(port, single, best / 2, 60 * chosen.minutes))
            minutes = (time.perf_counter() - began) / 60
            show(
                f"1 row, {minutes:.1f} minutes at half the rate",
                latencies,
                len(latencies) / minutes / 60,
                answers,
                busy(server) - idle,
            )
            print("answers by status, 0 where there was none:", dict(sorted(answers.items())))
            print(f"memory of the server: {before:.0f} MB before these minutes, {memory(server):.0f} MB after")
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(60)
        print(f"ended by SIGTERM with exit code {code}")


if __name__ == "__main__":
    main()
