"""Makes the pictures and printed outputs of docs/compare.md by running what that page says: python docs/pictures.py."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PAGE = Path(__file__).with_name("compare.md")
IMAGES = PAGE.parent / "images"


def run(command: str, folder: Path) -> str:
    """A line of the page that begins with `consilience`, run in a folder; returns what it prints."""
    words = [sys.executable, "-m", "consilience", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def main() -> None:
    """Write the data, run the commands, put their output into the page and their figures beside it."""
    text = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"^consilience .*$", text, re.MULTILINE)
    with TemporaryDirectory() as place:
        folder = Path(place)
        code = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert code is not None
        subprocess.run([sys.executable, "-c", code[1]], cwd=folder, check=True)
        for name, beginning in (("describe", "consilience data describe"), ("compare", "consilience compare")):
            said = run(next(one for one in commands if one.startswith(beginning)), folder)
            before, _, rest = text.partition(f"<!-- said: {name} -->\n")
            after = rest[rest.index("<!-- end -->") :]
            text = f"{before}<!-- said: {name} -->\n```text\n{said}\n```\n{after}"
        for name in re.findall(r"\(images/([\w-]+)\.png\)", text):
            kind, corruption = name.rsplit("-", 1)
            drawn = folder / "runs" / "machines" / "figures" / f"{kind}-machines-{corruption}.png"
            shutil.copyfile(drawn, IMAGES / f"{name}.png")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
