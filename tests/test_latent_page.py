"""The measured tables of docs/latent.md are those of its file."""

import importlib.util

from documents import ROOT


def test_the_page_shows_what_was_measured():
    spec = importlib.util.spec_from_file_location("latent_tables", ROOT / "docs" / "latent_tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert {"cost", "noise"} <= set(tables.tables())
    assert (ROOT / "docs" / "latent.md").read_text(encoding="utf-8") == tables.page(), (
        "run python docs/latent_tables.py"
    )
