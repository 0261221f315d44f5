"""Where samples come from: built-in sets, the user's tables and arrays, public formats."""

from consilience.data.dataset import DataSet
from consilience.data.loading import load_data, read_with_recipe
from consilience.data.named_sets import data_names, list_sets

__all__ = ["DataSet", "data_names", "list_sets", "load_data", "read_with_recipe"]
