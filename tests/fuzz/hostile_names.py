"""Hostile names of sets, modalities, methods and classes: a report is a harmless page, and nothing else is touched."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import consilience
from fuzz.fuzzers import Fuzzer, register

NAMES = (
    *(
        "<script>alert(1)</script>",
        "</script><script>x</script>",
        '"><img src=x onerror=alert(1)>',
        "<!--",
        "]]>",
        "&lt;",
    ),
    *(
        "a\nb",
        "a\r\nb",
        "\t",
        "\0",
        "\x1b[31m",
        "\u202egpj",
        "\u2028",
        "\ufeff",
        "e\u0301",
        "\U0001f600",
        "$x^2$",
        "$\\frac{",
    ),
    *(
        "\ud800",
        "a\udfffb",
        "x" * 500,
        "é" * 300,
        "",
        " ",
        ".",
        "..",
        "../..",
        "../precious",
        "/",
        "a/b",
        "a\\b",
        "C:\\x",
    ),
    *(
        "CON",
        "nul.txt",
        "a" * 254,
        ".hidden",
        "~",
        "$HOME",
        "%s%n",
        "{0}",
        "{{ 1 }}",
        "{% x %}",
        "late@x",
        "a|b",
        "[red]x[/]",
    ),
    *(
        "`x`",
        "**",
        "_a_",
        "\\begin{x}",
        "#",
        "a,b",
        "'; --",
        "javascript:alert(1)",
        "0",
        "-1",
        "nan",
        "None",
        "True",
        "A",
        "a",
    ),
)


def draw_names(random: Random, count: int, halves: bool = True) -> list[str]:
    """Draw different names, some of them joined from two; with lone surrogates or without."""
    found: dict[str, None] = {}
    while len(found) < count:
        joined = random.choice(NAMES) + random.choice(("", "", "", random.choice(NAMES)))
        if halves or joined.encode("utf-8", "ignore").decode() == joined:
            found[joined] = None
    return list(found)


def draw_report(random: Random) -> dict[str, Any]:
    """Draw the names that a report shows; the tables in which results are kept have no lone surrogates."""
    return {
        "sets": draw_names(random, random.randint(1, 2), False),
        "methods": draw_names(random, random.randint(1, 3), False),
        "corruptions": draw_names(random, random.randint(1, 2), False),
        "modalities": draw_names(random, 2, False),
        "error": draw_names(random, 1, False)[0],
        "task": random.choice(("classification", "regression")),
    }


def run_report(case: dict[str, Any]) -> None:
    """Write a report, and read its page as a browser would."""
    from consilience.report import write_report
    from report.factory import make_findings

    findings = make_findings(
        sets=case["sets"],
        methods=["late", *case["methods"]],
        corruptions=case["corruptions"],
        levels=(0.0, 5.0),
        seeds=2,
        task=case["task"],
        modalities=case["modalities"],
        skipped=[(case["methods"][0] + "!", case["error"])],
        failed=[("late", 1, case["error"])],
    )
    with tempfile.TemporaryDirectory() as around:
        home = _home(Path(around))
        before = tree(home, home / "run")
        page = write_report(findings, home / "run")
        assert page == home / "run" / "report.html"
        check_page(page)
        for path in (home / "run").rglob("*"):
            assert path.resolve().is_relative_to((home / "run").resolve())
        assert tree(home, home / "run") == before


def _home(folder: Path) -> Path:
    """A folder with something beside, above and below a run folder that must not change."""
    for name in ("precious", "a", "x/precious"):
        (folder / "home" / name).mkdir(parents=True)
        (folder / "home" / name / "data.npy").write_bytes(b"years of work")
    return folder / "home"


def tree(folder: Path, but: Path) -> dict[Path, bytes | None]:
    """Every path below the parent of a folder with its content; `but` is left out."""
    return {
        path: path.read_bytes() if path.is_file() else None
        for path in folder.parent.rglob("*")
        if but not in (path, *path.parents)
    }


OWN_SCRIPTS = {
    path.read_text(encoding="utf-8").strip()
    for path in (Path(consilience.__path__[0]) / "report/templates").glob("*.js")
}


def check_page(path: Path) -> None:
    """Check that a page is whole, and that it has no scripts but our own and loads nothing."""
    from report.test_page import LOADS, Page, allows_only_its_own

    source = path.read_text(encoding="utf-8")
    page = Page(source)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", source, re.DOTALL)
    assert len(scripts) == len(page.all("script"))
    for attributes_of_script, text in scripts:
        if "application/json" in attributes_of_script:
            assert "<" not in text
        else:
            assert text.strip() in OWN_SCRIPTS
    assert not [tag for tag, _ in page.elements if tag in ("link", "img", "iframe", "object", "embed", "form", "base")]
    for tag, attributes in page.elements:
        assert not LOADS & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert (attributes.get("href") or "#").startswith("#"), (tag, attributes)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert allows_only_its_own(source, policy)


register(Fuzzer("reports", "reports", draw_report, run_report, seconds=120, examples=3))


def draw_run(random: Random) -> dict[str, Any]:
    """Draw the names in a comparison."""
    return {
        "sets": draw_names(random, random.randint(1, 2)),
        "modalities": draw_names(random, 2),
        "classes": draw_names(random, 3),
        "variant": random.choice(NAMES),
        "out": random.choice((True, True, False)),
    }


def run_run(case: dict[str, Any]) -> None:
    """Compare methods on sets with these names: everything stays in the run folder, and the best model loads."""
    from consilience import Samples, compare, load
    from consilience.data import DataSet
    from consilience.data.splits import draw_split

    def make(name: str) -> Any:
        rng = np.random.default_rng(0)
        y = np.arange(60) % 3
        labels = np.array(case["classes"], dtype=object)[y]
        values = {each: np.eye(3)[y] + rng.normal(scale=0.6, size=(60, 3)) for each in case["modalities"]}
        return DataSet(name, Samples.of(values, labels), "classification", *draw_split(labels, "classification"))

    with tempfile.TemporaryDirectory() as around:
        home = _home(Path(around))
        here = os.getcwd()
        os.chdir(home)
        try:
            sets = [make(name) for name in case["sets"]]
            variant = f"late@{case['variant']}"
            run = home / ("run" if case["out"] else "runs")
            before = tree(home, run)
            done = compare(
                sets,
                ["late", variant],
                settings={variant: {"expert_loss": 0.5}},
                training={"epochs": 1},
                verbose=0,
                seeds=1,
                levels=(5,),
                out=run if case["out"] else None,
            )
            assert tree(home, run) == before, "something outside of the run folder has changed"
            assert not len(done.findings.failed), done.findings.failed["error"].to_list()
            for folder, data in zip(done.bests.values(), sets, strict=True):
                assert folder.resolve().is_relative_to(run.resolve())
                assert np.isfinite(load(folder).predict_proba(data.test)).all()
            check_page(done.folder / "report.html")
        finally:
            os.chdir(here)


register(Fuzzer("run names", "reports", draw_run, run_run, seconds=120, examples=2))
