"""How much memory this process may use: that of the machine, or the limit of its control group, as in a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def memory_limit(groups: Path = _GROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Return the bytes of memory that this process may use together with the others of its control groups.

    That is the least of the machine's memory and of the limits of the group and of those around it, of both versions of
    Linux control groups. 0 where it is not known.

    Args:
        groups: Where control groups are mounted.
        membership: The file with the groups of this process.

    Example:
        >>> memory_limit(Path("/nowhere"), Path("/nowhere")) == machine_memory()
        True
    """
    limits = [machine_memory(), *_limits(groups, membership)]
    return min((limit for limit in limits if limit), default=0)


def machine_memory() -> int:
    """Return the bytes of memory of the machine; 0 where they are not known.

    >>> machine_memory() >= 0
    True
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


def _limits(groups: Path, membership: Path) -> Iterator[int]:
    """The limits that are set. A line of the membership is `NUMBER:CONTROLLERS:PATH`, the second version has one."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) < 3 or (parts[1] and "memory" not in parts[1].split(",")):
            continue
        _, controllers, path = parts
        mounted, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
        # In a container the path may be that of the host, where only the root of what is mounted can be read.
        inside = Path(path.strip("/"))
        for group in {mounted, *(mounted / part for part in (inside, *inside.parents))}:
            try:
                text = (group / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():  # else "max"
                yield int(text)
