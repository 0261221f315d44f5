"""Protocol files: what they say, what they take from others, and errors that name the line and the nearest name."""

import json

import pytest

from consilience.core.errors import InputError, UnknownNameError
from consilience.reproduction.protocol import Claim, Figure, Protocol, read_protocol

MINIMAL = "title: A\nparts:\n  digits: {data: digits}\n"
FULL = """title: Which?
paper: Somebody 2020, table 1
defaults:
  methods: [late, concat]
  levels: [0, 5]
  training: {epochs: 20, lr: 1e-2}
  quick: {seeds: 2, training: {epochs: 1}}
parts:
  digits:
    title: Digits
    data: digits
    corruption: [gaussian, missing]
    seeds: 20
  gaussians: {data: gaussians, dependence: 0.3, corruption: gaussian, quick: false}
published:
  digits:
    clean: {late: 0.9, concat: [0.95, 0.91]}
    gaussian 5: {late: 0.8}
claims:
  - {says: Late is better, part: digits, method: late, than: concat, at: missing 5}
  - {says: Concat is better, part: gaussians, smallest_effect: 0.01, method: concat, than: late}
notes: [Everything is different.]
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="own.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_a_protocol_is_read(write):
    protocol = read_protocol(write(FULL))
    assert (protocol.name, protocol.title, protocol.paper) == ("own", "Which?", "Somebody 2020, table 1")
    assert protocol.notes == ("Everything is different.",)
    digits, gaussians = protocol.parts.values()
    assert digits.full == {
        "methods": ["late", "concat"],
        "levels": [0, 5],
        "training": {"epochs": 20, "lr": 1e-2},
        "data": "digits",
        "corruption": ["gaussian", "missing"],
        "seeds": 20,
    }
    assert digits.quick == digits.full | {"seeds": 2, "training": {"epochs": 1}}  # replaced whole
    assert gaussians.quick is None
    assert gaussians.full["dependence"] == 0.3
    assert protocol.published == {
        ("digits", "late", "clean", 0.0): Figure(0.9),
        ("digits", "concat", "clean", 0.0): Figure(0.95, 0.91),
        ("digits", "late", "gaussian", 5.0): Figure(0.8),
    }
    assert protocol.claims == (
        Claim("Late is better", "digits", "late", "concat", "missing", 5.0),
        Claim("Concat is better", "gaussians", "concat", "late", smallest_effect=0.01),
    )


def test_a_file_extends_another(write):
    write(
        "paper: P\ndefaults: {seeds: 3, methods: [late]}\nparts:\n  a: {data: digits, seeds: 4, quick: {seeds: 1}}\n"
        "  b: {data: gaussians}\ntexts: {why: Because.}\ntables: {one: {row: [1, 2]}}\n",
        "base.yaml",
    )
    write("extends: base.yaml\ndefaults: {metric: nll}\n", "between.yaml")
    protocol = read_protocol(
        write("title: T\nextends: between.yaml\nparts:\n  a: {methods: [concat]}\nnotes: [text: why]\n")
    )
    assert list(protocol.parts) == ["a"]
    assert protocol.parts["a"].full == {"seeds": 4, "methods": ["concat"], "data": "digits", "metric": "nll"}
    assert protocol.parts["a"].quick["seeds"] == 1
    assert (protocol.paper, protocol.notes, protocol.tables) == ("P", ("Because.",), {"one": {"row": [1, 2]}})
    every = read_protocol(write("title: T\nextends: between.yaml\n"))
    assert list(every.parts) == ["a", "b"]
    write("title: T\nextends: own.yaml\n", "own.yaml")
    with pytest.raises(InputError, match=r"own.yaml, line 2: own.yaml extends itself"):
        read_protocol(write("title: T\nextends: own.yaml\n"))


def test_data_of_ones_own_lie_beside_the_protocol(write, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "table.csv").write_text("a,b,y\n1,2,0\n", encoding="utf-8")
    text = "title: T\nparts:\n  own: {data: sub/table.csv, target: y, modalities: {left: [a], right: [b]}}\n"
    part = read_protocol(write(text)).parts["own"]
    assert part.full == {
        "data": str(tmp_path / "sub" / "table.csv"),
        "target": "y",
        "modalities": {"left": ["a"], "right": ["b"]},
    }
    with pytest.raises(InputError, match=r"line 3: the data file .*other.csv does not exist"):
        read_protocol(write(text.replace("sub/table", "other")))


def test_a_script_with_settings(write, tmp_path):
    write("TITLE = 'x'\n", "study.py")
    found = read_protocol(write("title: T\nscript: study.py\nsettings: {n: 3}\n"))
    assert found == Protocol(tmp_path / "own.yaml", "T", script=tmp_path / "study.py", settings={"n": 3})
    with pytest.raises(UnknownNameError, match=r"line 3: unknown key 'setings': did you mean 'settings'"):
        read_protocol(write("title: T\nscript: study.py\nsetings: {n: 3}\n"))
    with pytest.raises(InputError, match=r"line 2: the script .*none.py does not exist"):
        read_protocol(write("title: T\nscript: none.py\n"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "title: Which?",
            "titel: Which?",
            "line 1: unknown key 'titel': did you mean 'title'? Known: claims, defaults",
        ),
        ("title: Which?", "title: 3", "line 1: title must be a string, got 3"),
        ("title: Which?", "page: wide", "line 1: unknown page 'wide'"),
        ("title: Which?", "page: ranks", "line 1: the key 'title' is required"),
        ("    seeds: 20", "    sedes: 20", "line 13: unknown key 'sedes': did you mean 'seeds'?"),
        ("    seeds: 20", "    seeds: many", "line 13: seeds must be a whole number ≥ 1, got 'many'"),
        ("    seeds: 20", "    seeds: 0", "line 13: seeds must be a whole number ≥ 1, got 0"),
        ("levels: [0, 5]", "levels: [0, x]", "line 5: levels must be a list, each a number, got [0, 'x']"),
        (
            "[late, concat]\n  levels",
            "[late,\n    conct]\n  levels",
            "line 5: unknown method 'conct': did you mean 'concat'?",
        ),
        ("[gaussian, missing]", "[gausian]", "line 12: unknown corruption 'gausian': did you mean 'gaussian'?"),
        ("    seeds: 20", "    metric: acuracy", "line 13: unknown metric 'acuracy': did you mean 'accuracy'?"),
        ("    seeds: 20", "    settings: {lat: {}}", "line 13: unknown method 'lat': did you mean 'late'?"),
        ("    seeds: 20", "    training: {epoch: 3}", "line 13: unknown setting 'epoch': did you mean 'epochs'?"),
        ("    seeds: 20", "    training: {epochs: x}", "line 13: training: epochs must be a whole number"),
        (
            "    seeds: 20",
            "    settings: {concat: {widht: 3}}",
            "line 13: unknown setting 'widht': did you mean 'width'?",
        ),
        ("    seeds: 20", "    training: {augment: blur:3}", "line 13: unknown corruption 'blur'"),
        ("    seeds: 20", "    settings: {concat: {augment: gaussian}}", "line 13: augment 'gaussian': expected"),
        ("    seeds: 20", "    settings: {concat: {lr: -1}}", "line 13: training: lr must be a number > 0"),
        ("    seeds: 20", "    settings: {concat: 3}", "line 13: concat must be a mapping, got 3"),
        ("{seeds: 2, tr", "{sedes: 2, tr", "line 7: unknown key 'sedes': did you mean 'seeds'?"),
        ("data: digits", "data: digit", "line 11: unknown data set 'digit': did you mean 'digits'?"),
        ("    data: digits\n", "", "line 9: the key 'data' is required in part 'digits'"),
        ("dependence", "dependenc", "line 14: unknown key 'dependenc': did you mean 'dependence'?"),
        (
            "published:\n  digits:\n    clean: {late: 0.9, concat: [0.95, 0.91]}\n    gaussian 5: {late: 0.8}",
            "published:\n  digits:",
            "line 16: published.digits must be a mapping",
        ),
        ("published:\n  digits", "published:\n  digit", "line 17: unknown part 'digit': did you mean 'digits'?"),
        (
            "{late: 0.8}",
            "{lat: 0.8}",
            "line 18: unknown method 'lat': did you mean 'late'? Known: concat, late. It is not",
        ),
        ("{late: 0.8}", "{late: high}", "line 18: late must be a number or a list"),
        ("{late: 0.8}", "{late: [0.8]}", "line 18: late: a figure is a number or [mean, worst seed], got [0.8]"),
        ("gaussian 5:", "gaussian 6:", "line 18: part 'digits' does not have level 6, only 0, 5"),
        ("gaussian 5:", "stuck 5:", "line 18: unknown corruption 'stuck'"),
        (
            "gaussian 5:",
            "noisy:",
            "line 18: a condition is 'clean' or 'CORRUPTION LEVEL', such as 'gaussian 5', got 'noisy'",
        ),
        ("part: gaussians", "part: gausians", "line 21: unknown part 'gausians': did you mean 'gaussians'?"),
        ("than: late}", "then: late}", "line 21: unknown key 'then': did you mean 'than'?"),
        (", than: late}", "}", "line 21: the key 'than' is required here"),
        ("[Everything is different.]", "[{txt: x}]", "line 22: this must be a string or `text: NAME`"),
        ("[Everything is different.]", "[{text: x}]", "line 22: unknown text 'x'"),
        ("notes:", "sections: [{title: x}]\nnotes:", "line 22: the key 'kind' is required in a section"),
        ("notes:", "extends: 3\nnotes:", "line 22: extends must be a string, got 3"),
    ],
)
def test_errors_name_the_line_and_what_is_allowed(write, old, new, message):
    assert FULL.count(old) == 1
    with pytest.raises(InputError) as raised:
        read_protocol(write(FULL.replace(old, new)))
    assert "own.yaml, " + message in str(raised.value)


def test_errors_in_an_extended_file_name_that_file(write):
    write("defaults:\n  metods: [late]\n", "base.yaml")
    with pytest.raises(UnknownNameError, match=r"base.yaml, line 2: unknown key 'metods': did you mean 'methods'"):
        read_protocol(write(MINIMAL + "extends: base.yaml\n"))
    with pytest.raises(InputError, match="the key 'parts' is required"):
        read_protocol(write("title: T\n"))


def test_numbers_keep_their_type(write):
    """A whole number given as 1.0 is another setting than 1: results are stored under what was given."""
    part = read_protocol(write("title: T\ndefaults: {training: {clip: 1.0}}\n" + MINIMAL.partition("\n")[2])).parts[
        "digits"
    ]
    assert json.dumps(part.full["training"]) == '{"clip": 1.0}'
