"""YAML with line numbers: values as in YAML 1.2, and errors that name the line."""

import pytest

from consilience.core.errors import InputError
from consilience.reproduction.yaml_lines import read_yaml


@pytest.fixture
def read(tmp_path):
    def write_and_read(text):
        path = tmp_path / "file.yaml"
        path.write_text(text, encoding="utf-8")
        return read_yaml(path)

    return write_and_read


def test_values_are_those_of_yaml_1_2(read):
    file = read("a: 1e-4\nb: no\nc: true\nd: null\ne: 3\nf: -0.5\ng: '3'\nh: [on, 2020-01-02, 1_000]\ni:\nj: 1:30\n")
    assert file.content == {
        "a": 1e-4,
        "b": "no",
        "c": True,
        "d": None,
        "e": 3,
        "f": -0.5,
        "g": "3",
        "h": ["on", "2020-01-02", "1_000"],
        "i": None,
        "j": "1:30",
    }
    assert type(file["e"]) is int


def test_every_place_has_its_line(read):
    file = read("a:\n  b:\n    - x\n    - y\n  # a comment\n  c: {d: 1,\n    e: 2}\n")
    places = {("a",): 1, ("a", "b"): 2, ("a", "b", 1): 4, ("a", "c", "e"): 7, ("a", "c", "unknown"): 6}
    for place, line in places.items():
        assert file.where(place) == f"{file.path}, line {line}"
    with pytest.raises(InputError, match=r"file.yaml, line 7: too large"), file.naming("a", "c", "e"):
        raise InputError("too large")


def test_aliases_are_copies(read):
    file = read("a: &shared {x: 1}\nb: *shared\n")
    assert file["b"] == {"x": 1}
    assert file["a"] is not file["b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "line 2: the key 'c' is given twice"),
        ("a: 1\nb: [1\n", "line 3: this is not YAML"),
        (
            "a: 1\nb: !!python/name:os.system x\n",
            "line 2: the tag tag:yaml.org,2002:python/name:os.system is not allowed",
        ),
        ("a: !own x\n", "line 1: the tag !own is not allowed"),
        ("- a\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("? [a, b]\n: 1\n", "line 1: a key must be a word"),
        ("a: &a [*a]\n", "too deeply nested"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"{new}: &{new} [{','.join(['*' + old] * 10)}]\n" for old, new in zip("abcde", "bcdef")),
            "too many values",
        ),
    ],
)
def test_what_is_not_allowed_is_named_with_its_line(read, text, message):
    with pytest.raises(InputError) as raised:
        read(text)
    assert message in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml")
