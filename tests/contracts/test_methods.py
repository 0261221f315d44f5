"""The contract, over every method in the registry."""

import pytest

from consilience import methods
from contracts.contract import CONTRACT, built_in, cases

CASES = cases()


@pytest.mark.parametrize("requirement", CONTRACT, ids=lambda requirement: requirement.__name__)
@pytest.mark.parametrize(("name", "kind", "data"), CASES, ids=[f"{name}-{kind}" for name, kind, _ in CASES])
def test_every_method(name, kind, data, requirement):
    requirement(name, kind, built_in(data))


def test_the_table_covers_every_method_and_task():
    covered = {(name.partition(":")[0], kind) for name, kind, _ in CASES}
    assert covered == {(name.rstrip(":"), kind) for name, cls in methods.registry().items() for kind in cls.tasks}
