"""The measured tables of docs/conformal.md are those of its file."""

import importlib.util

from documents import ROOT


def test_the_page_shows_what_was_measured():
    spec = importlib.util.spec_from_file_location("conformal_tables", ROOT / "docs" / "conformal_tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert (ROOT / "docs" / "conformal.md").read_text(encoding="utf-8") == tables.page(), (
        "run python docs/conformal_tables.py"
    )
