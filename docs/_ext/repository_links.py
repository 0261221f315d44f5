"""Makes the repository's own links work on the site.

The documents link to each other as files, so that they can be read in the repository. On the site a document outside of
`docs` is a page of its own (`OUTSIDE`), and any other file or folder of the repository is a page under `source/` that
shows it. Headings of contents at the top of a document are left out: the theme has its own.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
SCHEME = "repository:"
# Documents outside of docs → the page of the site that shows them.
OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changelog",
    "SECURITY.md": "project/security",
}
README_PAGE = "index"
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
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
    pieces = _FENCE.split(_CONTENTS.sub("", text, count=1))
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
    if target.is_relative_to(DOCS) and target.is_file() and target.suffix != ".py":
        return f"/{target.relative_to(DOCS).as_posix()}{hash_sign}{anchor}"
    return f"{SCHEME}{inside}{hash_sign}{anchor}"


def page_of(path: str) -> str:
    """The page that shows a file or folder of the repository."""
    return f"source/{path}"


def rewrite(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a document the text that the site shows."""
    outside = next((path for path, page in OUTSIDE.items() if page == docname), None)
    document = ROOT / outside if outside else Path(app.env.doc2path(docname))
    if document.suffix == ".md":
        text = document.read_text(encoding="utf-8") if outside else source[0]
        source[0] = site_text(text, document.parent) + app.config.toctrees.get(docname, "")


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Point links to files of the repository to the pages that show them."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        if uri.startswith(SCHEME):
            path, hash_sign, anchor = uri.removeprefix(SCHEME).partition("#")
            shown(app).add(path)
            node["refuri"] = app.builder.get_relative_uri(docname, page_of(path)) + hash_sign + anchor
            node["internal"] = True


def shown(app: Sphinx) -> set[str]:
    """The files and folders that pages link to."""
    if not hasattr(app, "_repository_files"):
        app._repository_files = set()
    return app._repository_files


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every file and folder that is linked to, and for what these folders contain."""
    left, done = sorted(shown(app)), set()
    while left:
        path = left.pop().rstrip("/")
        if path in done:
            continue
        done.add(path)
        target = ROOT / path
        if not target.exists():
            raise FileNotFoundError(f"a document links to {path}, which the repository does not have")
        if target.is_dir():
            children = sorted(child for child in target.iterdir() if listed(child))
            left += [child.relative_to(ROOT).as_posix() for child in children]
            body = folder_body(app, path, children)
        else:
            body = file_body(target)
        yield page_of(path), {"title": path, "body": f"<h1>{html.escape(path)}</h1>{body}"}, "page.html"


def listed(child: Path) -> bool:
    """Whether a folder's page lists a file: text that somebody wrote."""
    if child.is_dir():
        return not child.name.startswith((".", "_")) and any(listed(inner) for inner in child.iterdir())
    return child.suffix in (".py", ".md", ".yaml", ".js", ".css", ".html", ".toml", ".txt", ".cff")


def folder_body(app: Sphinx, path: str, children: list[Path]) -> str:
    """A list of a folder's files, linked."""
    items = []
    for child in children:
        uri = app.builder.get_relative_uri(page_of(path), page_of(f"{path}/{child.name}"))
        items.append(f'<li><a href="{uri}"><code>{html.escape(child.name)}{"/" * child.is_dir()}</code></a></li>')
    return f"<ul>{''.join(items)}</ul>"


def file_body(target: Path) -> str:
    """A file's text in colour, each line with an anchor."""
    try:
        lexer = get_lexer_for_filename(target.name)
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", cssclass="highlight", wrapcode=True)
    return highlight(target.read_text(encoding="utf-8"), lexer, formatter)


def relative_source(path: str | Path, line: int | None = None) -> str:
    """A link, for a generated document, to a file of the repository."""
    return f"{SCHEME}{PurePosixPath(Path(path).resolve().relative_to(ROOT))}" + (f"#L-{line}" if line else "")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.add_config_value("toctrees", {}, "env")
    app.connect("source-read", rewrite)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
