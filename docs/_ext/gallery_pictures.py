"""Pictures of the gallery for those who do not see them: the text in place of one is the title of its example."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _get_sg_image_scraper() -> Callable[..., str]:  # the name that sphinx-gallery looks for
    return scrape


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures of a block; the reStructuredText that shows them."""
    from sphinx_gallery.scrapers import matplotlib_scraper  # of the extra `docs`, which the tests do without

    shown = matplotlib_scraper(block, block_vars, gallery_conf)
    return with_title(shown, Path(block_vars["src_file"]))


def with_title(shown: str, script: Path) -> str:
    """Put the title of the script before the titles of a figure's panels, and in place of the file's name."""
    heading = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))).splitlines()[0]
    name = re.sub(r"[-,_]", " ", script.stem)
    return re.sub(
        r"(?<=:alt: )(.*)$",
        lambda match: heading if match[1].strip() in ("", name) else f"{heading} ({match[1]})",
        shown,
        flags=re.MULTILINE,
    )
