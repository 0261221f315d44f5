import numpy as np
import pytest

from consilience.data.group_hints import find_hint, spread_within

N, GROUPS = 120, 30
GROUP = np.arange(N) % GROUPS
ALIKE = np.random.default_rng(0).normal(size=(GROUPS, 3))[GROUP]
UNRELATED = np.random.default_rng(1).normal(size=(N, 3))


@pytest.mark.parametrize("column", ["patient_id", "Machine", "subject", "customerID", "run id"])
def test_a_name_of_an_identifier_with_repeats_is_a_hint(column):
    hint = find_hint({column: GROUP}, [UNRELATED], 2)
    assert hint.column == column
    assert f"column {column!r} looks like a group (30 values in 120 rows)" in hint.sentence
    assert hint.sentence.endswith(f"(--group {column})")


def test_a_column_within_which_rows_are_alike_is_a_hint_whatever_its_name():
    hint = find_hint({"note": GROUP}, [ALIKE + 0.05 * UNRELATED], 2)
    assert hint.column == "note"
    assert "within which rows are closer than across" in hint.sentence
    assert find_hint({"note": GROUP}, [UNRELATED], 2) is None


def test_an_identifier_comes_before_a_column_that_is_only_alike():
    hint = find_hint({"note": GROUP, "patient": GROUP}, [ALIKE], 2)
    assert hint.column == "patient"


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        ("patient_id", np.arange(N)),  # a value of its own for every row
        ("patient_id", np.arange(N) // 119),  # two values: a condition
        ("group", np.arange(N) % 5),  # no more values than classes
    ],
)
def test_what_is_no_group(column, codes):
    assert find_hint({column: codes}, [UNRELATED], 5) is None


def test_spread_within_is_that_of_an_analysis_of_variance():
    codes = np.random.default_rng(2).integers(0, 10, 200)
    x = np.random.default_rng(3).normal(size=(200, 1)) + 0.5 * codes[:, None]
    within = sum(((x[codes == code] - x[codes == code].mean()) ** 2).sum() for code in range(10)) / 190
    assert spread_within(codes, [x]) == pytest.approx(within / x.var(ddof=1), abs=1e-6)


def test_groups_that_have_nothing_to_do_with_the_values_have_a_spread_of_one():
    assert spread_within(GROUP, [np.random.default_rng(4).normal(size=(N, 40))]) == pytest.approx(1, abs=0.1)
    assert spread_within(GROUP, []) is None
    assert spread_within(GROUP, [np.ones((N, 2))]) is None
