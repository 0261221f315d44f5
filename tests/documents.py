"""The repository's documents, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(path for folder in ("docs", "docs/guide", "docs/project") for path in sorted((ROOT / folder).glob("*.md"))),
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

# Documents that have tables, prose, shell or YAML, and no Python.
WITHOUT_PYTHON = {
    *("results.md", "protocols.md", "SECURITY.md", "guide.md", "reproduce.md", "opinions-in-files.md"),
    *("contributing.md", "changelog.md", "security.md", "house.md"),
}

_FENCE = re.compile(
    r"(?:^<!-- needs: (?P<needs>[\w-]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A fenced block: its language, its code, how many lines of the document come before it, the data set it needs.

    A block that needs a set which does not come with the library, `<!-- needs: NAME -->`, stands alone.
    """

    language: str
    code: str
    lines_before: int
    needs: str | None


def blocks(document: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a document in these languages, or all of them.

    >>> {block.language for block in blocks(ROOT / "README.md", "shell")}
    {'shell'}
    """
    text = document.read_text(encoding="utf-8")
    found = [
        Block(match["language"], match["code"], text[: match.start("code")].count("\n"), match["needs"])
        for match in _FENCE.finditer(text)
    ]
    assert len(found) == len(re.findall(r"^\s*```", text, re.MULTILINE)) / 2, f"{document.name}: an unclosed fence"
    return [block for block in found if not languages or block.language in languages]


def prose(document: Path) -> str:
    """A document without its fenced blocks."""
    return _FENCE.sub("", document.read_text(encoding="utf-8"))
