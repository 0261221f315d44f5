"""The memory that a process may use, of files as Linux has them in and outside containers."""

import pytest

from consilience.core.memory_limit import machine_memory, memory_limit

MIB = 2**20


@pytest.fixture
def system(tmp_path):
    """A function that writes limits and the groups of a process as files, and returns what `memory_limit` takes."""

    def write(membership, **limits):
        for name, text in limits.items():
            path = tmp_path / "groups" / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name({"max": "memory.max", "bytes": "memory.limit_in_bytes"}[path.name]).write_text(f"{text}\n")
        (tmp_path / "cgroup").write_text(membership)
        return tmp_path / "groups", tmp_path / "cgroup"

    return write


def test_the_limit_of_a_container_counts(system):
    assert memory_limit(*system("0::/\n", max=512 * MIB)) == 512 * MIB


def test_the_least_of_a_group_and_those_around_it_counts(system):
    limits = {"a__b__max": 300 * MIB, "a__max": 200 * MIB, "max": "max", "other__max": 1}
    assert memory_limit(*system("0::/a/b\n", **limits)) == 200 * MIB


def test_the_first_version_of_control_groups(system):
    membership = "7:cpu:/x\n4:cpuset,memory:/docker/abc\n0::/\n"
    limits = {"memory__docker__abc__bytes": 256 * MIB, "memory__bytes": 2**63 - 4096, "docker__abc__bytes": 1}
    assert memory_limit(*system(membership, **limits)) == 256 * MIB


def test_in_a_container_that_shows_the_path_of_the_host_the_mounted_group_counts(system):
    assert memory_limit(*system("4:memory:/docker/abc\n", memory__bytes=128 * MIB)) == 128 * MIB


@pytest.mark.parametrize("membership", ["", "0::/\n", "nonsense\n:\n", "3:cpu:/\n"])
def test_without_a_limit_it_is_the_memory_of_the_machine(system, membership):
    assert memory_limit(*system(membership, max="max")) == machine_memory() > 0
