"""The site: sphinx-build docs build/site, or `make docs`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS / "_ext")]

import api_pages  # noqa: E402
import cheat_sheet  # noqa: E402
import house_map  # noqa: E402

import consilience  # noqa: E402

project = "consilience"
author = "The consilience developers"
copyright = author
version = release = consilience.__version__

extensions = [
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "repository_links",
]
exclude_patterns = [
    "_ext",
    "_templates",
    "_static",
    "checks",
    "live",
    "**/GALLERY_HEADER.rst",
    "**/sg_execution_times.rst",
]
nitpicky = True
default_role = "code"
highlight_language = "text"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "repository": None}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# A gallery script that fails ends the build.
sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("gallery_pictures",),
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
    "plot_gallery": "True",
    "thumbnail_size": (480, 240),  # nearly the shape of most pictures
}

html_theme = "furo"
html_title = f"consilience {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js", "scroll_cue.js"]
templates_path = ["_templates"]
html_show_sourcelink = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#a3421f", "color-brand-content": "#a3421f"},
    "dark_css_variables": {"color-brand-primary": "#f0a17f", "color-brand-content": "#f0a17f"},
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
# The versions that the switch offers; paths are relative to the root of this version's site.
html_context = {"versions": json.loads((DOCS / "versions.json").read_text(encoding="utf-8"))}
LIVE = (DOCS / "live" / "index.html").is_file()
html_context["live"] = LIVE


def toctree(*entries: str, caption: str = "", depth: int = 1) -> str:
    """A list of pages for the navigation, not shown on the page itself."""
    options = f":hidden:\n:maxdepth: {depth}\n" + (f":caption: {caption}\n" if caption else "")
    return "\n\n:::{toctree}\n" + options + "\n" + "\n".join(entries) + "\n:::\n"


def existing(*names: str) -> list[str]:
    """Those of the pages that are there; others are written by parts of the project that may be absent."""
    return [name for name in names if (DOCS / f"{name}.md").is_file()]


# The navigation. A page's entry here is appended to its text; the documents themselves stay plain Markdown.
toctrees = {
    "index": "".join(
        [
            toctree("start", "choose", "gallery/index", "faq", "cheat-sheet", caption="Start", depth=2),
            toctree(
                "guide",
                *(
                    f"guide/{page}"
                    for page in ("own-data", "images-and-text", "missing", "splits", "training", "fine-tuning")
                ),
                "guide/encoders",
                "compare",
                "robust",
                "conformal",
                "use",
                "watching",
                *(f"guide/{page}" for page in ("explaining", "measuring", "opinions-in-files")),
                *existing("serving", "export", "scale", "guide/serving", "guide/export", "guide/scale"),
                *(f"guide/{page}" for page in ("other-libraries", "saving", "errors")),
                caption="Guides",
            ),
            toctree("theory", "bayes", "trust", "progressive", "latent", "methods", caption="Theory"),
            toctree("api/index", "data-sets", caption="Reference"),
            toctree("results", "reproduce", "protocols", "defaults", caption="Results"),
            toctree(
                "project/contributing",
                "project/house",
                "add-a-dataset",
                "what-can-go-wrong",
                "project/security",
                "project/changelog",
                caption="The project",
            ),
        ]
    ),
    "results": toctree(*sorted(f"results/{path.stem}" for path in (DOCS / "results").glob("*.md"))),
}


def write_generated(app: Any) -> None:
    """Write what is made from the code at every build: the API pages, the map of the house, the cheat sheet as PDF."""
    names = api_pages.write(DOCS / "api")
    app.config.toctrees["api/index"] = toctree(*names)
    house_map.draw(DOCS / "_generated" / "house.svg")
    cheat_sheet.draw(DOCS / "cheat-sheet.md", DOCS / "_generated" / "cheat-sheet.pdf")


def add_live_page(app: Any, error: Exception | None) -> None:
    """Put the live page, a file of its own, beside the others."""
    if LIVE and error is None:
        shutil.copytree(DOCS / "live", Path(app.outdir) / "live", dirs_exist_ok=True)


def live_link(app: Any, docname: str, source: list[str]) -> None:
    """The first page leads to the live page if there is one."""
    if docname == "index":
        card = (DOCS / "_templates" / "live_card.md").read_text(encoding="utf-8") if LIVE else ""
        source[0] = source[0].replace("<!-- live page -->", card)


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_generated, priority=100)
    app.connect("source-read", live_link)
    app.connect("build-finished", add_live_page)
