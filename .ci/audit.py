"""Audits the installed packages: their licences, and known vulnerabilities where the data on them can be had.

Exit code 0: everything was checked and nothing found; 1: something was found; 3: vulnerabilities could not be checked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

OWN = "consilience"
# Permissive licences, and the MPL, whose conditions end at its own files. A list says "and" by commas.
ALLOWED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"),
    *("CNRI-Python", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"),
}
# Names of licences before SPDX had expressions for them → the expression.
OLDER = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT License (MIT)": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


def main() -> int:
    """Print one line for each check, and return the exit code."""
    installed = [package for package in distributions() if package.metadata["Name"] != OWN]
    refused = refused_licences(installed)
    for name, licence in refused.items():
        print(f"licences: {name} has {licence!r}, which is not on the list in {Path(__file__).name}")
    if not refused:
        print(f"licences: those of {len(installed)} packages are on the list")
    vulnerabilities = check_vulnerabilities(installed)
    return 1 if refused else vulnerabilities


def refused_licences(packages: Iterable[Distribution]) -> dict[str, str]:
    """Return package → licence, of packages whose licence is not on the list."""
    licences = {package.metadata["Name"]: licence_of(package) for package in packages}
    return {name: licence for name, licence in sorted(licences.items()) if not is_allowed(licence)}


def licence_of(package: Distribution) -> str:
    """Return the licence that a package states: an expression, else classifiers, else the first line of its text."""
    stated = package.metadata
    if expression := stated.get("License-Expression"):
        return expression
    classifiers = [line.split("::")[-1].strip() for line in stated.get_all("Classifier") or [] if "License ::" in line]
    named = [OLDER.get(name, name) for name in classifiers if name != "OSI Approved"]
    texts = (stated.get("License"), package.read_text("licenses/LICENSE"), package.read_text("LICENSE"), "none stated")
    first = next(text for text in texts if text).strip().partition("\n")[0]
    return " AND ".join(named) or OLDER.get(first, first)


def is_allowed(licence: str) -> bool:
    """Return whether a licence, or one of each alternative, is on the list."""
    parts = re.split(r"\s+AND\s+", licence.replace("(", "").replace(")", ""))
    return all(any(OLDER.get(name, name) in ALLOWED for name in re.split(r"\s+OR\s+", part)) for part in parts)


def check_vulnerabilities(packages: Iterable[Distribution]) -> int:
    """Ask pip-audit, print the result, and return the exit code."""
    # A local version such as 2.6.0+cpu is unknown to every service; it was built from 2.6.0.
    versions = {package.metadata["Name"]: package.version.partition("+")[0] for package in packages}
    try:
        found = ask_pip_audit(versions)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines() or [type(error).__name__]
        print(f"vulnerabilities: NOT CHECKED, because pip-audit could not be run or has no data: {last[-1]}")
        return 3
    checked = [entry for entry in found if "vulns" in entry]
    unknown = [entry["name"] for entry in found if "vulns" not in entry]
    if not checked:
        print(f"vulnerabilities: NOT CHECKED, because the service has no data on any of {len(found)} packages")
        return 3
    for entry in checked:
        for known in entry["vulns"]:
            fixed = ", ".join(known.get("fix_versions", [])) or "none"
            print(f"vulnerabilities: {entry['name']} {entry['version']} has {known['id']}; fixed in: {fixed}")
    print(
        f"vulnerabilities: {len(checked)} packages checked" + (f"; NOT CHECKED: {', '.join(unknown)}" * bool(unknown))
    )
    return int(any(entry["vulns"] for entry in checked))


def ask_pip_audit(versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return pip-audit's answer on each package; the tool is installed into an environment of its own."""
    tool = Path(sys.prefix) / "audit"
    if not (tool / "bin" / "pip-audit").exists():
        venv.create(tool, with_pip=True)
        install = [tool / "bin" / "python", "-m", "pip", "install", "--quiet", "pip-audit"]
        subprocess.run(install, check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as folder:
        listed, answer = Path(folder) / "packages.txt", Path(folder) / "answer.json"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in sorted(versions.items())))
        options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        command = [tool / "bin" / "pip-audit", *options, "--requirement", listed, "--output", answer]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        if not answer.exists() or not answer.read_text():
            raise subprocess.SubprocessError(ran.stderr)
        return list(json.loads(answer.read_text())["dependencies"])


if __name__ == "__main__":
    sys.exit(main())
