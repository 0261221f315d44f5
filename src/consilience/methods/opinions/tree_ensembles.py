"""Ensembles of binary decision trees as tensors: read from fitted scikit-learn models, checked, and evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.calibration import precise_dtype
from consilience.bayes.learned_buffers import Learned
from consilience.bayes.row_pieces import in_pieces
from consilience.core.errors import InputError, SavedModelError, show
from consilience.core.tracing import is_traced

# Levels of a tree. One this deep has learned single samples; a saved file may not ask for an evaluation without end.
MAX_DEPTH = 1000
# After so many levels, pairs of a row and a tree that have reached a leaf are left behind.
_LEVELS_AT_ONCE = 4
# The most pairs of a row and a tree that are walked at a time: their nodes and values stay in the processor's cache.
_PAIRS = 2**18


class TreeTable(NamedTuple):
    """The nodes of all trees, level by level. Siblings are neighbours; a leaf is its own child.

    Attributes:
        feature: The feature that a node compares `[node]`.
        threshold: A sample goes right where its feature is larger `[node]`, float32; infinite for leaves.
        child: Number of the left child `[node]`, which the right one follows; a leaf has its own number.
        leaf: Row of `values` that a leaf has `[node]`; 0 for other nodes.
        root: First node of each tree `[tree]`.
        values: The different values of leaves `[row, width]`. Trees whose width is not the number of outputs take
            turns: the first serves the first output, the second the next, and again from the first.
        baseline: What the output starts from `[output]`.
        scale: What the sum over trees is multiplied by: 1 for a sum, 1 / trees for a mean.
    """

    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    leaf: np.ndarray
    root: np.ndarray
    values: np.ndarray
    baseline: np.ndarray
    scale: float


class _Tree(NamedTuple):
    """The nodes of one tree as scikit-learn numbers them; node 0 is the root."""

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    is_leaf: np.ndarray
    values: np.ndarray


class TreeEnsemble(Learned):
    """Decision trees that are evaluated together: a baseline, plus the sum or mean of the leaves a sample falls into.

    All samples walk all trees at once, one level at a time. Inputs are compared in 32 bits, as the trees of
    scikit-learn's forests do; thresholds are rounded so that every 32-bit number goes where scikit-learn sends it.
    Before it has learned anything, the output is 0.

    Args:
        features: Size of the input.
        outputs: The most outputs that it can have.

    Example:
        >>> from sklearn.ensemble import ExtraTreesClassifier
        >>> x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
        >>> forest = ExtraTreesClassifier(10, random_state=0).fit(x, x[:, 0] > 0)
        >>> trees = TreeEnsemble(2, 2).read(forest)
        >>> np.allclose(trees(torch.from_numpy(x)).numpy(), forest.predict_proba(x))
        True
    """

    feature: Tensor
    threshold: Tensor
    child: Tensor
    leaf: Tensor
    root: Tensor
    values: Tensor
    baseline: Tensor
    scale: Tensor

    def __init__(self, features: int, outputs: int):
        super().__init__()
        self.features, self.outputs = features, outputs
        nothing = torch.zeros(0, dtype=torch.int32)
        self.learn(feature=nothing, child=nothing, leaf=nothing, root=nothing)
        self.learn(threshold=torch.zeros(0), values=torch.zeros(0, 1), baseline=torch.zeros(outputs))
        self.learn(scale=torch.tensor(1.0))
        self.depth = 0

    def read(self, model: Any, *, missing: bool = False) -> TreeEnsemble:
        """Take the trees of a fitted scikit-learn model.

        Args:
            model: `ExtraTrees…`, `RandomForest…` (the output is a class's share, or the number) or
                `HistGradientBoosting…` (raw scores: one column for two classes), each Classifier or Regressor.
            missing: Whether features may be NaN, for boosting. The input is then that of `send_missing`, which has
                twice as many features as the model.

        Raises:
            InputError: If the model is another one, or has splits of a kind that are not read.
        """
        return self.take(read_trees(model, missing=missing), show(model))

    def take(self, table: TreeTable, origin: str = "a table") -> TreeEnsemble:
        """Take trees that were read before; origin: where they come from, for the message of an `InputError`."""
        reason, self.depth = check_table(_tensors(table), self.features, self.outputs)
        if reason is not None:
            raise InputError(f"the trees of {origin} cannot be used: {reason}")
        self.learn(**table._asdict())
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate all trees: x `[batch, feature]` → `[batch, output]`, in at least the precision of float32."""
        x = x.float()
        if not len(self.root):
            return self.baseline.to(precise_dtype(x)).expand(x.shape[0], -1)
        return in_pieces(self._sum, max(1, _PAIRS // len(self.root)), x)

    def _sum(self, x: Tensor) -> Tensor:
        leaves = walk(x, self.feature, self.threshold, self.child, self.root, self.depth)
        values = self.values.to(precise_dtype(x))[self.leaf[leaves].long()]  # [batch, tree, width]
        outputs = len(self.baseline)
        rounds = len(self.root) * values.shape[2] // outputs
        total = values.reshape(x.shape[0], rounds, outputs).sum(dim=1)
        return self.baseline.to(total) + total * self.scale.to(total)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = {name: state_dict[prefix + name] for name in TreeTable._fields if prefix + name in state_dict}
        if len(saved) == len(TreeTable._fields):  # else the base class names what is missing
            reason, self.depth = check_table(saved, self.features, self.outputs)
            if reason is not None:
                raise SavedModelError(f"the saved trees {prefix.rstrip('.')!r} are damaged: {reason}")
        super()._load_from_state_dict(state_dict, prefix, *args)


def walk(x: Tensor, feature: Tensor, threshold: Tensor, child: Tensor, root: Tensor, depth: int) -> Tensor:
    """The leaf that each sample reaches in each tree: x `[batch, feature]` → nodes `[batch, tree]`.

    Few trees are as deep as the deepest: pairs of a sample and a tree that have reached their leaf are left behind.
    """
    if is_traced():
        return _walk_to_the_end(x, feature, threshold, child, root, depth)
    reached = root.repeat(len(x))
    start = torch.arange(len(x), device=x.device).repeat_interleave(len(root)) * x.shape[1]  # of the row in `values`
    values, node, moving = x.reshape(-1), reached, None
    for level in range(1, depth + 1):
        value = values[start + feature[node]]
        node = child[node] + (value > threshold[node]).to(child.dtype)
        if level % _LEVELS_AT_ONCE == 0 or level == depth:
            reached = node if moving is None else reached.index_copy(0, moving, node)
            going = (child[node] != node).nonzero()[:, 0]
            moving = going if moving is None else moving[going]
            node, start = node[going], start[going]
    return reached.view(len(x), len(root))


def _walk_to_the_end(x: Tensor, feature: Tensor, threshold: Tensor, child: Tensor, root: Tensor, depth: int) -> Tensor:
    """The same without leaving pairs behind, so that no step depends on values; a leaf is its own child."""
    feature, child, shape = feature.long(), child.long(), (x.shape[0], len(root))
    node = root.long()[None].expand(shape).reshape(-1)
    for _ in range(depth):
        compared = x.gather(1, feature.index_select(0, node).view(shape)).reshape(-1)
        right = compared > threshold.index_select(0, node)
        node = child.index_select(0, node) + right.long()
    return node.view(shape)


def check_table(table: Mapping[str, Tensor], features: int, outputs: int) -> tuple[str | None, int]:
    """Check trees before they are walked: a changed file must neither read beyond its tables nor run for ever.

    Args:
        table: The tensors of a `TreeTable`, which may hold anything.
        features: Size of the input.
        outputs: The most outputs.

    Returns:
        What is wrong, or None; and the depth of the deepest tree.
    """
    for name, value in table.items():
        if value.ndim != {"values": 2, "scale": 0}.get(name, 1):
            return f"{name} has the shape {list(value.shape)}", 0
        if value.is_floating_point() != (name in ("threshold", "values", "baseline", "scale")):
            return f"{name} has the type {value.dtype}", 0
    feature, child, leaf, root = (table[name].long() for name in ("feature", "child", "leaf", "root"))
    values, trees, nodes, columns = table["values"], len(root), len(feature), len(table["baseline"])
    if any(len(table[name]) != nodes for name in ("threshold", "child", "leaf")):
        return "the tables of the nodes have different lengths", 0
    if not 1 <= columns <= outputs:
        return f"they have {columns} outputs, 1 to {outputs} are possible", 0
    if not trees:
        return None, 0
    if values.shape[1] not in (1, columns) or trees * values.shape[1] % columns:
        return f"{trees} trees with values of width {values.shape[1]} do not fit {columns} outputs", 0
    if not _within(root, nodes) or not _within(leaf, len(values)) or not _within(feature, features):
        return "a node, value or feature lies outside its table", 0
    own = torch.arange(nodes)
    is_leaf = child == own
    if (child < own).any() or not _within(child[~is_leaf] + 1, nodes):
        return "a child comes before its node, or lies outside the table", 0
    if not (table["threshold"][is_leaf] == torch.inf).all():
        return "a leaf has a threshold", 0
    if not all(table[name].isfinite().all() for name in ("values", "baseline", "scale")):
        return "a value is not finite", 0
    depth, level = 0, root.unique()
    while len(level := level[~is_leaf[level]]):
        if depth == MAX_DEPTH:
            return f"a tree has more than {MAX_DEPTH} levels", 0
        level, depth = torch.cat([child[level], child[level] + 1]).unique(), depth + 1
    return None, depth


def _within(numbers: Tensor, size: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < size)


def read_trees(model: Any, *, missing: bool = False) -> TreeTable:
    """The trees of a fitted scikit-learn model, as `TreeEnsemble.read` takes them."""
    return read_boosting(model, missing=missing) if hasattr(model, "_predictors") else read_forest(model)


def read_forest(model: Any) -> TreeTable:
    """The trees of a fitted `ExtraTrees…` or `RandomForest…`, from the public attribute `tree_` of each.

    Raises:
        InputError: If it is not such a model, or predicts several targets.
    """
    found = getattr(model, "estimators_", None)
    if found is None or not all(hasattr(one, "tree_") for one in found):
        raise InputError(
            "trees are read from a fitted ExtraTrees, RandomForest or HistGradientBoosting model of scikit-learn, got "
            f"{show(model)}"
        )
    trees = [one.tree_ for one in found]
    if trees[0].value.shape[1] != 1:
        raise InputError(f"trees are read from models of one target, got {trees[0].value.shape[1]} targets")
    read = [
        _Tree(
            tree.feature,
            tree.threshold,
            tree.children_left,
            tree.children_right,
            tree.children_left < 0,
            tree.value[:, 0],
        )
        for tree in trees
    ]
    return _joined(read, np.zeros(read[0].values.shape[1]), 1 / len(read))


def send_missing(x: Tensor) -> Tensor:
    """Each feature twice, `[batch, feature]` → `[batch, 2 · feature]`: with −∞ where it is NaN, then with +∞.

    A split that sends missing values to the left compares the first, one that sends them to the right the second.
    """
    return torch.cat([x.nan_to_num(nan=end, posinf=torch.inf, neginf=-torch.inf) for end in (-torch.inf, torch.inf)], 1)


def read_boosting(model: Any, *, missing: bool = False) -> TreeTable:
    """The trees of a fitted `HistGradientBoosting…`, whose sum with the baseline is the raw score of each class.

    `_predictors` and `_baseline_prediction` are private, and there is no public way to the trees. A test compares the
    scores with those of the installed scikit-learn, so that a change there is noticed.

    Args:
        model: The fitted model.
        missing: Whether the trees will read what `send_missing` returns.

    Raises:
        InputError: If a split is categorical.
    """
    read = []
    for tree in (tree for of_round in model._predictors for tree in of_round):
        nodes = tree.nodes
        if nodes["is_categorical"].any():
            raise InputError(f"{show(model)} has categorical splits, which are not read: encode these features first")
        is_leaf = nodes["is_leaf"].astype(bool)
        feature = nodes["feature_idx"].astype(np.int64)
        if missing:
            feature += np.where(nodes["missing_go_to_left"], 0, model.n_features_in_)
        read.append(
            _Tree(
                feature,
                # A split between numbers and NaN has the threshold ∞, which is not below the ∞ that stands for NaN.
                np.minimum(nodes["num_threshold"], np.finfo(np.float32).max),
                nodes["left"],
                nodes["right"],
                is_leaf,
                nodes["value"][:, None],
            )
        )
    return _joined(read, np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1), 1.0)


def _joined(trees: Sequence[_Tree], baseline: np.ndarray, scale: float) -> TreeTable:
    """One table of all trees, level by level; equal values of leaves are kept once."""
    first = np.cumsum([0, *(len(tree.feature) for tree in trees[:-1])])
    is_leaf = np.concatenate([tree.is_leaf for tree in trees]).astype(bool)
    left, right = (
        np.concatenate([start + child.astype(np.int64) for start, child in zip(first, children)])
        for children in ([tree.left for tree in trees], [tree.right for tree in trees])
    )
    levels = [first]
    while len(inner := levels[-1][~is_leaf[levels[-1]]]):
        levels.append(np.stack([left[inner], right[inner]], axis=1).reshape(-1))
    order = np.concatenate(levels)
    place = np.empty(len(is_leaf), dtype=np.int64)
    place[order] = np.arange(len(order))
    is_leaf, child = is_leaf[order], np.arange(len(order))
    child[~is_leaf] = place[left[order][~is_leaf]]
    feature = np.where(is_leaf, 0, np.concatenate([tree.feature for tree in trees])[order])
    threshold = np.where(is_leaf, np.inf, np.concatenate([tree.threshold for tree in trees])[order])
    different, row = distinct_rows(np.concatenate([tree.values for tree in trees])[order][is_leaf].astype(np.float32))
    leaf = np.zeros(len(order), dtype=np.int64)
    leaf[is_leaf] = row
    small, root = np.int32, place[first]
    return TreeTable(
        feature.astype(small),
        round_down(threshold),
        child.astype(small),
        leaf.astype(small),
        root.astype(small),
        different,
        baseline,
        scale,
    )


def distinct_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of float32 `[n, width]`, and which of them each row is `[n]`.

    Pure leaves of a forest have as many different values as there are classes, whatever the number of nodes.

    >>> distinct_rows(np.array([[0, 1], [1, 0], [0, 1]], dtype=np.float32))[1].tolist() in ([0, 1, 0], [1, 0, 1])
    True
    """
    # A hash of each row, since sorting rows as such takes several times as long.
    factors = np.random.default_rng(0).integers(2**63, size=values.shape[1], dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    hashed = (np.ascontiguousarray(values).view(np.uint32) * factors).sum(axis=1)
    _, kept, row = np.unique(hashed, return_index=True, return_inverse=True)
    if np.array_equal(values[kept][row], values):
        return values[kept], row
    different, row = np.unique(values, axis=0, return_inverse=True)
    return different, row.reshape(-1)


def round_down(thresholds: np.ndarray) -> np.ndarray:
    """The largest float32 that is not above each float64: a float32 x has x ≤ t exactly where x ≤ round_down(t).

    >>> rounded = round_down(np.array([0.1, 0.5]))
    >>> bool(rounded[0] < 0.1), float(rounded[1])
    (True, 0.5)
    """
    with np.errstate(over="ignore"):  # beyond the range of float32
        near = np.asarray(thresholds, dtype=np.float64).astype(np.float32)
        below = np.nextafter(near, np.float32(-np.inf))
    return np.where(near > thresholds, below, near).astype(np.float32)


def _tensors(table: TreeTable) -> dict[str, Tensor]:
    return {name: torch.as_tensor(value) for name, value in table._asdict().items()}
