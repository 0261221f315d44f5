"""What a comparison does where nobody says: a few strong methods and baselines, with few seeds."""

from __future__ import annotations

# Strong methods of each kind, and baselines: those of them that are registered are compared. The short ones come first,
# so that the time left is known soon.
QUICK_METHODS = ("late", "concat", "linear", "boosted", "majority", "best-unimodal", "bayes-robust", "auto")
QUICK_SEEDS, THOROUGH_SEEDS = 5, 10


def default_methods(thorough: bool) -> tuple[str, ...] | None:
    """Return the methods to compare where none are named; None for all.

    >>> default_methods(thorough=True) is None, "late" in default_methods(thorough=False)
    (True, True)
    """
    from consilience.methods import METHODS

    return None if thorough else tuple(name for name in QUICK_METHODS if name in METHODS)


def default_seeds(named: bool, thorough: bool) -> int:
    """Return the number of seeds where none is given; named: whether the methods are named.

    >>> default_seeds(named=False, thorough=False), default_seeds(named=True, thorough=False)
    (5, 10)
    """
    return THOROUGH_SEEDS if named or thorough else QUICK_SEEDS
