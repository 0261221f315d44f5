"""Checks of settings: what passes, in which type, and what is said of the rest."""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Annotated, Literal

import numpy as np
import pytest

from consilience.core.errors import InputError, show
from consilience.core.settings import (
    DeclaredSettings,
    Interval,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    check_settings,
    check_value,
    plain_type,
    settings_of,
)


@pytest.mark.parametrize(
    ("annotation", "value", "plain"),
    [
        (PositiveInt, np.int64(3), 3),
        (float, np.float32(0.5), 0.5),
        (float, 2, 2.0),
        (bool, np.bool_(True), True),
    ],
)
def test_what_passes_comes_back_plain(annotation, value, plain):
    checked = check_value("it", value, annotation)
    assert checked == plain
    assert type(checked) is type(plain)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 1j, [1.0], np.array(1.0)])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(InputError, match=r"^it must be a number, got "):
        check_value("it", value, float)


@pytest.mark.parametrize(
    ("allowed", "words", "inside", "outside"),
    [
        (Interval(0), "≥ 0", (0, 5), (-1e-9,)),
        (Interval(0, above=True), "> 0", (1e-9,), (0, -1)),
        (Interval(high=0, below=True), "< 0", (-1,), (0, 1)),
        (Interval(0, 1, below=True), "≥ 0 and < 1", (0, 0.99), (1, -0.1)),
    ],
)
def test_ranges(allowed, words, inside, outside):
    annotation = Annotated[float, allowed]
    for value in inside:
        assert check_value("it", value, annotation) == value
    for value in outside:
        with pytest.raises(InputError, match=f"^it must be a number {words}, got "):
            check_value("it", value, annotation)


Pair = namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize(
    ("annotation", "value", "plain"),
    [
        (Annotated[int | None, Interval(1)], 3, 3),
        (Annotated[int | None, Interval(1)], None, None),
        (Annotated[Annotated[int | None, "help"] | Literal["auto"], Interval(1)], "auto", "auto"),
        (PositiveFloat, 10**300, 1e300),
        (Sequence[PositiveInt], Pair(1, np.int64(2)), (1, 2)),
        (Sequence[PositiveInt], range(1, 4), [1, 2, 3]),
        (Mapping[str, PositiveInt], {"a": np.int64(2)}, {"a": 2}),
        (dict[str, float], {"a": 2}, {"a": 2.0}),
        (tuple[int, str], (1, "a"), (1, "a")),
        (tuple[int, str], [np.int64(1), "a"], [1, "a"]),
        (tuple[float, ...], (1, 2, 3), (1.0, 2.0, 3.0)),
    ],
)
def test_unions_and_containers_are_accepted(annotation, value, plain):
    checked = check_value("it", value, annotation)
    assert repr(checked) == repr(plain)  # types too


@pytest.mark.parametrize(
    ("annotation", "value", "allowed"),
    [
        (Annotated[int | None, Interval(1)], 0, "a whole number ≥ 1 or None"),
        (Annotated[PositiveInt | None, Interval(high=5)], 6, "a whole number ≥ 1 and ≤ 5 or None"),
        (PositiveFloat, 10**400, "a number > 0"),
        (Sequence[PositiveInt], Pair(0, 1), "a list, each a whole number ≥ 1"),
        (Sequence[PositiveInt], range(3), "a list, each a whole number ≥ 1"),
        (Mapping[str, PositiveInt], {"a": 0}, "a mapping, each value a whole number ≥ 1"),
        (dict[str, PositiveInt], {"a": 1, "b": "x"}, "a mapping, each value a whole number ≥ 1"),
        (dict[str, PositiveInt], [("a", 1)], "a mapping, each value a whole number ≥ 1"),
        (tuple[int, str], (1, 2), "a list of 2 (a whole number, a string)"),
        (tuple[int, str], (1,), "a list of 2 (a whole number, a string)"),
        (tuple[int, str], (1, "a", 2), "a list of 2 (a whole number, a string)"),
    ],
)
def test_unions_and_containers_are_refused(annotation, value, allowed):
    with pytest.raises(InputError) as raised:
        check_value("it", value, annotation)
    assert str(raised.value) == f"it must be {allowed}, got {show(value)}"


def test_other_refusals_name_setting_value_and_choice():
    with pytest.raises(InputError, match=r"^it must be True or False, got 1$"):
        check_value("it", 1, bool)
    with pytest.raises(InputError, match=r"^unknown it \['a'\]. Known: a, b$"):
        check_value("it", ["a"], Literal["a", "b"])
    with pytest.raises(InputError, match=r"^it must be 'a' or a whole number ≥ 2, got 1$"):
        check_value("it", 1, Literal["a"] | Annotated[int, Interval(2)])


class Layer(DeclaredSettings):
    """A class with every sort of setting."""

    def __init__(
        self,
        name: str = "",
        *,
        width: PositiveInt = 8,
        rates: Sequence[Rate] = (),
        mode: Literal["add", "concat"] = "add",
        seed: NonNegativeInt | None = None,
        rate: Annotated[float, Interval(0, 1, above=True), "of learning"] = 0.1,
    ):
        self.width, self.rates, self.mode, self.seed, self.rate = width, rates, mode, seed, rate


class Deeper(Layer):
    def __init__(self, *, depth: PositiveInt = 1, **settings):
        super().__init__(**settings)
        self.depth = depth


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"width": 0}, "width must be a whole number ≥ 1, got 0"),
        ({"width": True}, "width must be a whole number ≥ 1, got True"),
        ({"width": 2.0}, "width must be a whole number ≥ 1, got 2.0"),
        ({"rates": [0.5, 1]}, r"rates must be a list, each a number ≥ 0 and < 1, got \[0.5, 1\]"),
        ({"rates": "0.5"}, "rates must be a list, each a number ≥ 0 and < 1, got '0.5'"),
        ({"mode": "ad"}, "unknown mode 'ad': did you mean 'add'"),
        ({"seed": -1}, "seed must be a whole number ≥ 0 or None, got -1"),
        ({"rate": float("nan")}, "rate must be a number > 0 and ≤ 1, got nan"),
    ],
)
def test_declared_settings_are_checked_at_construction(given, message):
    for cls in (Layer, Deeper):
        with pytest.raises(InputError, match=f"^{message}"):
            cls(**given)
    with pytest.raises(InputError, match=r"(^layer: |^unknown mode .*given for layer)"):
        check_settings("layer", Layer, given)


def test_values_become_plain():
    layer = Deeper(width=np.int64(3), rates=np.array([0.5, 0.25]), rate=1, depth=2)
    assert (layer.width, layer.rates, layer.rate, layer.depth) == (3, [0.5, 0.25], 1.0, 2)
    assert [type(value) for value in (layer.width, layer.rates[0], layer.rate)] == [int, float, float]


def test_what_is_declared():
    declared = settings_of(Layer)
    assert list(declared) == ["width", "rates", "mode", "seed", "rate"]  # not `name`, which is no keyword
    assert (declared["rate"].default, declared["rate"].help) == (0.1, "of learning")
    assert declared["mode"].allowed == "'add' or 'concat'"
    assert plain_type(declared["seed"].annotation) == int | None
    with pytest.raises(InputError, match=r"unknown setting 'widht': did you mean 'width'.*given for layer"):
        check_settings("layer", Layer, {"widht": 3})


def test_defaults_of_a_dataclass():
    @dataclass
    class Plan:
        name: str
        depth: PositiveInt = 2
        rates: list[float] = field(default_factory=lambda: [0.5])

    assert [setting.default for setting in settings_of(Plan).values()] == [Parameter.empty, 2, [0.5]]
