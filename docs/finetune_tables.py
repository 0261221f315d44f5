"""Writes the measured table of docs/guide/fine-tuning.md: python docs/finetune_tables.py.

The figures are those of docs/finetune.json, which `python benchmarks/bench_finetune.py --out docs/finetune.json` has
written on a GPU; a test fails where page and file disagree.
"""

from __future__ import annotations

import json
from pathlib import Path

from marked_places import filled

FILE = Path(__file__).with_name("finetune.json")
PAGE = FILE.parent / "guide" / "fine-tuning.md"
NAMES = {
    "whole": "all weights",
    "by layer": "all weights, with `layer_decay`",
    "checkpointing": "all weights, with `gradient_checkpointing`",
    "last two layers": "the last two layers, `freeze: 2` of the encoder",
    "lora 8": "adapters, `lora: 8`",
    "lora 8, checkpointing": "adapters, with `gradient_checkpointing`",
    "frozen": "what follows the frozen encoders",
}


def table() -> str:
    """What is trained × models and precision: milliseconds of a step and GiB of memory."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    rows = {(row["task"], row["precision"], row["way"]): row for row in content["rows"]}
    columns = list(dict.fromkeys((row["task"], row["precision"]) for row in content["rows"]))
    title = (
        f"Milliseconds of a training step and GiB of memory on an {content['device']}, for {content['batch']} samples "
        f"with texts of {content['pieces']} pieces and images of 224 × 224, in 32 bits and in bf16. The models have "
        "the sizes of BERT-base, ViT-B/16 and XLNet-base, and random weights; a dash is what was not measured."
    )
    heads = [f"{task}, {precision}" for task, precision in columns]
    lines = [title, "", f"| trained | {' | '.join(heads)} |", f"|---|{'---:|' * len(columns)}"]
    for way, name in NAMES.items():
        found = [rows.get((*column, way)) for column in columns]
        cells = ["–" if row is None else f"{row['step_ms']:.0f} ms, {row['peak_gib']:.1f} GiB" for row in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """The page with the table."""
    return filled(PAGE, {"fine-tuning": table()})


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print("wrote docs/guide/fine-tuning.md")
