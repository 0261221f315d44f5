"""Corruptions of samples, with random numbers that depend on the seed and the sample only.

Where to look:

- `additive_noise`: Gaussian noise, salt and pepper, a wrong scale.
- `missing_values`: blanked, dropped and missing values; `text_corruption` for the words of a text.
- `sensor_faults`: stuck sensors and swapped samples.
- `conflicts`: one modality of a sample from another class.
- `image_moves`: images moved and mirrored.
- `published_noise`: the noise of published tables.
- `seeded_noise`: the random numbers of all of these.
- `corruptor`: `corrupt`, which draws the samples to hit and applies a corruption to them.
- `augmentation`: how training with corruptions is written, and its levels. `tensor_noise`: `seeded_noise` as tensors.
- `random_faults`: samples spoilt by faults drawn at random, from which methods learn what broken modalities look like.
- `reference`: the statistics that scale a corruption. `regions`: the part of a sample that is hit.
- `corruptions`: what a corruption is, and their registry. `mapping_output`: results in the form of the input.
"""

from consilience.corruption import (  # noqa: F401  (they register themselves)
    additive_noise,
    conflicts,
    image_moves,
    missing_values,
    published_noise,
    sensor_faults,
)
from consilience.corruption.corruptions import (
    Corruption,
    Portion,
    corruption_names,
    find_corruption,
    register_corruption,
)
from consilience.corruption.corruptor import Corruptor, corrupt
from consilience.corruption.reference import Statistics
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
