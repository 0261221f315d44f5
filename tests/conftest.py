"""The long tests begin first: of two processes neither is left with one of them at the end."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones to the front, otherwise the order they came in."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
