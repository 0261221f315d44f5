"""Methods that join opinions, one file each. A file dropped in here is found by itself."""
