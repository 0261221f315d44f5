"""Write the live page: models that run in a browser, whose modalities can be made noisy, swapped or taken away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from consilience.cli import options
from consilience.core.errors import InputError
from consilience.core.settings import PositiveInt

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "[--out FILE] [options]"
EXAMPLES = """  consilience demo
  consilience demo --out live.html --open
  consilience demo --out site/live.html --home index.html"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the file, its link and the length of training."""
    parser.add_argument("--out", type=str, default="live.html", metavar="FILE", help=".html page, which is replaced")
    options.add_option(parser, "epochs", PositiveInt, "at most so many epochs for each model", default=40)
    parser.add_argument(
        "--home", type=str, metavar="ADDRESS", help="start page of a site, to which the page links back"
    )
    parser.add_argument("--open", action="store_true", help="show the page in the browser")


def run(chosen: Namespace, command: list[str]) -> None:
    """Train the models of the page, write it and say where it is."""
    path = Path(chosen.out)
    if path.suffix != ".html":
        raise InputError(f"demo: --out must end in .html, got {path.name!r}")
    options.check_out_file("demo", "out", path, [])
    from consilience.live.page import write_live_page

    print("training eight small models, which takes about a minute …", flush=True)
    written = write_live_page(path, epochs=chosen.epochs, home=chosen.home)
    print(f"live page: {written}")
    if chosen.open:
        import webbrowser

        webbrowser.open(written.resolve().as_uri())
