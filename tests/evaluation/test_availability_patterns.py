"""Which calibration samples decide for a pattern of present modalities."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from consilience.core.errors import InputError
from consilience.evaluation.availability_patterns import Availability

masks = arrays(np.bool_, st.tuples(st.integers(1, 20), st.integers(1, 10)))


def test_up_to_eight_modalities_have_every_pattern():
    known = Availability.of(np.ones((3, 4), dtype=bool))
    every = {pattern for pattern in itertools.product([False, True], repeat=4) if any(pattern)}
    assert {tuple(pattern) for pattern in known.patterns.tolist()} == every
    assert len(known.patterns) == 15


def test_more_modalities_have_the_usual_patterns():
    present = np.ones((2, 9), dtype=bool)
    present[1, :4] = False
    patterns = {tuple(pattern) for pattern in Availability.of(present).patterns.tolist()}
    assert len(patterns) == 9 + 9 + 1 + 1
    assert tuple(present[1].tolist()) in patterns


@given(masks)
def test_every_slot_hides_and_never_adds(present):
    known = Availability.of(present)
    seen = np.zeros((known.slots, len(present)), dtype=bool)
    for slot, rows, mask in known.masks():
        assert (mask <= present[rows]).all()
        assert mask.any(axis=1).all()
        seen[slot, rows] = True
    for slot, rows, others in known.copied():
        assert seen[others, rows].all()
        np.testing.assert_array_equal(known.drawn[slot - len(known.patterns), rows], known.patterns[others])
        seen[slot, rows] = True
    for number in range(1, present.shape[1] + 1):
        left = known.drawn[number - 1]
        enough = present.sum(1) >= number
        assert (left.sum(1) == np.where(enough, number, 0)).all()
        np.testing.assert_array_equal(seen[len(known.patterns) + number - 1], enough)


def rule(present, pattern, least=9, enough=100):
    return Availability.of(np.array(present, dtype=bool)).group(np.array(pattern, dtype=bool), least, enough)


def test_the_rules_in_their_order():
    both, first = [[1, 1]], [[1, 0]]
    own = rule(both * 50 + first * 100, [1, 0])
    assert own.rule == "own"
    assert own.rows.tolist() == list(range(50, 150))
    hidden = rule(both * 50 + first * 99, [1, 0])
    assert hidden.rule == "hidden"
    assert len(hidden.rows) == 149
    assert rule(both * 9 + first * 99, [0, 1]).rule == "hidden"
    number = rule(both * 8 + first * 99, [0, 1])
    assert number.rule == "number"
    assert len(number.rows) == 107
    everyone = rule(both * 5 + first * 50, [1, 1])
    assert everyone.rule == "all"
    known = Availability.of(np.array(both * 5 + first * 50, dtype=bool))
    np.testing.assert_array_equal(
        known.drawn[everyone.slots - len(known.patterns), everyone.rows], known.present[everyone.rows]
    )


def test_a_pattern_without_a_slot_is_pooled_by_its_number():
    pattern = np.arange(9) < 4
    found = Availability.of(np.ones((200, 9), dtype=bool)).group(pattern, 9, 100)
    assert found.rule == "number"
    assert (found.slots == 19 + 3).all()


def test_too_few_samples_say_how_many_are_needed():
    with pytest.raises(InputError, match="has 8 samples with a modality, too few: at least 9 are needed"):
        rule([[1, 1]] * 8, [1, 1])


def test_many_modalities_are_looked_up_too():
    present = np.random.default_rng(0).random((30, 70)) < 0.5
    known = Availability.of(present)
    assert known.group(present[3], 1, 1).rule == "own"


def test_memory_does_not_grow_with_the_square_of_the_samples():
    present = np.random.default_rng(0).random((2000, 16)) < 0.7
    present[:300] = np.arange(16) < 5
    known = Availability.of(present)
    assert known.slots <= 255 + 16 + 16 + 1 + 16
    assert known.group(present[0], 9, 100).rule == "own"
    rare = [pattern for pattern in present if known._slot_of(pattern[None])[0] < 0]
    assert known.group(rare[0], 9, 100).rule == "number"
    # A sample without a slot of its own pattern is pooled with what it has.
    everyone = known.group(np.ones(16, dtype=bool), 1500, 1500)
    assert everyone.rule == "all"
    np.testing.assert_array_equal(known.drawn[everyone.slots - len(known.patterns), everyone.rows], present)
