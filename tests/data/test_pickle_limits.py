"""Pickles that are small on disk and would take for ever, or all memory."""

import pickle
import struct
import tracemalloc

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.data.files.array_pickles import read_sequences_pickle

doubled = b"]q\x00" + b"".join(b"]q%c(h%ch%ce" % (i + 1, i, i) for i in range(40)) + b"."
doubled_key = b"}(" + b")q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(40)) + b"K\x01u."
itself = b"]q\x00h\x00a."
deep = b"]" * 5000 + b"a" * 4999 + b"."
reused = (
    b"c_codecs\nencode\nq\x01X"
    + struct.pack("<I", 10**6)
    + b"a" * 10**6
    + b"q\x02"
    + b"0h\x01h\x02X\x06\0\0\0latin1\x86R" * 3000
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (doubled_key, "a tuple as a key"),
        (itself, "contains itself"),
        (deep, "levels deep"),
        (b"\x80\x02Nr\xff\xff\xff\x07.", "numbered where there are"),
        (b"\x80\x04\x95" + b"\xff" * 7 + b"\x0fN.", "it ends within a frame"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".", "it ends within 1099511627776 bytes"),
        (b"\x80\x04\x8b\xff\xff\xff\x7f.", "it ends within 2147483647 bytes"),
        (b"\x80\x04\x8b\xff\xff\xff\xff.", "it ends within -1 bytes"),
        (reused, "uses the same content too often"),
    ],
    ids=["key", "itself", "deep", "memo", "frame", "bytes", "long", "negative", "reused"],
)
def test_a_small_pickle_takes_neither_time_nor_memory(tmp_path, content, message):
    path = tmp_path / "damaged.pkl"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message):
            read_sequences_pickle(path)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_a_list_that_occurs_twice_in_each_of_forty_is_read_once(tmp_path):
    path = tmp_path / "shared.pkl"
    path.write_bytes(doubled)
    content = read_sequences_pickle(path)
    assert content[0] is content[1]


def test_cells_of_the_same_length_stay_cells(tmp_path):
    cells = np.empty(2, dtype=object)
    cells[:] = [np.zeros(3), None]
    cells[1] = np.ones(3)
    path = tmp_path / "cells.pkl"
    path.write_bytes(pickle.dumps(cells))
    found = read_sequences_pickle(path)
    assert found.shape == (2,)
    np.testing.assert_array_equal(found[1], np.ones(3))
