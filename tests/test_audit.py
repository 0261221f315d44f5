"""`make audit` fails where something is found, and where nothing could be checked."""

import importlib.util
import re
import subprocess
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest

_FILE = Path(__file__).parent.parent / ".ci" / "audit.py"
_SPEC = importlib.util.spec_from_file_location("audit", _FILE)
audit = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(audit)


def package(name="x", version="1.0", text=None, **stated):
    metadata = Message()
    for key, value in {"Name": name, **stated}.items():
        for each in value if isinstance(value, list) else [value]:
            metadata[key.replace("_", "-")] = each
    return SimpleNamespace(metadata=metadata, version=version, read_text=lambda name: text)


@pytest.mark.parametrize(
    ("stated", "allowed"),
    [
        ({"License_Expression": "MIT"}, True),
        ({"License_Expression": "Apache-2.0 OR GPL-3.0-only"}, True),
        ({"License_Expression": "Apache-2.0 AND GPL-3.0-only"}, False),
        ({"License_Expression": "Apache-2.0 WITH LLVM-exception AND (MIT OR GPL-2.0)"}, True),
        ({"Classifier": ["License :: OSI Approved :: BSD License", "Topic :: X"]}, True),
        ({"Classifier": ["License :: OSI Approved"], "License": "MIT"}, True),
        ({"Classifier": ["License :: OSI Approved :: GNU General Public License v3 (GPLv3)"]}, False),
        ({"License": "Proprietary\nAll rights reserved"}, False),
        ({"text": "MIT License (MIT)\n\nCopyright"}, True),
        ({"text": "All rights reserved"}, False),
        ({}, False),
    ],
)
def test_licences(stated, allowed):
    assert bool(audit.refused_licences([package(**stated)])) is not allowed


@pytest.mark.parametrize(
    ("answer", "code", "line"),
    [
        (OSError("no network"), 3, "NOT CHECKED, because pip-audit could not be run or has no data: no network"),
        (subprocess.CalledProcessError(1, "pip", stderr="a\nno index"), 3, "NOT CHECKED, .*: no index"),
        ([{"name": "x", "skip_reason": "not found"}], 3, "NOT CHECKED, because the service has no data on any of 1"),
        ([{"name": "x", "version": "1", "vulns": []}], 0, "1 packages checked$"),
        (
            [{"name": "x", "version": "1", "vulns": []}, {"name": "y", "skip_reason": "?"}],
            0,
            "1 packages checked; NOT CHECKED: y$",
        ),
        ([{"name": "x", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}], 1, "x 1 has CVE-1; .*: 2"),
    ],
)
def test_vulnerabilities(monkeypatch, capsys, answer, code, line):
    asked = []

    def ask(versions):
        asked.append(versions)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(audit, "ask_pip_audit", ask)
    assert audit.check_vulnerabilities([package(version="2.6.0+cpu")]) == code
    assert asked == [{"x": "2.6.0"}]
    assert re.search(line, capsys.readouterr().out.strip())
