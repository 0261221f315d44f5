"""The command line of the README and of the first pages, line by line, as their reader would type it."""

import asyncio
import shlex
import socket

import httpx
import numpy as np
import polars as pl
import pytest

from consilience.cli.main import COMMANDS
from documents import ROOT, blocks

PAGES = ("README.md", "docs/start.md", "docs/reproduce.md")
# Appended, so that they win: what is tried here is whether it works, not how well.
SMALLER = {
    "compare": ("--methods", "late", "--seeds", "1", "--epochs", "1", "--levels", "5", "--jobs", "1"),
    "train": ("--epochs", "1"),
}


@pytest.fixture(scope="module")
def lines():
    shell = "".join(block.code for page in PAGES for block in blocks(ROOT / page, "shell"))
    return [shlex.split(line, comments=True)[1:] for line in shell.splitlines() if line.startswith("consilience ")]


def ask(app):
    """What the application answers to the curl of the README."""
    shell = "".join(block.code for block in blocks(ROOT / "README.md", "shell"))
    [words] = [shlex.split(line) for line in shell.splitlines() if line.startswith("curl ")]
    [address] = [word for word in words if word.startswith("http://")]

    async def post():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.post(address, content=words[words.index("-d") + 1])

    response = asyncio.run(post())
    assert response.status_code == 200, response.text
    return response.json()


def test_every_line_of_the_readme_works(run, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [writes_a_table] = [
        one.code for one in blocks(ROOT / "docs/start.md", "python") if '.write_csv("machines.csv")' in one.code
    ]
    exec(writes_a_table, {})
    pl.read_csv("machines.csv").drop("fault").head(20).write_csv("new.csv")
    pl.read_csv("machines.csv").drop("fault").tail(300).write_csv("held-out.csv")
    rng = np.random.default_rng(0)
    np.savez("rig.npz", image=rng.random((60, 1, 8, 8)), sound=rng.random((60, 5)), y=np.arange(60) % 3)
    y = np.arange(90) % 3
    np.save("y.npy", y)
    for name in ("image", "audio"):
        np.save(f"{name}.npy", np.eye(3)[y] + rng.normal(size=(90, 3)))
    (tmp_path / "papers").symlink_to(ROOT / "papers")
    served = []
    monkeypatch.setattr("consilience.serving.listener.bind", lambda host, port: socket.create_server((host, 0)))
    monkeypatch.setattr("consilience.serving.listener.listen", lambda app, *further: served.append(ask(app)))
    shown = []
    monkeypatch.setattr("consilience.live.page.write_live_page", lambda path, **how: shown.append(path) or path)
    begun = []
    # A protocol takes minutes: here it is only read.
    monkeypatch.setattr("consilience.reproduction.papers.run_paper", lambda path, **how: begun.append(how["quick"]))
    monkeypatch.setattr("consilience.cli.reproduce.print_document", lambda done, format: None)
    commands = [line[0] for line in lines]
    assert {*COMMANDS} - {"generate"} == set(commands)
    for line in lines:
        done = run(*line, *SMALLER.get(line[0], ()))
        assert done.code == 0, f"{shlex.join(line)}: {done.err}"
    [answer] = served
    [row] = answer["predictions"]
    assert row["missing"] == ["top_right", "bottom_left"]
    assert len(row["probabilities"]) == 10
    assert row["trust"].keys() == {"top_left", "top_right", "bottom_left", "bottom_right"}
    assert len(begun) == sum(line[0] == "reproduce" and "--list" not in line for line in lines)
    assert all(begun)
    assert [path.name for path in shown] == ["live.html"]
    assert (tmp_path / "fault-model.onnx").stat().st_size > 10_000
    assert len(pl.read_csv("predictions.csv")) == 20
    assert (tmp_path / "runs" / "machines" / "report.html").exists()
    assert np.load("fused.npy").shape == (90, 3)
