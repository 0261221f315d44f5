"""Tables that arrive piece by piece: every row as soon as its line is complete."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
