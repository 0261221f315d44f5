"""Who is learned from and who is tested: evenly drawn, or with classes that are rarer than others."""

from __future__ import annotations

import numpy as np

RATIO = 20.0  # of the most frequent class to the rarest, where they are uneven


def draw_evenly(y: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, n of them with every class in its share, and all others.

    >>> train, test = draw_evenly(np.repeat([0, 1], 50), 10, seed=0)
    >>> np.bincount(np.repeat([0, 1], 50)[train]), len(test)
    (array([5, 5]), 90)
    """
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(len(y)), train_size=n, stratify=y, random_state=seed)
    return train, test


def graded_shares(classes: int, ratio: float) -> np.ndarray:
    """The classes' shares `[class]`, falling in equal steps, the first `ratio` times the last.

    >>> (graded_shares(3, 3) * 6).round(3)
    array([3., 2., 1.])
    """
    steps = np.linspace(ratio, 1.0, classes)
    return steps / steps.sum()


def geometric_shares(classes: int, ratio: float) -> np.ndarray:
    """The same, falling by equal factors.

    >>> (geometric_shares(3, 4) * 7).round(3)
    array([4., 2., 1.])
    """
    steps = np.geomspace(ratio, 1.0, classes)
    return steps / steps.sum()


def draw_shares(y: np.ndarray, shares: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n rows with these shares `[class]` of the classes, as near as whole rows come, and all others, in random order.

    >>> y = np.repeat([0, 1], 50)
    >>> chosen, others = draw_shares(y, np.array([0.8, 0.2]), 40, seed=0)
    >>> np.bincount(y[chosen]), np.bincount(y[others])
    (array([32,  8]), array([18, 42]))
    """
    rng = np.random.default_rng(seed)
    by_class = [rng.permutation(np.flatnonzero(y == number)) for number in range(len(shares))]
    counts = np.round(n * shares).astype(int)
    chosen = np.concatenate([rows[:count] for rows, count in zip(by_class, counts)])
    others = np.concatenate([rows[count:] for rows, count in zip(by_class, counts)])
    return chosen, rng.permutation(others)


def thin_out(y: np.ndarray, rows: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """As many of these rows as can have these shares `[class]`, and at least one of each class; the first are kept.

    >>> y = np.array([0, 0, 0, 0, 1, 1])
    >>> thin_out(y, np.arange(6), np.array([0.5, 0.5])).tolist()
    [0, 1, 4, 5]
    """
    by_class = [rows[y[rows] == number] for number in range(len(shares))]
    most = min(len(one) / share for one, share in zip(by_class, shares))
    return np.concatenate([one[: max(1, int(most * share + 1e-9))] for one, share in zip(by_class, shares)])


def weigh_by_class(y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The weight of each sample `[n]` with which the classes have these shares; their mean is 1.

    >>> weigh_by_class(np.array([0, 0, 0, 1]), np.array([0.5, 0.5])).round(3)
    array([0.667, 0.667, 0.667, 2.   ])
    """
    return (shares * len(y) / np.bincount(y, minlength=len(shares)).clip(min=1))[y]
