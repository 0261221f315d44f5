"""Any name becomes one component of a path, and different names never share a file."""

import os
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consilience.core.errors import InputError
from consilience.core.file_names import check_text, file_name, path_inside

ORDINARY = [
    "digits",
    "Sensors",
    "av-mnist",
    "late@weak",
    "temp 1.5",
    "vidéo",
    "日本",
    "a+b",
    "x_y",
    "%s",
    "-rf",
    "v1.2",
]
HOSTILE = [
    *("", ".", "..", "...", "/", "//", "/etc/passwd", "../x", "a/../b", "a/b", "a\\b", "C:\\x", "a:b", "a\0b", "a\nb"),
    *(".hidden", "x.", "x ", " x", "\u202eabc", "\u200b", "\ud800", "\udcff.csv", "CON", "nul.txt", "Com1", "lpt9.a.b"),
    *(
        "COM¹",
        "conin$",
        "~",
        "~root",
        "a~b",
        "LONGFI~1",
        "x" * 101,
        "é" * 60,
        "\x7f",
        "*",
        "a?b",
        '"',
        "<a>",
        "|",
        "／x",
    ),
    *("／x", "e\u0301", "․․", "a\r", "\t", "a\x85b", "\u2028", "\ufeff"),
]
# Surrogates, controls and what file systems reserve more often than chance would have it.
TEXTS = st.text() | st.text(st.characters(categories=["Cs", "Cc", "Cf"])) | st.text("./\\~: aA\0\nÅå", max_size=6)
NAMES = TEXTS | st.text(min_size=80, max_size=600) | st.sampled_from(HOSTILE + ORDINARY)


def is_one_component(name: str) -> bool:
    return (
        0 < len(os.fsencode(name)) <= 100
        and name not in (".", "..")
        and not set(name) & set('<>:"/\\|?*')
        and name.isprintable()
        and name == name.strip()
        and name[0] not in ".~"
        and name[-1] != "."
        and os.path.basename(name) == name
    )


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_names_stay(name):
    assert file_name(name) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_changed(name):
    changed = file_name(name)
    assert changed != name
    assert "~" in changed
    assert is_one_component(changed)


@settings(max_examples=500)
@given(NAMES)
def test_any_name_is_one_component(name):
    changed = file_name(name)
    assert is_one_component(changed)
    assert file_name(changed) == changed or "~" in changed
    assert changed.encode().decode() == changed


@settings(max_examples=500)
@given(NAMES, NAMES)
@example("a", "A")
@example("a/b", "a_b")
@example("..", "__")
@example("\ud83d\ude00", "😀")
@example("x" * 500, "x" * 501)
def test_different_names_have_different_files(first, second):
    assert (file_name(first) == file_name(second)) == (first == second)


@settings(max_examples=200)
@given(st.lists(NAMES, unique=True, max_size=6))
@example(["A", "a", "Å", "å", "A\u030a", "\u212b"])
@example(["straße", "STRASSE", "strasse"])
@example(["ﬁle", "file", "FILE"])
def test_names_in_one_folder_differ_on_every_file_system(names):
    files = [file_name(name, among=names[:place] + names[place + 1 :]) for place, name in enumerate(names)]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert len({unicodedata.normalize(form, file).casefold() for file in files}) == len(names)
    assert all(map(is_one_component, files))


@settings(max_examples=100)
@given(NAMES)
def test_a_changed_name_is_never_that_of_another(name):
    assert file_name(file_name(name, among=[name])) != file_name(name, among=[name])


def test_every_name_can_be_a_file(tmp_path):
    for name in HOSTILE + ORDINARY:
        (tmp_path / file_name(name)).write_text(repr(name))
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {file_name(name): repr(name) for name in HOSTILE + ORDINARY}


def test_lone_surrogates_are_refused_where_text_is_needed():
    check_text("modality", "日本 😀 \n \0")
    with pytest.raises(InputError, match=r"modality 'ab\\ud800' has a lone surrogate at position 2.*rename it"):
        check_text("modality", "ab\ud800")


def test_links_are_not_followed_out_of_a_folder(tmp_path):
    (tmp_path / "run" / "real").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "run" / "best").symlink_to(tmp_path / "precious")
    (tmp_path / "run" / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert path_inside(tmp_path / "link", "real", "new") == tmp_path / "link" / "real" / "new"  # the user's own link
    for names in (["best"], ["best", "set"], ["gone"]):
        with pytest.raises(InputError, match="is a symbolic link, and nothing outside"):
            path_inside(tmp_path / "run", *names)
