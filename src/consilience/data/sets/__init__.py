"""The data sets that have a name, one file each; `consilience.data.named_sets` imports them when needed."""
