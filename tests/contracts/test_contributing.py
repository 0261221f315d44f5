"""The method that CONTRIBUTING adds in one file: found in its package, registered, and held to the whole contract."""

import sys

import pytest

import consilience.methods.fusion
from consilience import methods
from consilience.core.registry import import_all
from contracts.contract import CONTRACT, built_in, cases
from documents import ROOT, blocks

MODULE = "consilience.methods.fusion.maximum"


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """Drop the file into the room, as a newcomer would; yields task → the set it is tested on."""
    (code,) = [block.code for block in blocks(ROOT / "CONTRIBUTING.md", "python") if '@register("max")' in block.code]
    folder = tmp_path_factory.mktemp("fusion")
    (folder / "maximum.py").write_text(code, encoding="utf-8")
    room = consilience.methods.fusion
    path = list(room.__path__)
    # Whoever follows the page literally has such a file already: it makes way.
    already = sys.modules.pop(MODULE, None)
    try:
        with methods.METHODS.restored():
            methods.METHODS.remove("max")
            room.__path__ = [str(folder), *path]
            import_all(room.__name__)
            yield {kind: data for name, kind, data in cases() if name == "max"}
    finally:
        room.__path__ = path
        sys.modules.pop(MODULE)
        if already is not None:
            sys.modules[MODULE] = already


def test_it_is_in_the_registry(added):
    assert "max" in methods.available()
    assert methods.registry()["max"].__module__ == MODULE
    assert set(added) == set(methods.registry()["max"].tasks)


@pytest.mark.parametrize("requirement", CONTRACT, ids=lambda requirement: requirement.__name__)
@pytest.mark.parametrize("kind", methods.Method.tasks)
def test_it_keeps_the_contract(added, kind, requirement):
    requirement("max", kind, built_in(added[kind]))
