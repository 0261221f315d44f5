"""The printed outputs of docs/what-can-go-wrong.md are those of docs/checks."""

import importlib.util

from documents import ROOT


def test_the_page_shows_what_was_printed():
    spec = importlib.util.spec_from_file_location("check_outputs", ROOT / "docs" / "check_outputs.py")
    outputs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(outputs)
    assert any(outputs.OUTPUTS.iterdir())
    assert outputs.PAGE.read_text(encoding="utf-8") == outputs.page(), "run python docs/check_outputs.py"
