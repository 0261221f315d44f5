"""Where the links of documents lead on the site.

The documents link to each other as files, so that they can be read in the repository. On the site a document outside of
`docs` is a page of its own (`OUTSIDE`), a script of the gallery is its page there, and any other file or folder of the
repository is a page under `source/` that shows it.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
SCHEME = "repository:"
GALLERY = ROOT / "examples" / "gallery"  # whose scripts are pages of the gallery
# Documents outside of docs → the page of the site that shows them.
OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changelog",
    "SECURITY.md": "project/security",
}
README_PAGE = "index"
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CONTENTS = re.compile(r"(?:^ *- \[[^\]]+\]\(#[^)]+\)\n){2,}", re.MULTILINE)


def site_text(text: str, folder: Path) -> str:
    """A document's text with links as the site needs them.

    Args:
        text: Markdown whose links are relative to `folder`.
        folder: The folder of the document.

    Returns:
        The same Markdown; links to documents are absolute within the site, other files have the scheme `repository:`.
    """
    pieces = FENCE.split(_CONTENTS.sub("", text, count=1))
    pieces[::2] = [_LINK.sub(lambda match: f"]({site_link(match[1], folder)})", piece) for piece in pieces[::2]]
    return "".join(pieces)


def site_link(link: str, folder: Path) -> str:
    """Where a link of a document in this folder leads on the site."""
    path, hash_sign, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", path) or path.startswith("/"):
        return link
    target = (folder / path).resolve()
    if not target.is_relative_to(ROOT):
        return link
    inside = target.relative_to(ROOT).as_posix()
    if inside in OUTSIDE:
        return f"/{OUTSIDE[inside]}.md{hash_sign}{anchor}"
    if inside == "README.md":
        return f"/{README_PAGE}.md"
    if target.parent == GALLERY and target.suffix == ".py":
        return f"/gallery/{target.stem}.rst{hash_sign}{anchor}"
    if target.is_relative_to(DOCS) and target.is_file() and target.suffix != ".py":
        return f"/{target.relative_to(DOCS).as_posix()}{hash_sign}{anchor}"
    return f"{SCHEME}{inside}{hash_sign}{anchor}"


def page_of(path: str) -> str:
    """The page that shows a file or folder of the repository."""
    return f"source/{path}"


def relative_source(path: str | Path, line: int | None = None) -> str:
    """A link, for a generated document, to a file of the repository."""
    return f"{SCHEME}{PurePosixPath(Path(path).resolve().relative_to(ROOT))}" + (f"#L-{line}" if line else "")
