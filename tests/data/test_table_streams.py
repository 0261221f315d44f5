"""Tables that arrive piece by piece: every row as soon as its line is complete."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError, TableWarning
from consilience.data.files.table_streams import stream_rows

TEXTS = st.text(st.sampled_from('a "\\\n,{}é'), min_size=1)


def rows_of(content, at_once=5):
    file = io.BytesIO(content)
    frames = stream_rows(lambda size: file.read(at_once), "the stream", [], ["c"])
    return [row for frame in frames for row in frame["c"].to_list()]


@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf", b"\n \n"])
def test_an_escaped_quote_does_not_hold_a_json_row_back(begin):
    pieces = iter([begin, b'{"c": "5\\" pipe"}\n', b'{"c": "next"}\n', b""][not begin :])
    frames = stream_rows(lambda size: next(pieces), "the stream", [], ["c"])
    assert next(frames)["c"].to_list() == ['5" pipe']
    assert next(pieces) == b'{"c": "next"}\n'  # the first row did not wait for it


@given(texts=st.lists(TEXTS, min_size=1), at_once=st.integers(1, 40))
def test_json_lines_are_what_json_reads(texts, at_once):
    content = "".join(json.dumps({"c": text}, ensure_ascii=False) + "\n" for text in texts).encode()
    assert rows_of(content, at_once) == texts


@given(texts=st.lists(TEXTS, min_size=1), at_once=st.integers(1, 40))
def test_csv_is_what_the_csv_module_wrote(texts, at_once):
    content = io.StringIO()
    csv.writer(content, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["c"], *([text] for text in texts)])
    assert rows_of(content.getvalue().encode(), at_once) == texts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'id,c\n1,"a\nb"\n2,x\n3\n4,y\n',
            r"row 2 \(counted from 0\) has 1 cells, the header has 2: is the",
        ),
        (b'id,c\n1,"a\nb"\n2,x\n3,1,5\n4,y\n', "row 2 .* has 3 cells, the header has 2"),
        (b'{"id": 1, "c": "a\\nb"}\n{"id": 2, "c": "x"}\nnot json\n{"c": "y"}\n', "line 3 is not JSON"),
        (b'{"c": "a\\nb"}\n{"c": "x"}\n{"c": "y", "c": "z"}\n', "line 3 is not JSON: the key 'c' is there twice"),
        (b'{"c": "a\\nb"}\n{"c": "x"}\n{"d": "\\ud800"}\n', "line 3 holds half of a character"),
    ],
    ids=["fewer", "more", "json", "twice", "half"],
)
@pytest.mark.parametrize("at_once", [7, 1000])
def test_the_rows_before_a_broken_one_are_given(content, message, at_once):
    file, rows = io.BytesIO(content), []
    frames = stream_rows(lambda size: file.read(at_once), "the stream", [], ["c"])
    with pytest.raises(InputError, match=message):
        rows.extend(cell for frame in frames for cell in frame["c"].to_list())
    assert rows == ["a\nb", "x"]


def test_keys_that_the_first_rows_lack_are_named():
    lines = [b'{"c": "x", "A": 1}\n', b'{"c": "y", "a": 2}\n', b""]
    with pytest.warns(TableWarning, match="the stream: the first rows lack columns .*: 'a', 'b'") as told:
        frames = list(stream_rows(lambda size: lines.pop(0), "the stream", ["a"], ["c", "b"]))
    assert len(told) == 1
    assert [frame["a"].to_list() for frame in frames] == [[None], [2.0]]


def test_a_header_that_is_no_text():
    file = io.BytesIO("id,c\n1,x\n".encode("utf-16"))
    with pytest.raises(InputError, match="the stream cannot be read as CSV: invalid utf-8"):
        next(stream_rows(file.read, "the stream", [], ["c"]))
