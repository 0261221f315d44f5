"""Write a saved model as one file for other software: ONNX, or an exported program of torch, after a check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from consilience.cli import options
from consilience.cli.explain import load_predictor

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "MODEL [--format onnx|torch] [--out FILE]"
EXAMPLES = """  consilience export model
  consilience export runs/machines/best --out machines.onnx
  consilience export model --format torch --out model.pt2"""
_ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}


def add_arguments(parser: ArgumentParser) -> None:
    """Add model, format and file."""
    parser.add_argument("model", type=str, help="folder written by train or compare")
    help = "onnx, or torch for an exported program; if absent, by the suffix of --out, else onnx"
    options.add_option(parser, "format", Literal["onnx", "torch"] | None, help, metavar="FORMAT")
    help = "the file; MODEL.onnx or MODEL.pt2 beside the folder if absent"
    parser.add_argument("--out", type=str, metavar="FILE", help=help)
    options.add_passed_encoders(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Export, and print where the file is."""
    folder = Path(chosen.model)
    if chosen.out is None:
        name = folder.resolve().name
        out = folder.resolve().parent / f"{name}{_ENDINGS[chosen.format or 'onnx']}"
    else:
        out = Path(chosen.out)
    options.check_out_file("export", "out", out, [])
    model = load_predictor("export", chosen)
    written = model.export(out, format=chosen.format)
    size = written.stat().st_size / 1e6
    print(f"written: {chosen.out or written} ({size:.1f} MB), checked to give the same numbers", file=sys.stdout)
