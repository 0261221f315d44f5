"""Progressive fusion: what was fused is fed back to the encoders, around any method or module."""

from consilience.methods import load_room

load_room(__name__, __path__)
