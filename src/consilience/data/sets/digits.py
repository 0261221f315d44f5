"""`digits`: real handwritten digits, each quadrant of the picture a modality of its own."""

from __future__ import annotations

import numpy as np

from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.named_sets import register
from consilience.data.splits import draw_split


@register(
    "digits",
    description="8×8 handwritten digits of scikit-learn, seen as four quadrants",
    licence="CC BY 4.0 (UCI, Alpaydin and Kaynak, Optical Recognition of Handwritten Digits)",
)
def digits(*, seed: NonNegativeInt = 0) -> DataSet:
    """1797 digits, ten classes, four vectors of 16 pixels; split 60/20/20."""
    from sklearn.datasets import load_digits

    images, y = load_digits(return_X_y=True)
    quadrants = cut_quadrants(images.reshape(-1, 8, 8).astype(np.float32))
    samples = Samples.of({name: part.reshape(len(y), -1) for name, part in quadrants.items()}, y)
    split = draw_split(y, "classification", seed=seed, validation=0.2, test=0.2)
    return DataSet("digits", samples, "classification", *split)


def cut_quadrants(images: np.ndarray) -> dict[str, np.ndarray]:
    """The four quarters of pictures `[..., height, width]`, as views.

    >>> {name: part.tolist() for name, part in cut_quadrants(np.array([[1, 2], [3, 4]])).items()}
    {'top_left': [[1]], 'top_right': [[2]], 'bottom_left': [[3]], 'bottom_right': [[4]]}
    """
    half, middle = images.shape[-2] // 2, images.shape[-1] // 2
    return {
        "top_left": images[..., :half, :middle],
        "top_right": images[..., :half, middle:],
        "bottom_left": images[..., half:, :middle],
        "bottom_right": images[..., half:, middle:],
    }
