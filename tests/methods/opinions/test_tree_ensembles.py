import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from consilience.core.errors import InputError, SavedModelError
from consilience.methods.opinions.tree_ensembles import MAX_DEPTH, TreeEnsemble, distinct_rows, round_down

FORESTS = [ExtraTreesClassifier, RandomForestClassifier, ExtraTreesRegressor, RandomForestRegressor]
BOOSTING = [HistGradientBoostingClassifier, HistGradientBoostingRegressor]


def table(seed=0, n=150, features=4, classes=3, grid=None):
    """Values, some of them on a grid so that many are equal, and classes that depend on them."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, features))
    if grid is not None:
        x = np.round(x / grid) * grid
    y = (x[:, 0] + x[:, 1] ** 2 + random.normal(scale=0.3, size=n)).argsort().argsort() * classes // n
    return x.astype(np.float32), y


def fitted(cls, x, y, seed=0, weight=None):
    size = {"max_iter": 8, "min_samples_leaf": 5} if cls in BOOSTING else {"n_estimators": 8}
    return cls(**size, random_state=seed).fit(x, y, sample_weight=weight)


def expected(model, x):
    """What scikit-learn computes, `[n, output]`."""
    if hasattr(model, "decision_function"):
        scores = model.decision_function(x)
        return scores[:, None] if scores.ndim == 1 else scores
    return model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)[:, None]


def at_thresholds(model, x, random):
    """Samples whose values are thresholds of the trees, and their neighbours among the float32 on both sides."""
    trees = TreeEnsemble(x.shape[1], 10).read(model)
    inner = torch.isfinite(trees.threshold)
    feature, threshold = trees.feature[inner].numpy(), trees.threshold[inner].numpy()
    chosen = x[random.integers(len(x), size=3 * len(threshold))]
    near = [np.nextafter(threshold, np.float32(-np.inf)), threshold, np.nextafter(threshold, np.float32(np.inf))]
    chosen[np.arange(len(chosen)), np.tile(feature, 3)] = np.concatenate(near)
    return chosen


@pytest.mark.parametrize("cls", FORESTS + BOOSTING)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 5), grid=st.sampled_from([None, 0.1, 0.5, 1.0]))
@settings(max_examples=8, deadline=None)
def test_trees_answer_as_scikit_learn(cls, seed, classes, grid):
    """Also for values equal to a threshold; a change of the private attributes of boosting would be seen here."""
    x, y = table(seed, classes=classes, grid=grid)
    model = fitted(cls, x, y, seed % 100)
    trees = TreeEnsemble(4, 5).read(model)
    random = np.random.default_rng(seed)
    new = np.concatenate([x, random.normal(size=(50, 4)).astype(np.float32) * 3, at_thresholds(model, x, random)])
    np.testing.assert_allclose(trees(torch.from_numpy(new)).numpy(), expected(model, new), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cls", FORESTS + BOOSTING)
def test_weights_and_extreme_values(cls):
    x, y = table(classes=2)
    weight = np.random.default_rng(1).integers(0, 3, len(x)).astype(float)
    model = fitted(cls, x, y, weight=weight)
    trees = TreeEnsemble(4, 2).read(model)
    largest = np.finfo(np.float32).max / 1000  # scikit-learn sums its inputs
    new = np.concatenate([x, np.full((1, 4), largest, np.float32), np.full((1, 4), -largest, np.float32)])
    np.testing.assert_allclose(trees(torch.from_numpy(new)).numpy(), expected(model, new), rtol=1e-6, atol=1e-6)


@given(st.floats(allow_nan=False, width=64), st.floats(allow_nan=False, width=32))
def test_rounding_down_keeps_every_comparison(threshold, x):
    rounded = round_down(np.array([threshold]))[0]
    with np.errstate(over="ignore"):
        next_one = np.nextafter(rounded, np.float32(np.inf))
    for value in (np.float32(x), rounded, next_one):
        assert (np.float64(value) <= threshold) == (value <= rounded)


def test_distinct_rows_are_found():
    rows = np.random.default_rng(0).integers(0, 3, size=(500, 3)).astype(np.float32)
    different, row = distinct_rows(rows)
    assert np.array_equal(different[row], rows)
    assert len(different) == len(np.unique(rows, axis=0)) == 27


def test_pieces_of_a_batch_and_an_empty_one():
    x, y = table()
    trees = TreeEnsemble(4, 3).read(fitted(ExtraTreesClassifier, x, y))
    whole = trees(torch.from_numpy(x))
    alone = torch.cat([trees(torch.from_numpy(x[row : row + 1])) for row in range(len(x))])
    torch.testing.assert_close(alone, whole, rtol=0, atol=1e-12)
    assert trees(torch.zeros(0, 4)).shape == (0, 3)
    assert TreeEnsemble(4, 3)(torch.from_numpy(x)).eq(0).all()


def test_a_forest_of_one_leaf_and_trees_of_different_depth():
    x, y = table()
    for depth in (1, 2, 3, 4, 5, 9):
        model = ExtraTreesClassifier(7, max_depth=depth, random_state=0).fit(x, y)
        np.testing.assert_allclose(TreeEnsemble(4, 3).read(model)(torch.from_numpy(x)).numpy(), model.predict_proba(x))
    constant = ExtraTreesClassifier(5, random_state=0).fit(np.zeros_like(x), y)
    trees = TreeEnsemble(4, 3).read(constant)
    assert trees.depth == 0
    np.testing.assert_allclose(trees(torch.from_numpy(x))[0].numpy(), np.bincount(y) / len(y), rtol=1e-6)


def test_other_models_are_refused():
    x, y = table()
    with pytest.raises(InputError, match="fitted ExtraTrees, RandomForest or HistGradientBoosting"):
        TreeEnsemble(4, 3).read(ExtraTreesClassifier())
    with pytest.raises(InputError, match="fitted ExtraTrees"):
        TreeEnsemble(4, 3).read(GradientBoostingClassifier(n_estimators=2).fit(x, y))
    with pytest.raises(InputError, match="one target"):
        TreeEnsemble(4, 3).read(RandomForestRegressor(2).fit(x, np.stack([y, y], axis=1)))
    numbers = np.column_stack([y, x])
    categorical = HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(numbers, y)
    with pytest.raises(InputError, match="categorical"):
        TreeEnsemble(5, 3).read(categorical)
    with pytest.raises(InputError, match="outside its table"):
        TreeEnsemble(1, 3).read(fitted(ExtraTreesClassifier, x, y))


@pytest.mark.parametrize("cls", [ExtraTreesClassifier, HistGradientBoostingClassifier])
def test_saved_trees_are_the_same(cls):
    x, y = table()
    trees = TreeEnsemble(4, 3).read(fitted(cls, x, y))
    again = TreeEnsemble(4, 3)
    again.load_state_dict(trees.state_dict())
    assert again.depth == trees.depth
    assert torch.equal(again(torch.from_numpy(x)), trees(torch.from_numpy(x)))
    assert torch.equal(trees.double()(torch.from_numpy(x).double()), again(torch.from_numpy(x)))


def chain(state):
    """One tree that is deeper than any may be, each node with a leaf and the next node as children."""
    inner = MAX_DEPTH + 1
    child = torch.arange(2 * inner + 1, dtype=torch.int32)
    child[0] = 1
    child[2 : 2 * inner - 1 : 2] = torch.arange(3, 2 * inner + 1, 2, dtype=torch.int32)
    threshold = torch.where(child == torch.arange(len(child)), torch.inf, 0.0)
    empty = torch.zeros(len(child), dtype=torch.int32)
    state.update(child=child, threshold=threshold, feature=empty, leaf=empty, root=torch.zeros(1, dtype=torch.int32))


def cycle(state):
    node = int((state["child"] != torch.arange(len(state["child"]))).nonzero()[-1])
    state["child"][node] = 0


CHANGES = {
    "a negative feature": lambda state: state["feature"].fill_(-1),
    "a feature too large": lambda state: state["feature"].fill_(4),
    "a child outside": lambda state: state["child"].__setitem__(0, len(state["child"]) - 1),
    "a child far outside": lambda state: state["child"].__setitem__(0, 2**31 - 1),
    "a cycle": cycle,
    "a leaf's value outside": lambda state: state["leaf"].fill_(len(state["values"])),
    "a negative value": lambda state: state["leaf"].fill_(-3),
    "a root outside": lambda state: state["root"].__setitem__(0, len(state["child"])),
    "a leaf that is left": lambda state: state["threshold"].fill_(0),
    "a shorter table": lambda state: state.update(leaf=state["leaf"][:-1]),
    "another shape": lambda state: state.update(child=state["child"][None]),
    "another type": lambda state: state.update(feature=state["feature"].float()),
    "too many outputs": lambda state: state.update(baseline=torch.zeros(9)),
    "no outputs": lambda state: state.update(baseline=torch.zeros(0)),
    "values of another width": lambda state: state.update(values=state["values"][:, :2]),
    "values that are not finite": lambda state: state["values"].fill_(torch.nan),
    "a chain": chain,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_files_are_refused(change):
    x, y = table()
    state = TreeEnsemble(4, 3).read(fitted(ExtraTreesClassifier, x, y)).state_dict()
    state = {name: value.clone() for name, value in state.items()}
    change(state)
    with pytest.raises(SavedModelError, match="damaged"):
        TreeEnsemble(4, 3).load_state_dict(state)


def test_any_table_that_is_accepted_can_be_walked():
    """Random numbers in every table: refused, or evaluated to finite numbers."""
    x, y = table(n=40)
    state = TreeEnsemble(4, 3).read(ExtraTreesClassifier(2, random_state=0).fit(x, y)).state_dict()
    random, accepted = np.random.default_rng(0), 0
    for _ in range(300):
        changed = {name: value.clone() for name, value in state.items()}
        for name in random.choice(["feature", "child", "leaf", "root"], 2):
            place = random.integers(len(changed[name]))
            changed[name][place] = int(random.integers(-2, len(state["child"]) + 2))
        trees = TreeEnsemble(4, 3)
        try:
            trees.load_state_dict(changed)
        except SavedModelError:
            continue
        accepted += 1
        assert trees(torch.from_numpy(x)).isfinite().all()
    assert 0 < accepted < 300
