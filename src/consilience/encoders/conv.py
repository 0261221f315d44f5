"""LeNet-style convolution, the default for images and spectrograms."""

from __future__ import annotations

from torch import Tensor, nn

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.core.settings import PositiveInt
from consilience.encoders.choice import register_encoder
from consilience.encoders.encoder import Encoded, Encoder, length_mask

# Channels double at every stage: after this many stages the remaining map of a large image is averaged.
MAX_STAGES = 6
# A small image has few stages in which its channels double, so that it starts with more of them.
MIN_CHANNELS, MIN_WIDTH = 6, 48


@register_encoder("conv")
class Conv(Encoder):
    """Stages of convolution → batch norm → ReLU → max-pool 2, the channels doubling; stages `conv1`, `conv2`, …

    The LeNet-style encoders of AV-MNIST (Shankar et al., "Progressive fusion for multimodal integration"): 5×5 first,
    then 3×3, no bias, sides kept by padding and halved by pooling, so that a 28×28 image takes 4 stages (28 → 14 → 7
    → 3 → 1, width 48) and a 112×112 spectrogram 6 (width 192). A side that has come down to one pixel is not pooled
    further, so any proportion works.

    A map that is larger than one pixel at the end is averaged; its positions, row by row, are the features' parts.

    Args:
        modality: An image.
        channels: Channels of the first stage. None: 6, or more where few stages would leave the width below 48.
        stages: Number of stages. None: until the longer side is one pixel, at most 6.
    """

    reads = ("image",)
    size = "channels"

    def __init__(self, modality: Modality, *, channels: PositiveInt | None = None, stages: PositiveInt | None = None):
        super().__init__()
        previous, height, width = modality.shape
        room = max(height, width).bit_length() - 1
        if room < 1:
            raise InputError("an image of one pixel cannot be convolved: choose mlp")
        count = min(room, MAX_STAGES) if stages is None else stages
        if count > room:
            raise InputError(f"an image of {height}×{width} pixels has room for at most {room} stages, got {stages}")
        if channels is None:
            channels = max(MIN_CHANNELS, MIN_WIDTH >> (count - 1))
        self.channels = channels
        self.stages = nn.ModuleDict()
        for number in range(count):
            kernel = 3 if number else 5
            pool = (min(2, height), min(2, width))
            self.stages[f"conv{number + 1}"] = nn.Sequential(
                nn.Conv2d(previous, channels, kernel, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(channels),  # before the pooling: one sample still has several pixels to take moments of
                nn.MaxPool2d(pool),
                nn.ReLU(),  # after the pooling: the same numbers from a quarter of the work
            )
            height, width = height // pool[0], width // pool[1]
            previous, channels = channels, 2 * channels
        self.width = previous

    def finish(self, hidden: Tensor, mask: Tensor | None) -> Encoded:
        """The map's positions as parts `[batch, height × width, channel]`, and their mean."""
        sequence = hidden.flatten(2).transpose(1, 2)
        return Encoded(hidden.mean((2, 3)), sequence, length_mask(None, sequence))
