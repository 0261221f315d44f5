"""The keys of a protocol: documented, and all arguments of `compare` among them."""

import inspect
import re

import pytest

from consilience import compare
from consilience.reproduction.protocol_keys import CLAIM_KEYS, PART_KEYS, PROTOCOL_KEYS, SCRIPT_KEYS
from consilience.reproduction.protocol_sections import KINDS
from documents import ROOT

PAGE = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
# How it runs, and what a protocol decides itself: all methods and ten seeds where it names none.
RUNNING = {"out", "jobs", "side_by_side", "cluster", "verbose", "command", "loading", "thorough"}


@pytest.mark.parametrize(
    "keys", [PROTOCOL_KEYS, PART_KEYS, CLAIM_KEYS, SCRIPT_KEYS], ids=["file", "part", "claim", "script"]
)
def test_the_page_has_every_key_and_its_meaning(keys):
    tables = [re.match(r"\n\|---\|---\|\n((?:\|.*\n)*)", text)[1] for text in PAGE.split("| key | meaning |")[1:]]
    rows = [re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.M) for table in tables]
    assert [(key, meaning) for key, (_, meaning) in keys.items()] in rows
    assert len(tables) == 4


def test_the_page_has_every_kind_of_section_with_its_settings():
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (`\w+`(?:, `\w+`)*) \|$", PAGE, re.M))
    assert rows == {
        name: ", ".join(
            f"`{each.name}`"
            for each in inspect.signature(function).parameters.values()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        )
        for name, function in KINDS.items()
    }


def test_a_part_takes_every_argument_of_compare():
    assert set(PART_KEYS) - {"title", "set", "quick"} == set(inspect.signature(compare).parameters) - RUNNING
