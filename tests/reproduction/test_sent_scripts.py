"""A script that is sent: what goes with it, and that it runs in a process that has none of its files."""

import os
import pickle
import shutil
import subprocess
import sys

import pytest

from consilience.core.errors import InputError
from consilience.reproduction import sent_scripts
from consilience.reproduction.sent_scripts import SentFunction
from consilience.reproduction.study import load_script

SCRIPT = """
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from consilience.reproduction.study import load_script

inner = load_script(Path(__file__).parent / "parts" / "inner.py")

@cache
def word():
    return (Path(__file__).parent / "parts" / "word.json").read_text()

def measure(settings, shared):
    return [inner.twice(settings["number"]), word(), shared]
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "study"
    (made / "parts").mkdir(parents=True)
    (made / "script.py").write_text(SCRIPT)
    (made / "parts" / "inner.py").write_text("def twice(number):\n    return 2 * number\n")
    (made / "parts" / "word.json").write_text('"seven"')
    (made / "data.csv").write_text("a,b")
    (made / "large.json").write_bytes(b"0" * (2**20 + 1))
    return made


def test_it_runs_in_another_process_without_its_files(folder, tmp_path):
    sent = SentFunction.of("study", load_script(folder / "script.py").measure)
    assert {"script.py", "parts/inner.py", "parts/word.json"} <= {
        name.removeprefix(sent.script.removesuffix("script.py")) for name in sent.files
    }
    assert not any(name.endswith(("data.csv", "large.json")) for name in sent.files)
    (tmp_path / "sent.pkl").write_bytes(pickle.dumps(sent))
    shutil.rmtree(folder)
    program = (
        "import pickle, sys; from types import SimpleNamespace; "
        "sent = pickle.load(open(sys.argv[1], 'rb')); "
        "print([sent(SimpleNamespace(settings={'number': n}), {}, None) for n in (3, 4)], sent._folder())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "sent.pkl")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    answer, written = done.stdout.strip().rsplit(" ", 1)
    assert answer == """[[6, '"seven"', {}], [8, '"seven"', {}]]"""
    assert not os.path.exists(written), "it is removed when the process ends"


def test_what_cannot_be_sent_is_said(folder, monkeypatch):
    with pytest.raises(InputError, match="study: on a cluster, measure must be a function at the top level of a file"):
        SentFunction.of("study", lambda settings, shared: None)
    monkeypatch.setattr(sent_scripts, "_MOST_BYTES", 10)
    with pytest.raises(InputError, match=r"the folder of script.py holds \d+ files of code and settings, too much to"):
        SentFunction.of("study", load_script(folder / "script.py").measure)
