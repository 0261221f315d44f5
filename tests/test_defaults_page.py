"""The measured tables of docs/defaults.md are those of its file."""

import importlib.util

from documents import ROOT


def test_the_page_shows_what_was_measured():
    spec = importlib.util.spec_from_file_location("defaults_tables", ROOT / "docs" / "defaults_tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    names = {"experts", "fused", "rule", "refit", "similar", "order", "loop", "bench", "conditions", "regret"}
    assert set(tables.tables()) == names
    page = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")
    assert page == tables.written(page), "run python docs/defaults_tables.py"
