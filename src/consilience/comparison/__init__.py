"""Comparisons: data × methods × seeds → results, resumable, parallel, with statistics."""

from consilience.comparison.comparison import Comparison, compare, reopen

__all__ = ["Comparison", "compare", "reopen"]
