"""Writes docs/results.md and a page for each experiment from the files in docs/results: python docs/results.py.

A result file is what an experiment wrote into its run folder at full size, kept by
`python docs/results.py keep NAME FOLDER`, NAME being the name of its file in `papers`; a REMARK after the folder says,
without figures, how the run differed from its protocol. No number on the pages or in the README's table is
typed by hand; a test fails where pages and files disagree.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from consilience.data.named_sets import DATA_VARIABLE
from consilience.report.document import TextTable, document_markdown
from consilience.report.text_table import markdown_escape, markdown_table
from consilience.reproduction.papers import find_paper

PAGE = Path(__file__).with_name("results.md")
FILES = PAGE.parent / "results"
README = PAGE.parent.parent / "README.md"
SHOWN = "qmf-handwritten"  # the experiment whose table the README shows
HEAD = """# Results

What `consilience reproduce NAME` gave, experiment by experiment: the answer here, tables and reasons behind the link.
Where it says *quick form*, the run was that of `--quick`: fewer seeds, often smaller sets and shorter training. Each
page says which, and what could not be decided.
Written by `docs/results.py` from what the runs stored in [results](results).
"""


def keep(name: str, folder: Path, remark: str = "") -> None:
    """Take over what a run folder's page says, and its figures."""
    text = (folder / "report.json").read_text(encoding="utf-8")
    if root := os.environ.get(DATA_VARIABLE):
        text = text.replace(root.rstrip("/") + "/", "DIR/")  # wherever the data lie
    told = json.loads(text)
    quick = " --quick" if "--quick" in told["command"].split() else ""
    told["command"] = f"consilience reproduce {find_paper(name).stem}{quick}"  # wherever it was run
    told["remark"] = remark
    FILES.mkdir(exist_ok=True)
    shutil.rmtree(FILES / name, ignore_errors=True)
    for section in told["sections"]:
        section["links"] = []  # to reports of the run folder, which is not kept
        for figure in section["figures"]:
            (FILES / name).mkdir(exist_ok=True)
            shutil.copy(folder / "figures" / f"{figure['name']}.svg", FILES / name)
    (FILES / f"{name}.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept() -> dict[str, dict[str, Any]]:
    """Every result by its experiment."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FILES.glob("*.json"))}


def pages() -> dict[Path, str]:
    """Every page's text: the overview, and one for each experiment."""
    results = kept()
    parts = [HEAD]
    for name, told in results.items():
        titled = told["title"] if told["title"].endswith(("?", ".")) else told["title"] + "."
        paper = f" {told['paper']}." if told["paper"] else ""
        size = ", quick form" if told["command"].endswith("--quick") else ""
        parts += [f"## [`{name}`](results/{name}.md){size}", titled + paper]
        parts += ["\n".join(f"- {sentence}" for sentence in told["answer"])]
        parts += [told["remark"]] if told.get("remark") else []
    overview = "\n\n".join(part.strip() for part in parts) + "\n"
    return {PAGE: overview} | {
        FILES / f"{name}.md": document_markdown(with_remark(told), f"{name}/{{}}.svg") for name, told in results.items()
    }


def with_remark(told: dict[str, Any]) -> dict[str, Any]:
    """The remark of a run, if there is one, after its answer."""
    return told | {"answer": [*told["answer"], *([told["remark"]] if told.get("remark") else [])]}


def shown() -> str:
    """The README's table: the first of its experiment."""
    told = kept()[SHOWN]
    table = TextTable(**next(table for section in told["sections"] for table in section["tables"]))
    rows = [[markdown_escape(cell) for cell in row] for row in table.rows]
    drawn = markdown_table([markdown_escape(name) for name in table.header], rows)
    return f"<!-- result: {SHOWN} -->\n{table.caption}\n\n{drawn.strip()}\n<!-- end -->"


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(sys.argv[2], Path(sys.argv[3]), *sys.argv[4:5])
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    before, _, rest = README.read_text(encoding="utf-8").partition(f"<!-- result: {SHOWN} -->")
    README.write_text(before + shown() + rest.partition("<!-- end -->")[2], encoding="utf-8")
