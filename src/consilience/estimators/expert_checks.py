"""Checks of loaded scikit-learn experts whose compiled code follows indices in arrays without looking at their limits.

These are decision trees, the trees of histogram gradient boosting, support vector machines, the trees of nearest
neighbours, and sparse matrices. A wrong index in a file would end the process, or read foreign memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any
from zipfile import ZipFile

import numpy as np

from consilience.core.errors import SavedModelError
from consilience.data.files.arrays import check_array_header
from consilience.data.files.size_limits import zip_members

_SCHEMA = "schema.json"
_NPY = ".npy"
_LEAF = -1  # the child of a leaf


def check_packed(packed: bytes) -> None:
    """Check what must be right before anything is built: sizes, and the arguments and states of decision trees.

    Args:
        packed: A file of skops, of trusted types.

    Raises:
        InputError: The archive or an array in it is damaged.
        SavedModelError: A decision tree is damaged.
        ValueError: Something is damaged that skops reports in its own words.
    """
    from skops.io._audit import get_tree
    from skops.io._utils import LoadContext

    with ZipFile(io.BytesIO(packed)) as archive:
        for member in zip_members(archive, "experts.skops", len(packed)):
            if member.filename.endswith(_NPY):
                with archive.open(member) as file:
                    check_array_header(file, member.filename, member.file_size)
        schema = json.loads(archive.read(_SCHEMA))
        root = get_tree(schema, LoadContext(src=archive, protocol=schema["protocol"]), trusted=[])
        for node in _nodes(root):
            if type(node).__name__ == "TreeNode":
                _check_tree_state(node.children["args"].construct(), node.children["attrs"].construct())


def check_experts(experts: Any) -> None:
    """Check what was built, before anything of it is used.

    Args:
        experts: Estimators, in any mappings and lists.

    Raises:
        SavedModelError: An index in one of them leads out of its array.
    """
    for value in _parts(experts):
        module, name = type(value).__module__, type(value).__name__
        if hasattr(value, "tree_") and module.startswith("sklearn.tree"):
            _require(value.tree_.n_features == value.n_features_in_, "a tree", "it has another number of features")
        if module.startswith("sklearn.ensemble") and hasattr(value, "estimators_"):
            _check_ensemble(value)
        if hasattr(value, "_predictors") and module.startswith("sklearn.ensemble"):
            for predictor in np.ravel(np.array(value._predictors, dtype=object)):
                _check_predictor(predictor, value.n_features_in_)
        if hasattr(value, "_n_support"):
            _check_support_vectors(value)
        if module in ("sklearn.neighbors._kd_tree", "sklearn.neighbors._ball_tree") and hasattr(value, "query"):
            _check_neighbour_tree(value)
        if module.startswith("scipy.sparse") and hasattr(value, "check_format"):
            try:
                value.check_format(full_check=True)
            except (TypeError, ValueError) as error:
                raise _damaged(f"a {name}", str(error)) from error


def _nodes(root: Any) -> Iterator[Any]:
    """Every node of skops' description of a file, once."""
    stack, seen = [root], set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, list | tuple):
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif hasattr(item, "children"):
            yield item
            stack.extend(item.children.values())


def _parts(root: Any) -> Iterator[Any]:
    """Every object that a value contains, once: through mappings, lists, arrays of objects and attributes."""
    stack, seen = [root], {}
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, str | bytes | int | float | type | None):
            continue
        seen[id(item)] = item  # kept, since another object could get the number of one that is gone
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set):
            stack.extend(item)
        elif isinstance(item, np.ndarray):
            if item.dtype.kind == "O":
                stack.extend(item.ravel().tolist())
        else:
            yield item
            stack.extend(getattr(item, "__dict__", {}).values())


def _check_tree_state(arguments: Any, state: Any) -> None:
    """Check the arguments and the state of a decision tree: each child comes after its parent, each feature exists."""
    what = "a decision tree"
    _require(isinstance(arguments, tuple) and len(arguments) == 3 and isinstance(state, dict), what, "its description")
    n_features, n_classes, n_outputs = arguments
    _require(
        isinstance(n_classes, np.ndarray) and n_classes.ndim == 1 and n_classes.dtype == np.intp, what, "its classes"
    )
    _require(0 < n_features < 2**31 and n_outputs == len(n_classes), what, "its number of features or outputs")
    _require(bool(len(n_classes)) and bool((n_classes > 0).all()), what, "its number of classes")
    nodes = state["nodes"]
    _require(isinstance(nodes, np.ndarray) and nodes.ndim == 1 and len(nodes) > 0, what, "its nodes")
    _require(state["node_count"] == len(nodes), what, "its number of nodes")
    _require(0 <= state["max_depth"] < len(nodes), what, "its depth")
    _check_children(what, nodes["left_child"], nodes["right_child"], nodes["left_child"] == _LEAF)
    _check_range(what, "a feature", nodes["feature"][nodes["left_child"] != _LEAF], n_features)


