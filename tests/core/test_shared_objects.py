"""Objects in a file that processes map."""

import multiprocessing
import os
import pickle

import numpy as np
import pytest

from consilience.core.shared_objects import SharedObjects


def test_large_arrays_are_shared_and_mapped_ones_named(tmp_path):
    large, mapped = np.arange(100_000.0), tmp_path / "mapped.npy"
    np.save(mapped, np.arange(60.0).reshape(20, 3))
    content = {"large": large, "mapped": np.load(mapped, mmap_mode="r"), "part": np.load(mapped, mmap_mode="r")[5:7]}
    shared = SharedObjects(content)
    start, end = shared.parts[0]
    assert end - start < 2000, "the pickle names the arrays, and does not hold them"
    found = SharedObjects.read(shared.file.fileno(), shared.parts)
    for name, array in content.items():
        np.testing.assert_array_equal(found[name], array)
    assert isinstance(found["mapped"], np.memmap)
    assert found["mapped"].filename == str(mapped)
    found["large"][:] = 0  # stays in the process
    np.testing.assert_array_equal(SharedObjects.read(shared.file.fileno(), shared.parts)["large"], large)
    shared.close()


def test_nothing_is_written_before_a_process_needs_it_and_then_only_once():
    shared = SharedObjects([np.ones(1000)])
    assert shared._file is None
    assert shared.content[0].sum() == 1000
    first, second = pickle.dumps(shared), pickle.dumps(shared)
    assert first == second
    assert len(first) < 500
    shared.close()


def _own_memory(shared, answer):
    """Bytes of a process that are in no file, after every element was read."""
    total = float(shared.content["large"].sum())
    with open(f"/proc/{os.getpid()}/smaps_rollup") as file:
        private = sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))
    answer.put((total, private * 1024))


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="this system does not say what is shared")
def test_a_spawned_process_maps_what_it_is_given():
    size = 2**27
    context = multiprocessing.get_context("spawn")
    answer, own = context.Queue(), []
    for content in (np.zeros(1), np.ones(size // 8)):
        shared = SharedObjects({"large": content})
        process = context.Process(target=_own_memory, args=(shared, answer))
        process.start()
        total, private = answer.get(timeout=100)
        process.join()
        shared.close()
        assert total == content.sum()
        own.append(private)
    assert own[1] - own[0] < size // 10, "a copy would be in no file"
