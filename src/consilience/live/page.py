"""The live page: one HTML file without a network, in which models run and their modalities can be disturbed."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.core.files import write_atomically
from consilience.live.graph_json import Block
from consilience.live.scenes import Scene, digits, machine, scene_json
from consilience.version import __version__

_TEMPLATES = Path(__file__).with_name("templates")
_SCRIPTS = ("graph.js", "live.js")


def write_live_page(
    path: str | Path, scenes: Sequence[Scene] | None = None, epochs: int = 40, home: str | None = None
) -> Path:
    """Train the models of the live page and write it.

    Args:
        path: The file, which is replaced.
        scenes: What it shows; None: the digits and the machine.
        epochs: At most so many for each method.
        home: Where the page leads back to, such as "../index.html"; None: it has no link.

    Returns:
        The path.

    Raises:
        InputError: If onnx or onnxruntime is not installed.
    """
    block = Block()
    described = [
        scene_json(scene, block, epochs=epochs) for scene in ((digits(), machine()) if scenes is None else scenes)
    ]
    return write_atomically(path, render(described, block, home))


def render(scenes: Sequence[dict[str, Any]], block: Block, home: str | None = None) -> str:
    """Return the page of scenes in plain values, with a link to `home` if it is given."""
    from jinja2 import ChoiceLoader, FileSystemLoader
    from markupsafe import Markup

    from consilience.report.page import environment

    templates = environment()
    loader = templates.loader
    assert loader is not None
    templates.loader = ChoiceLoader([FileSystemLoader(_TEMPLATES), loader])
    in_report: Any = templates.globals["file"]

    def file(name: str) -> Any:
        own = _TEMPLATES / name
        return Markup(own.read_text(encoding="utf-8")) if own.is_file() else in_report(name)  # noqa: S704  # our own files

    templates.globals["file"] = file
    packed = {
        "scenes": _packed(json.dumps(list(scenes), allow_nan=False, separators=(",", ":")).encode()),
        "block": _packed(bytes(block.content)),
    }
    page = templates.get_template("live.html.jinja")
    return page.render(
        title="Touch trust: multimodal fusion, live",
        scripts_of_page=_SCRIPTS,
        packed=packed,
        home=home,
        version=__version__,
    )


def _packed(content: bytes) -> str:
    # Without a time, so that the same models make the same page.
    return base64.b64encode(gzip.compress(content, compresslevel=9, mtime=0)).decode()
