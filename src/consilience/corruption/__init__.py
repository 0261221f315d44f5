"""What can go wrong with samples: noise, gaps, stuck sensors, swaps, missing modalities; seeded per sample."""

from consilience.corruption import additive_noise, missing_values, published_noise, sensor_faults  # noqa: F401  (they register themselves)
from consilience.corruption.corruptions import (
    Corruption,
    Portion,
    corruption_names,
    find_corruption,
    register_corruption,
)
from consilience.corruption.corruptor import Corruptor, corrupt
from consilience.corruption.feature_statistics import Statistics
from consilience.corruption.seeded_noise import Noise

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