def _check_children(what: str, left: np.ndarray, right: np.ndarray, leaf: np.ndarray) -> None:
    parents = np.flatnonzero(~leaf)
    for children in (left[parents], right[parents]):
        # scikit-learn numbers a child after its parent, so that no path can return.
        _require(bool((children.astype(np.int64) > parents).all()), what, "a child precedes its parent")
        _check_range(what, "a child", children, len(left))


def _check_ensemble(ensemble: Any) -> None:
    what = f"a {type(ensemble).__name__}"
    members = np.ravel(np.array(ensemble.estimators_, dtype=object)).tolist()
    trees = [member for member in members if hasattr(member, "tree_")]
    widths = {tree.n_features_in_ for tree in trees}
    _require(len(widths) <= 1, what, "its trees have different numbers of features")
    if hasattr(ensemble, "n_features_in_"):
        _require(all(width <= ensemble.n_features_in_ for width in widths), what, "its trees have more features")
    if hasattr(ensemble, "n_trees_per_iteration_"):
        shape = np.shape(ensemble.estimators_)
        _require(len(shape) == 2 and shape[1] == ensemble.n_trees_per_iteration_, what, "its number of trees")


def _check_predictor(predictor: Any, n_features: int) -> None:
    what = "a tree of histogram gradient boosting"
    nodes = predictor.nodes
    _require(isinstance(nodes, np.ndarray) and nodes.ndim == 1 and len(nodes) > 0, what, "its nodes")
    leaf = nodes["is_leaf"].astype(bool)
    _check_children(what, nodes["left"], nodes["right"], leaf)
    _check_range(what, "a feature", nodes["feature_idx"][~leaf], n_features)
    categorical = ~leaf & nodes["is_categorical"].astype(bool)
    for sets in (predictor.raw_left_cat_bitsets, predictor.binned_left_cat_bitsets):
        _require(isinstance(sets, np.ndarray) and sets.ndim == 2 and sets.shape[1] == 8, what, "its categories")
        _check_range(what, "a set of categories", nodes["bitset_idx"][categorical], len(sets))


def _check_support_vectors(machine: Any) -> None:
    """Check the sizes of the arrays that libsvm reads: vectors by class, and coefficients for each pair of classes."""
    what = f"a {type(machine).__name__}"
    counts = np.asarray(machine._n_support)
    vectors, coefficients = machine.support_vectors_, machine._dual_coef_
    _require(counts.ndim == 1 and counts.dtype.kind == "i" and bool((counts >= 0).all()), what, "its support")
    total, classes = int(counts.sum()), len(getattr(machine, "classes_", (0, 1)))
    several = type(machine).__name__ in ("SVC", "NuSVC")
    pairs = classes * (classes - 1) // 2 if several else 1
    rows = classes - 1 if several else 1
    _require(len(counts) == (classes if several else 2) or not several, what, "its number of classes")
    _require(vectors.shape == (total, machine.shape_fit_[1]), what, "its support vectors")
    _require(vectors.shape[1] == machine.n_features_in_, what, "its number of features")
    _require(np.shape(machine.support_) == (total,), what, "the rows of its support vectors")
    _require(coefficients.shape == (rows, total), what, "its coefficients")
    _require(np.shape(machine._intercept_) == (pairs,), what, "its intercepts")
    for name in ("_probA", "_probB"):
        _require(np.size(getattr(machine, name, ())) in (0, pairs), what, "its calibration")


def _check_neighbour_tree(tree: Any) -> None:
    what = f"a {type(tree).__name__}"
    data, indices, nodes, bounds, *_ = tree.__getstate__()
    n_levels, n_nodes = tree.__getstate__()[5:7]
    size = len(data)
    _require(len(indices) == size and len(nodes) == n_nodes == 2**n_levels - 1, what, "its number of nodes")
    _check_range(what, "a sample", indices, size)
    _check_range(what, "the start of a node", nodes["idx_start"], size + 1)
    _check_range(what, "the end of a node", nodes["idx_end"], size + 1)
    _require(bool((nodes["idx_start"] <= nodes["idx_end"]).all()), what, "a node ends before it starts")
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    _require(bool((2 * inner + 2 < n_nodes).all()), what, "a leaf is said to have children")
    _require(bounds.shape[1] >= n_nodes and bounds.shape[2] == data.shape[1], what, "the bounds of its nodes")


def _check_range(what: str, index: str, values: np.ndarray, limit: int) -> None:
    wrong = values[(values < 0) | (values >= limit)]
    _require(not len(wrong), what, f"{index} has the number {wrong[:1].tolist()} of {limit}")


def _require(right: bool, what: str, wrong: str) -> None:
    if not right:
        raise _damaged(what, wrong)


def _damaged(what: str, wrong: str) -> SavedModelError:
    return SavedModelError(f"{what} among the experts is damaged or was changed: {wrong} does not fit the rest of it")
