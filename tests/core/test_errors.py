import pickle

import numpy as np
import pytest

from consilience.core import errors
from consilience.core.errors import ConsilienceError, name_rows, unknown_name

KINDS = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, Exception) and not issubclass(one, Warning)
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_one_of_ours_and_survives_a_process_boundary(kind):
    assert issubclass(kind, ConsilienceError)
    again = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(again) is kind
    assert str(again) == "what happened"


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InputError, ValueError),
        (errors.UnknownNameError, ValueError),
        (errors.UnsupportedError, ValueError),
        (errors.MissingDataError, FileNotFoundError),
        (errors.SavedModelError, ValueError),
        (errors.TrainingError, RuntimeError),
    ],
)
def test_errors_can_be_caught_as_the_builtin_they_resemble(kind, builtin):
    assert issubclass(kind, builtin)


def test_unknown_name_suggests_the_nearest_and_lists_all():
    message = str(unknown_name("modality", "imgae", {"image": 0, "audio": 1}, "It was given in kinds"))
    assert "unknown modality 'imgae'" in message
    assert "did you mean 'image'?" in message
    assert "Known: audio, image" in message
    assert message.endswith("It was given in kinds")


def test_unknown_name_ignores_case_but_suggests_the_name_as_it_is_spelled():
    assert "did you mean 'qmf'?" in str(unknown_name("method", "QMF", ["qmf", "late"]))
    assert "did you mean 'Audio'?" in str(unknown_name("modality", "audio", ["Audio", "image"]))


def test_unknown_name_suggests_what_begins_with_it_before_what_is_near():
    assert "did you mean 'accuracy'?" in str(unknown_name("metric", "acc", ["accuracy", "acc2", "acc7"]))
    assert "did you mean 'acc2'?" in str(unknown_name("metric", "acc", {"accuracy", "acc2"}))  # a set has no order
    assert "did you mean 'late'?" in str(unknown_name("method", "Late", ["late-probs", "late"]))
    assert "did you mean 'accuracy'?" in str(unknown_name("metric", "acuracy", ["acc7", "accuracy"]))


def test_unknown_name_suggests_nothing_where_nothing_is_near():
    message = str(unknown_name("method", "zebra", ["concat"]))
    assert "did you mean" not in message
    assert "Known: concat" in message
    assert "There are none" in str(unknown_name("setting", "width", []))


def test_unknown_name_accepts_names_that_are_not_strings():
    assert "unknown modality 3" in str(unknown_name("modality", 3, ["1", "2"]))


@pytest.mark.parametrize("make", [list, tuple, np.array])
def test_name_rows_shows_few_and_counts_the_rest(make):
    assert name_rows(make([4])) == "row 4"
    assert name_rows(make([1, 2, 3, 4, 5])) == "rows 1, 2, 3, 4, 5"
    assert name_rows(make([1, 2, 3, 4, 5, 6])) == "rows 1, 2, 3, 4, 5 and 1 more"
    assert name_rows(make([7, 8, 9]), limit=1) == "rows 7 and 2 more"
