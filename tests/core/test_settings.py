"""Checks of settings: what passes, in which type, and what is said of the rest."""

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.core.settings import dropout_rate, number, one_of, whole_number, yes_or_no


@pytest.mark.parametrize(
    ("check", "value", "plain"),
    [
        (whole_number, np.int64(3), 3),
        (number, np.float32(0.5), 0.5),
        (number, 2, 2.0),
        (yes_or_no, np.bool_(True), True),
    ],
)
def test_what_passes_comes_back_plain(check, value, plain):
    checked = check("it", value)
    assert checked == plain
    assert type(checked) is type(plain)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 1j, [1.0], np.array(1.0)])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(InputError, match=r"^it must be a number, got "):
        number("it", value)


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        ("≥ 0", (0, 5), (-1e-9,)),
        ("> 0", (1e-9,), (0, -1)),
        ("< 0", (-1,), (0, 1)),
        ("≥ 0 and < 1", (0, 0.99), (1, -0.1)),
    ],
)
def test_ranges(allowed, inside, outside):
    for value in inside:
        assert number("it", value, allowed) == value
    for value in outside:
        with pytest.raises(InputError, match=f"^it must be a number {allowed}, got "):
            number("it", value, allowed)


def test_other_refusals_name_setting_value_and_choice():
    with pytest.raises(InputError, match=r"^dropout must be a number ≥ 0 and < 1, got 1$"):
        dropout_rate(1)
    with pytest.raises(InputError, match=r"^it must be True or False, got 1$"):
        yes_or_no("it", 1)
    with pytest.raises(InputError, match=r"^unknown it \['a'\]: .*Known: a, b$"):
        one_of("it", ["a"], ("a", "b"))
    with pytest.raises(InputError, match=r"^it must be a whole number ≥ 2, got 1$"):
        whole_number("it", 1, least=2)
