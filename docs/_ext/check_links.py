"""Checks a built site: python docs/_ext/check_links.py build/site.

Every link inside the site must lead to a file and, with an anchor, to an element of it. No page may load anything
from another host.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

# Elements whose address is fetched when a page is read, and the attribute that has it.
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
NOT_FETCHED = {"canonical", "alternate", "author", "help", "license", "prev", "next", "search", "index"}


class Page(NamedTuple):
    """A page: what its elements are called, its links, and what it loads."""

    anchors: set[str]
    links: set[str]
    loaded: set[str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page(set(), set(), set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.page.anchors.update(name for name in (told.get("id"), told.get("name") if tag == "a" else None) if name)
        address = told.get(LOADED.get(tag, "href" if tag == "a" else ""))
        if not address:
            return
        fetched = tag in LOADED and not (tag == "link" and set((told.get("rel") or "").split()) & NOT_FETCHED)
        (self.page.loaded if fetched else self.page.links).add(address)


def read(path: Path) -> Page:
    """The anchors, links and loaded files of a page."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def problems(site: Path) -> list[str]:
    """What is wrong with a site, a sentence each.

    Args:
        site: The folder of the built site.

    Returns:
        Links that lead nowhere, and what pages load from other hosts.
    """
    site = site.resolve()
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no page"]
    for path, page in pages.items():
        told = path.relative_to(site)
        found += [f"{told} loads {address} from another host" for address in sorted(page.loaded) if foreign(address)]
        for address in sorted(page.links | page.loaded):
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target, anchor = leads_to(path, address)
            if not target.is_relative_to(site) or not target.is_file():
                found.append(f"{told} links to {address}, which does not exist")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{told} links to {address}; that page has no such anchor")
    return found


def foreign(address: str) -> bool:
    """Whether an address is on another host."""
    return address.startswith("//") or urlsplit(address).scheme in ("http", "https")


def leads_to(page: Path, address: str) -> tuple[Path, str]:
    """The file that a relative address leads to, and the anchor in it."""
    parts = urlsplit(address)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return (target / "index.html" if target.is_dir() else target), unquote(parts.fragment)


if __name__ == "__main__":
    said = problems(Path(sys.argv[1]))
    print("\n".join(said) or f"every link of {sys.argv[1]} leads somewhere")
    sys.exit(bool(said))
