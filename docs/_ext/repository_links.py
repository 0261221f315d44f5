"""A Sphinx extension: pages for the files that documents link to, and links that lead there (see `site_links`)."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from site_links import OUTSIDE, ROOT, SCHEME, page_of, site_text
from sphinx.application import Sphinx


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


# Of these folders every file has a page; of others the files that a document links to.
WHOLE = ("examples", "papers")


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every file and folder that is linked to."""
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
            if path.split("/")[0] in WHOLE:
                names = [child.relative_to(ROOT).as_posix() for child in children]
                left += names
                shown(app).update(names)
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
    """A list of a folder's files; those that have a page are linked."""
    items = []
    for child in children:
        item = f"<code>{html.escape(child.name)}{'/' * child.is_dir()}</code>"
        if f"{path}/{child.name}" in shown(app):
            uri = app.builder.get_relative_uri(page_of(path), page_of(f"{path}/{child.name}"))
            item = f'<a href="{uri}">{item}</a>'
        items.append(f"<li>{item}</li>")
    return f"<ul>{''.join(items)}</ul>"


def file_body(target: Path) -> str:
    """A file's text in colour, each line with an anchor."""
    try:
        lexer = get_lexer_for_filename(target.name)
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", cssclass="highlight", wrapcode=True)
    return highlight(target.read_text(encoding="utf-8"), lexer, formatter)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.add_config_value("toctrees", {}, "env")
    app.connect("source-read", rewrite)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
