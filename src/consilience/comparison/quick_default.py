"""What a comparison does where nobody says: a few strong methods and baselines, with few seeds."""

from __future__ import annotations

from collections.abc import Iterable

# Strong methods of each kind, and baselines: those of them that are registered are compared. The short ones come first,
# so that the time left is known soon.
QUICK_METHODS = ("late", "concat", "linear", "boosted", "majority", "best-unimodal", "bayes-robust", "auto")
QUICK_SEEDS, THOROUGH_SEEDS = 5, 10


def default_methods(thorough: bool, with_settings: Iterable[str] = ()) -> tuple[str, ...] | None:
    """Return the methods to compare where none are named; None for all.

    Args:
        thorough: Whether to compare all.
        with_settings: Methods that were given settings: they are meant to take part.

    Example:
        >>> default_methods(thorough=True) is None, default_methods(thorough=False, with_settings=["qmf"])[-1]
        (True, 'qmf')
    """
    from consilience.comparison.plan import registered_name
    from consilience.methods import METHODS

    if thorough:
        return None
    added = [name for name in with_settings if registered_name(name) in METHODS]  # others are named by an error
    return tuple(dict.fromkeys([*(name for name in QUICK_METHODS if name in METHODS), *added]))


def default_seeds(named: bool, thorough: bool) -> int:
    """Return the number of seeds where none is given; named: whether the methods are named.

    >>> default_seeds(named=False, thorough=False), default_seeds(named=True, thorough=False)
    (5, 10)
    """
    return THOROUGH_SEEDS if named or thorough else QUICK_SEEDS
