"""Methods that join features, one file each. A file dropped in here is found by itself."""
