"""The data sets that have a name, one file each. Importing this registers them all."""

from consilience.data.sets import (
    avmnist_predictions,
    breast_tcga,
    captions,
    digits,
    gaussians,
    handwritten,
    mnist,
    mvsa,
    progressive_synthetic,
    sequences,
)

__all__ = [
    "avmnist_predictions",
    "breast_tcga",
    "captions",
    "digits",
    "gaussians",
    "handwritten",
    "mnist",
    "mvsa",
    "progressive_synthetic",
    "sequences",
]
