"""Where samples come from: built-in sets, the user's tables and arrays, public formats."""

from consilience.data.dataset import DataSet
from consilience.data.loading import load_data
from consilience.data.registry import data_names

__all__ = ["DataSet", "data_names", "load_data"]
