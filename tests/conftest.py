"""The long tests begin first: of two processes neither is left with one of them at the end."""

import os

import pytest

# Some tests compare numbers bit for bit between processes, which sums over other numbers of threads would not give.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones to the front, otherwise the order they came in."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
