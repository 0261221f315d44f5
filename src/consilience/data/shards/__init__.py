"""Data sets in shards: files that together are larger than memory and are read in chunks, again in every epoch."""
