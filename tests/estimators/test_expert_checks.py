"""Experts whose arrays a stranger changed: an index that leads out of an array is found before it is followed."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from consilience.core.errors import SavedModelError
from consilience.estimators.saving import pack_experts, unpack_experts

X, y = load_iris(return_X_y=True)
TREE = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)


def changed(expert, change):
    """The packed expert with `change(name, array)` in place of each array, where it returns one."""
    source, target = zipfile.ZipFile(io.BytesIO(pack_experts({"a": expert}))), io.BytesIO()
    count = 0
    with zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".npy"):
                new = change(np.load(io.BytesIO(content)))
                if new is not None:
                    count += 1
                    buffer = io.BytesIO()
                    np.save(buffer, new)
                    content = buffer.getvalue()
            archive.writestr(name, content)
    assert count, "nothing was changed"
    return target.getvalue()


def field(name, place, value):
    def change(array):
        if array.dtype.names is None or name not in array.dtype.names:
            return None
        array = array.copy()
        array[name][place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("expert", "change", "message"),
    [
        (TREE, field("left_child", 0, 10**6), "a child"),
        (TREE, field("left_child", 1, 0), "a child precedes its parent"),
        (TREE, field("right_child", 0, -7), "a child"),
        (TREE, field("feature", 0, 10**6), "a feature"),
        (TREE, field("feature", 0, -9), "a feature"),
        (TREE, lambda array: array[:3] if array.dtype.names else None, "number of nodes"),
        (RandomForestClassifier(3, random_state=0), field("right_child", 0, 10**6), "a child"),
        (GradientBoostingClassifier(n_estimators=2), field("feature", 0, 4), "a feature"),
        (HistGradientBoostingClassifier(max_iter=2), field("left", 0, 10**6), "a child"),
        (HistGradientBoostingClassifier(max_iter=2), field("feature_idx", 0, 10**6), "a feature"),
        (KNeighborsClassifier(algorithm="kd_tree", leaf_size=3), field("idx_end", 0, 10**6), "the end of a node"),
        (SVC(), lambda array: 10**6 * array if array.dtype == np.int32 and len(array) == 3 else None, "support"),
    ],
)
def test_indices_that_lead_out_of_an_array_are_refused(expert, change, message):
    packed = changed(expert.fit(X, y), change)
    with pytest.raises(SavedModelError, match=rf"loading model: .* damaged or was changed: .*{message}"):
        unpack_experts(packed, Path("model"))


def test_an_array_that_claims_more_than_it_holds_is_refused():
    packed = io.BytesIO(pack_experts({"a": TREE}))
    with zipfile.ZipFile(packed, "a") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }".ljust(117) + b"\n"
        archive.writestr("more.npy", b"\x93NUMPY\x01\x00v\x00" + header)
    with pytest.raises(SavedModelError, match="its header says float64"):
        unpack_experts(packed.getvalue(), Path("model"))


def test_a_description_without_end_is_refused():
    source = zipfile.ZipFile(io.BytesIO(pack_experts({"a": TREE})))
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("schema.json", "[" * 100_000)
    with pytest.raises(SavedModelError, match="cannot be rebuilt"):
        unpack_experts(target.getvalue(), Path("model"))
    assert json.loads(source.read("schema.json"))


@pytest.mark.parametrize(
    "expert",
    [
        TREE,
        RandomForestClassifier(3, random_state=0),
        GradientBoostingClassifier(n_estimators=2),
        HistGradientBoostingClassifier(max_iter=2),
        KNeighborsClassifier(algorithm="kd_tree", leaf_size=3),
        KNeighborsClassifier(algorithm="ball_tree", leaf_size=3),
        SVC(),
    ],
)
def test_experts_as_they_were_saved_are_accepted(expert):
    loaded = unpack_experts(pack_experts({"a": expert.fit(X, y)}), Path("model"))["a"]
    np.testing.assert_array_equal(loaded.predict(X), expert.predict(X))
