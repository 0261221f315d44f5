"""Methods that join opinions, one file each. A file dropped in here is found by itself."""

from consilience.methods import load_room

load_room(__name__, __path__)
