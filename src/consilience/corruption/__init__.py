"""What can go wrong with samples: noise, gaps, stuck sensors, swaps, missing modalities; seeded per sample."""

from consilience.corruption import faulty, lost, noisy, published  # noqa: F401  (they register themselves)
from consilience.corruption.corruptor import Corruptor, corrupt
from consilience.corruption.noise import Noise
from consilience.corruption.registry import Corruption, Portion, corruption_names, find_corruption, register_corruption
from consilience.corruption.statistics import Statistics

__all__ = [
    "Corruption",
    "Corruptor",
    "Noise",
    "Portion",
    "Statistics",
    "corrupt",
    "corruption_names",
    "find_corruption",
    "register_corruption",
]
