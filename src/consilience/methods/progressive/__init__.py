"""Progressive fusion: what was fused is fed back to the encoders, around any method or module."""
