"""Which columns of a table belong to which modality, and what is said where that cannot be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError, UnknownNameError
from consilience.estimators.column_choice import split_columns
from consilience.estimators.saving import describe_columns, restore_columns

HEADER = ["mfcc_0", "mfcc_1", "mfcc_2", "age", "x[0]"]


@pytest.mark.parametrize(
    ("chosen", "positions"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2, 4]),
        (slice(-2, None), [3, 4]),
        (3, [3]),
        (-1, [4]),
        ([2, 0], [2, 0]),
        ((0, -1), [0, 4]),
        (range(2), [0, 1]),
        (np.array([1, 4], dtype=np.uint8), [1, 4]),
        ([True, False, False, True, False], [0, 3]),
        ("mfcc_*", [0, 1, 2]),
        ("age", [3]),
        ("x[0]", [4]),
        (["age", "mfcc_[12]"], [3, 1, 2]),
        (np.array(["age"]), [3]),
    ],
    ids=str,
)
def test_positions(chosen, positions):
    assert split_columns({"a": chosen}, 5, HEADER) == {"a": positions}


def test_without_columns_everything_is_one_modality():
    assert split_columns(None, 3) == {"x": [0, 1, 2]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "columns must be a mapping of modality → columns, got {}"),
        (["age"], "columns must be a mapping"),
        ({"a": slice(0, 0)}, r"columns of modality 'a': slice\(0, 0, None\) selects no column \(n_features = 5\)"),
        ({"a": []}, r"\[\] selects no column"),
        ({"a": [False] * 5}, "selects no column"),
        ({"a": [7]}, r"columns of modality 'a': no column 7 \(n_features = 5\)"),
        ({"a": -6}, "no column -6"),
        ({"a": [0.0, 1.0]}, "must be a slice, positions, a mask of all 5 columns, names or globs"),
        ({"a": [True, False]}, "a mask of all 5 columns"),
        ({"a": None}, "must be a slice, positions"),
        ({"a": [[0, 1]]}, "must be a slice, positions"),
        ({"a": [0, 1], "b": [1, 2]}, "column 'mfcc_1' is in two modalities, 'a' and 'b'"),
        ({"a": "mfcc_*", "b": slice(2, 4)}, "column 'mfcc_2' is in two modalities, 'a' and 'b'"),
        ({"a": [1, 1]}, "column 'mfcc_1' is twice in modality 'a'"),
        ({"a": ["age", 2]}, "modality 'a' must name columns or globs"),
    ],
    ids=str,
)
def test_what_cannot_be(columns, message):
    with pytest.raises(InputError, match=message):
        split_columns(columns, 5, HEADER)


def test_a_name_that_is_not_there_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="'mfc_1' matches no column; near it are 'mfcc_1'"):
        split_columns({"a": ["mfc_1"]}, 5, HEADER)


def test_names_need_a_table_that_has_some():
    with pytest.raises(InputError, match=r"are names \('mfcc_\*'\), but the table has none: give a DataFrame"):
        split_columns({"a": "mfcc_*"}, 5)


def test_an_overlap_without_names_is_told_by_position():
    with pytest.raises(InputError, match="column 1 is in two modalities"):
        split_columns({"a": [0, 1], "b": 1}, 3)


@given(st.slices(8))
def test_a_slice_comes_back_and_chooses_as_python_does(chosen):
    assert restore_columns(describe_columns({"a": chosen})) == {"a": chosen}
    expected = list(range(8))[chosen]
    if expected:
        assert split_columns({"a": chosen}, 8) == {"a": expected}


@pytest.mark.parametrize(
    "chosen", [3, "mfcc_*", [0, 2], (0, 2), range(2), np.array([1, 4]), ["age"], [True] + [False] * 4]
)
def test_what_is_described_chooses_the_same(chosen):
    restored = restore_columns(describe_columns({"a": chosen}))
    assert split_columns(restored, 5, HEADER) == split_columns({"a": chosen}, 5, HEADER)
    assert restore_columns(describe_columns(None)) is None
