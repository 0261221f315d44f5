"""Rows that are read in chunks, against the arrays that the chunks were cut from."""

import pickle
import threading
from collections import Counter

import numpy as np
import pytest

from consilience.core.chunked_rows import ChunkedRows, Chunks, Column, chunks_of
from consilience.core.errors import InputError
from consilience.core.samples import Samples

N = 60
ARRAYS = {"a": np.arange(N * 3.0).reshape(N, 3), "b": np.arange(N, dtype=np.int64), "c": np.arange(N).astype(object)}


class Cut:
    """A source of arrays in chunks of ten rows, which counts what is read and what is alive."""

    def __init__(self, arrays=ARRAYS, size=10):
        self.arrays, self.size = arrays, size
        self.columns = {name: Column(array.shape[1:], array.dtype) for name, array in arrays.items()}
        self.starts = np.arange(0, N + 1, size)
        self.reads = Counter()
        self.lock = threading.Lock()

    def read(self, chunk, names):
        with self.lock:
            self.reads.update((chunk, name) for name in names)
        rows = slice(self.starts[chunk], self.starts[chunk + 1])
        return {name: np.array(self.arrays[name][rows]) for name in names}

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state):
        vars(self).update(state, lock=threading.Lock())


@pytest.mark.parametrize("buffer", [1, 15, 30, 1000])
def test_rows_are_those_of_the_arrays(buffer):
    chunks = Chunks(Cut(), buffer)
    drawn = np.random.default_rng(0)
    for name, array in ARRAYS.items():
        values = chunks.column(name)
        assert (values.shape, values.dtype, values.ndim) == (array.shape, array.dtype, array.ndim)
        for rows in (drawn.permutation(N), np.array([5, 5, 59, 0]), slice(3, 45, 7), slice(None), np.arange(0)):
            np.testing.assert_array_equal(values[rows], array[rows])
    np.testing.assert_array_equal(ChunkedRows(chunks, "b")[7], 7)


def test_samples_take_them_like_arrays():
    whole = Samples.of({"a": ARRAYS["a"], "b": ARRAYS["b"]})
    chunks = Chunks(Cut({name: ARRAYS[name] for name in ("a", "b")}), 20)
    samples = Samples.of(chunks.samples())
    assert samples.on_disk
    assert samples.modalities == whole.modalities  # also the axis that a vector of one feature gets
    chosen = np.array([40, 3, 17])
    for name in samples:
        np.testing.assert_array_equal(samples[chosen].read(name), whole[chosen].read(name))
    assert chunks_of(samples[chosen].values) is chunks
    assert chunks_of(whole.values) is None


def test_in_order_every_chunk_is_read_once_and_only_what_is_asked_for():
    source = Cut()
    values = Chunks(source, 20).column("a")
    for start in range(0, N, 4):
        values[start : start + 4]
    assert source.reads == {(chunk, "a"): 1 for chunk in range(6)}


@pytest.mark.parametrize("buffer", [20, 30, 60])
def test_reading_ahead_reads_each_chunk_once_and_holds_no_more_than_the_buffer(buffer):
    source = Cut()
    chunks = Chunks(source, buffer)
    drawn = np.random.default_rng(1)
    halves = [drawn.permutation(np.arange(start, start + buffer // 2)) for start in range(0, N, buffer // 2)]
    batches = np.split(np.concatenate(halves), 12)
    for _ in range(2):
        source.reads.clear()
        with chunks.reading_ahead(batches, ["a", "b"]) as ahead:
            for number, rows in enumerate(batches):
                ahead.advance(number)
                assert len(ahead._held) * 10 <= buffer
                for name in ("a", "b"):
                    np.testing.assert_array_equal(chunks.values(name, rows), ARRAYS[name][rows])
        if buffer < N:
            assert source.reads == {(chunk, name): 1 for chunk in range(6) for name in ("a", "b")}
    if buffer == N:
        assert not source.reads, "what fits is read in the first epoch only"


def test_an_error_of_a_reading_thread_comes_to_whoever_needs_the_rows():
    class Broken(Cut):
        def read(self, chunk, names):
            if chunk == 2:
                raise OSError("the disk is gone")
            return super().read(chunk, names)

    chunks = Chunks(Broken(), 20)
    batches = [np.arange(start, start + 10) for start in range(0, N, 10)]
    with chunks.reading_ahead(batches, ["a"]) as ahead:
        ahead.advance(0)
        chunks.values("a", batches[0])
        ahead.advance(2)
        with pytest.raises(OSError, match="the disk is gone"):
            chunks.values("a", batches[2])


def test_rows_can_be_read_ahead_for_two_at_once():
    chunks = Chunks(Cut(), 20)
    inner, outer = [np.arange(5), np.arange(25, 35)], [np.arange(40, 45), np.arange(55, 60)]
    with chunks.reading_ahead(outer, ["a"]) as first:
        first.advance(0)
        with chunks.reading_ahead(inner, ["a"]) as second:
            for number, rows in enumerate(inner):
                second.advance(number)
                np.testing.assert_array_equal(chunks.values("a", rows), ARRAYS["a"][rows])
        first.advance(1)
        np.testing.assert_array_equal(chunks.values("a", outer[1]), ARRAYS["a"][outer[1]])
    assert not first._held
    assert not second._held
    np.testing.assert_array_equal(chunks.values("a", outer[0]), ARRAYS["a"][outer[0]])


def test_a_file_that_was_changed_is_an_error():
    source = Cut()
    chunks = Chunks(source, 20)
    source.size, source.starts = 7, np.arange(0, N + 7, 7)
    with pytest.raises(InputError, match=r"'a': chunk 0 has shape \[7, 3\], expected \[10, 3\]: were the files"):
        chunks.values("a", np.arange(3))


def test_a_pickle_holds_the_source_and_no_rows():
    chunks = Chunks(Cut(), 1000)
    chunks.column("a")[:]
    again = pickle.loads(pickle.dumps(chunks))
    assert not again._kept
    np.testing.assert_array_equal(again.column("a")[3:5], ARRAYS["a"][3:5])


def test_bad_buffer():
    with pytest.raises(InputError, match="buffer must be a number of rows ≥ 1, got 0"):
        Chunks(Cut(), 0)
