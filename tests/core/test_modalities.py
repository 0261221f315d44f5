"""How one modality is read: every form in which values come, and every form that is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from consilience.core import modalities
from consilience.core.errors import InputError, UnknownNameError
from consilience.core.samples import Samples

NAN = float("nan")


def read(values, kind=None, **options):
    """One modality named "m": its description, values in memory, and who has it."""
    samples = Samples.of({"m": values}, kinds=None if kind is None else {"m": kind}, **options)
    return samples.modalities["m"], np.asarray(samples["m"]), samples.present_in("m").tolist()


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [
        ((4,), None, ("vector", (1,))),
        ((4, 3), None, ("vector", (3,))),
        ((4, 5, 3), None, ("sequence", (5, 3))),
        ((4, 2, 6, 7), None, ("image", (2, 6, 7))),
        ((4, 6, 7), "image", ("image", (1, 6, 7))),
        ((4, 5), "sequence", ("sequence", (5, 1))),
        ((4,), "vector", ("vector", (1,))),
    ],
)
def test_the_kind_follows_from_the_shape_unless_it_is_given(shape, kind, expected):
    modality, values, present = read(np.ones(shape), kind)
    assert (modality.kind, modality.shape) == expected
    assert values.shape == (4, *expected[1])
    assert present == [True] * 4


@pytest.mark.parametrize(
    ("shape", "kind", "allowed"),
    [
        ((4, 1, 2, 3, 5), None, "[n, feature]"),
        ((4, 3, 2), "vector", "[n] × [feature]"),
        ((4, 3), "image", "[channel, height, width]"),
        ((4,), "sequence", "[time, feature]"),
        ((4, 3, 2), "tokens", "[time]"),
    ],
)
def test_a_shape_that_does_not_fit_says_what_is_allowed(shape, kind, allowed):
    with pytest.raises(InputError) as error:
        read(np.ones(shape, dtype=np.int64), kind)
    assert "modality 'm'" in str(error.value)
    assert str(list(shape)) in str(error.value)
    assert allowed in str(error.value)


@pytest.mark.parametrize("shape", [(4, 0), (4, 3, 0), (4, 0, 3), (4, 1, 0, 5)])
def test_a_modality_without_values_is_refused(shape):
    with pytest.raises(InputError, match=r"modality 'm' is empty.*\[4"):
        read(np.zeros(shape))


def test_an_unknown_kind_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown kind 'vectr': did you mean 'vector'.*modality 'm'"):
        read(np.ones((2, 2)), "vectr")


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "uint16", "bool", ">f4", ">i2", "longdouble"]
)
def test_every_type_of_number_is_read_unchanged(dtype):
    given = np.array([[0, 1], [1, 0], [1, 1]], dtype=dtype)
    _, values, present = read(given)
    assert values.dtype == given.dtype
    assert np.array_equal(values, given)
    assert all(present)


@pytest.mark.parametrize("given", [np.array([1j, 2]), np.array(["2020-01-01"] * 2, dtype="datetime64[D]")])
def test_other_types_are_refused_by_name(given):
    with pytest.raises(InputError, match=rf"modality 'm' holds values of type {given.dtype}".replace("[", r"\[")):
        read(given)


@pytest.mark.parametrize("given", [5, "hello", {"a": 1}, object()])
def test_a_single_thing_is_not_one_row_per_sample(given):
    with pytest.raises(InputError, match=rf"modality 'm' must hold one row per sample, got one {type(given).__name__}"):
        read(given)


def test_none_for_a_whole_modality_says_to_leave_it_out():
    with pytest.raises(InputError, match=r"modality 'm' is None: leave .* out of the mapping"):
        read(None)


def test_sparse_matrices_say_how_to_convert():
    from scipy.sparse import csr_array

    with pytest.raises(InputError, match=r"modality 'm': sparse.*toarray\(\)"):
        read(csr_array(np.eye(3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_tensors_are_read_without_their_gradient(dtype):
    tensor = torch.tensor([[0, 1], [1, 1]]).to(dtype)
    if dtype.is_floating_point:
        tensor.requires_grad_()
    modality, values, _ = read(tensor)
    assert modality.shape == (2,)
    assert values.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("library", [pd, pl])
class TestTables:
    def test_a_number_column_and_a_table(self, library):
        table = library.DataFrame({"a": [1.5, 2.5], "b": [3, 4]})
        assert read(table["a"])[1].tolist() == [[1.5], [2.5]]
        assert read(table)[1].tolist() == [[1.5, 3.0], [2.5, 4.0]]

    def test_a_number_column_with_a_gap(self, library):
        assert read(library.Series([1.0, None, 2.0]))[2] == [True, False, True]

    def test_a_text_column_with_a_gap(self, library):
        modality, values, present = read(library.Series(["a", None, "b c"]))
        assert modality.kind == "text"
        assert values.tolist() == ["a", None, "b c"]
        assert present == [True, False, True]

    def test_a_table_with_one_text_column(self, library):
        modality, values, _ = read(library.DataFrame({"t": ["a", "b"]}))
        assert (modality.kind, values.tolist()) == ("text", ["a", "b"])

    def test_a_column_of_lists(self, library):
        modality, values, present = read(library.Series([[1, 2], None, [3]]))
        assert (modality.kind, modality.shape, modality.vocabulary) == ("tokens", (2,), 4)
        assert values.tolist() == [[1, 2], [0, 0], [3, 0]]
        assert present == [True, False, True]

    def test_mixed_number_columns(self, library):
        table = library.DataFrame({"flag": [True, False], "size": [0.5, 1.5]})
        assert read(table)[1].tolist() == [[1.0, 0.5], [0.0, 1.5]]


@pytest.mark.parametrize(
    ("dtype", "cells"), [("Int64", [1, None, 3]), ("Float64", [1.0, None, 3.0]), ("boolean", [True, None, False])]
)
def test_pandas_nullable_numbers(dtype, cells):
    assert read(pd.Series(cells, dtype=dtype))[2] == [True, False, True]


@pytest.mark.parametrize("dtype", ["string", "category", object])
def test_pandas_string_types(dtype):
    modality, values, present = read(pd.Series(["x", None, "y"], dtype=dtype))
    assert modality.kind == "text"
    assert [values[0], values[2], present] == ["x", "y", [True, False, True]]


def test_a_masked_array_is_missing_where_it_is_masked():
    given = np.ma.array([[1.0, 2.0], [7.0, 8.0]], mask=[[False, False], [True, True]])
    assert read(given)[2] == [True, False]
    with pytest.raises(InputError, match="row 1"):
        read(np.ma.array([[1, 2], [7, 8]], mask=[[False, False], [True, False]]))


class TestText:
    @pytest.mark.parametrize("empty", [None, NAN, np.float64("nan"), pd.NA])
    def test_what_is_missing(self, empty):
        modality, values, present = read(["a", empty, ""])
        assert modality == modalities.Modality("m", "text", ())
        assert values.tolist() == ["a", None, ""]
        assert present == [True, False, True]

    @pytest.mark.parametrize("given", [np.array(["a", "bb"]), np.array(["a", "bb"], dtype=np.dtypes.StringDType())])
    def test_numpy_strings(self, given):
        _, values, _ = read(given)
        assert values.dtype == object
        assert [type(text) for text in values] == [str, str]
        assert values.tolist() == ["a", "bb"]

    def test_something_else_names_the_row(self):
        with pytest.raises(InputError, match="modality 'm': row 1 holds 3; text must be strings, or None"):
            read(["a", 3, "b"])
        with pytest.raises(InputError, match="modality 'm': row 0 holds 1; text must be strings"):
            read(np.array([1, 2]), "text")
        with pytest.raises(InputError, match="row 0 holds b'a'"):
            read(np.array([b"a", b"b"]))

    def test_several_strings_a_sample(self):
        with pytest.raises(InputError, match=r"modality 'm': text must be one string per sample, got shape \[2, 2\]"):
            read([["a", "b"], ["c", "d"]])
        with pytest.raises(InputError, match="modality 'm' holds values of type <U1"):
            read([["a", "b"], ["c"]])

    def test_strings_are_no_vector(self):
        with pytest.raises(InputError, match="modality 'm' holds values of type <U1: numbers"):
            read(["a", "b"], "vector")

    def test_a_column_that_is_all_nan(self):
        assert read(np.full(2, NAN), "text")[2] == [False, False]


class TestRaggedRows:
    @pytest.mark.parametrize("make", [np.array, torch.tensor, list, tuple])
    def test_sequences_are_padded_and_know_their_lengths(self, make):
        rows = [make([[1.0, 2.0]]), make([[3.0, 4.0], [5.0, 6.0]])]
        samples = Samples.of({"m": rows})
        assert samples.modalities["m"].describe() == "m (sequence 2×2)"
        assert samples.lengths["m"].tolist() == [1, 2]
        assert samples["m"].tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]

    def test_none_nan_and_an_empty_list_are_missing(self):
        rows = [[[1.0]], None, NAN, [], np.zeros((0, 1)), [[2.0], [3.0]]]
        samples = Samples.of({"m": rows})
        assert samples.lengths["m"].tolist() == [1, 0, 0, 0, 0, 2]
        assert samples.present_in("m").tolist() == [True, False, False, False, False, True]

    def test_token_lists(self):
        samples = Samples.of({"m": [[5, 2], [], [1, 1, 1], None]})
        assert samples.modalities["m"] == modalities.Modality("m", "tokens", (3,), 6)
        assert samples["m"].dtype.kind == "i"
        assert samples["m"].tolist() == [[5, 2, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0]]
        assert samples.present_in("m").tolist() == [True, False, True, False]

    def test_an_object_array_of_arrays(self):
        for lengths in ((2, 3), (2, 2)):
            rows = np.empty(2, dtype=object)
            rows[:] = [np.ones((lengths[0], 2)), np.ones((lengths[1], 2))]
            assert Samples.of({"m": rows}).lengths["m"].tolist() == list(lengths)

    @pytest.mark.parametrize("dtype", [np.float32, np.uint8])
    @pytest.mark.parametrize(("shape", "kind"), [((3,), "vector"), ((1, 2, 2), "image"), ((2, 2), "sequence")])
    def test_rows_of_one_shape_with_gaps_keep_the_kind_they_have_without(self, shape, kind, dtype):
        rows = [np.full(shape, 7, dtype), None, np.full(shape, 9, dtype)]
        modality, values, present = read(rows)
        assert (modality.kind, modality.shape) == (kind, shape)
        assert present == [True, False, True]
        assert np.array_equal(values[0], rows[0])
        assert np.array_equal(values[2], rows[2])
        assert read(rows[::2])[0] == modality

    def test_a_sequence_of_one_feature(self):
        modality, values, _ = read([[0.5], [1.5, 2.5]], "sequence")
        assert modality.shape == (2, 1)
        assert values[..., 0].tolist() == [[0.5, 0.0], [1.5, 2.5]]
        with pytest.raises(InputError, match=r"modality 'm'.*whole numbers, got float64.*sequence"):
            read([[0.5], [1.5, 2.5]])

    @pytest.mark.parametrize(
        "rows",
        [
            [np.ones((2, 3)), np.ones((2, 4))],
            [np.ones((1, 4, 4)), np.ones((1, 5, 5))],
            [np.ones(3), np.ones((2, 3))],
            [[1.0, 2.0], 3.0],
        ],
    )
    def test_rows_that_differ_in_more_than_time(self, rows):
        with pytest.raises(InputError, match=r"modality 'm': rows of different shapes .* may differ in time only"):
            read(rows)

    def test_a_vector_has_no_time(self):
        with pytest.raises(InputError, match=r"rows of different shapes \(\[1\], \[2\]\)"):
            read([[1.0], [1.0, 2.0]], "vector")

    def test_a_row_that_is_ragged_itself_is_named(self):
        with pytest.raises(InputError, match="modality 'm', row 1"):
            read([[[1, 2], [3, 4]], [[1, 2], [3]]])

    def test_nothing_but_empty_rows(self):
        with pytest.raises(InputError, match="modality 'm' is empty: none of its 2 rows"):
            read([[], None])

    def test_lengths_cannot_be_given_twice(self):
        with pytest.raises(InputError, match=r"modality 'm'.*carry their own lengths"):
            read([[1], [1, 2]], lengths={"m": [1, 2]})


class TestLengths:
    def test_default_to_everything(self):
        assert Samples.of({"m": np.ones((2, 4, 1))}).lengths["m"].tolist() == [4, 4]

    def test_zero_means_missing(self):
        assert read(np.ones((2, 4, 1)), lengths={"m": [0, 4]})[2] == [False, True]

    @pytest.mark.parametrize("given", [[1, 5], [-1, 2], [1.0, 2.0]])
    def test_must_be_whole_numbers_that_fit(self, given):
        with pytest.raises(InputError, match="lengths of modality 'm' must be whole numbers from 0 to 4"):
            read(np.ones((2, 4, 1)), lengths={"m": given})

    def test_must_be_one_for_each_sample(self):
        with pytest.raises(InputError, match=r"lengths of modality 'm' must have shape \[n\] = \[2\], got \[3\]"):
            read(np.ones((2, 4, 1)), lengths={"m": [1, 2, 3]})

    @pytest.mark.parametrize("given", [np.ones((2, 3)), ["a", "b"]])
    def test_belong_to_sequences_and_tokens_only(self, given):
        with pytest.raises(InputError, match=r"modality 'm'.*only sequences and tokens have lengths"):
            read(given, lengths={"m": [1, 1]})


class TestTokens:
    def test_must_be_whole_numbers(self):
        with pytest.raises(InputError, match="modality 'm' of kind tokens must hold whole numbers, got float64"):
            read(np.ones((2, 3)), "tokens")

    def test_negative_ids_name_the_rows(self):
        with pytest.raises(InputError, match=r"modality 'm' of kind tokens has negative ids \(rows 1, 2\)"):
            read(np.array([[1, 2], [-1, 3], [4, -2]]), "tokens")

    def test_what_lies_in_padding_or_in_a_missing_sample_is_no_id(self):
        ids = np.array([[1, -100], [3, 4], [-1, 99]])
        modality, _, _ = read(ids, "tokens", lengths={"m": [1, 2, 2]}, present={"m": [True, True, False]})
        assert modality.vocabulary == 5


class TestNotANumber:
    def test_a_row_that_is_all_nan_is_missing(self):
        for shape in ((3, 2), (3, 2, 2), (3, 1, 2, 2)):
            values = np.ones(shape)
            values[1] = NAN
            assert read(values)[2] == [True, False, True]

    @pytest.mark.parametrize("broken", [NAN, np.inf, -np.inf])
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_in_part_of_a_row_names_the_rows_and_the_way_out(self, broken, dtype):
        values = np.ones((9, 2), dtype)
        values[[2, 7], 1] = broken
        with pytest.raises(InputError) as error:
            read(values)
        assert "modality 'm' contains NaN or infinity in part of rows 2, 7." in str(error.value)
        assert "all NaN" in str(error.value)
        assert "fill" in str(error.value)

    def test_a_row_that_is_all_infinite_is_not_missing(self):
        with pytest.raises(InputError, match="row 0"):
            read(np.array([[np.inf, np.inf], [1, 1]]))

    def test_beyond_a_sequences_end_anything_may_lie(self):
        values = np.ones((3, 3, 2))
        values[0, 1:] = NAN
        values[1, 2:] = np.inf
        assert read(values, lengths={"m": [1, 2, 3]})[2] == [True] * 3
        with pytest.raises(InputError, match="row 1"):
            read(values, lengths={"m": [1, 3, 3]})

    def test_a_sequence_that_is_nan_up_to_its_end_is_missing(self):
        values = np.ones((2, 3, 1))
        values[0, :2] = NAN
        assert read(values, lengths={"m": [2, 3]})[2] == [False, True]

    def test_in_a_sample_that_is_absent_anyway(self):
        values = np.array([[1.0, NAN], [1.0, 2.0]])
        assert read(values, present={"m": [False, True]})[2] == [False, True]

    def test_numbers_whose_sum_overflows_are_finite(self):
        assert read(np.full((4, 3), 1.7e308))[2] == [True] * 4

    def test_rows_are_counted_from_the_start_of_the_data_not_of_the_piece(self, monkeypatch):
        monkeypatch.setattr(modalities, "SCAN_BYTES", 32)
        values = np.ones((20, 2))
        values[3] = NAN
        assert np.flatnonzero(~np.array(read(values)[2])).tolist() == [3]
        values[17, 0] = NAN
        with pytest.raises(InputError, match="row 17"):
            read(values)
        ids = np.ones((20, 2), dtype=np.int64)
        ids[19] = 8
        assert read(ids, "tokens")[0].vocabulary == 9
        ids[15, 1] = -1
        with pytest.raises(InputError, match="row 15"):
            read(ids, "tokens")
