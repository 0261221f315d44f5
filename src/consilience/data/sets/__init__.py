"""The data sets that have a name, one file each. Importing this registers them all."""

from consilience.data.sets import (
    avmnist,
    avmnist_predictions,
    breast_tcga,
    captions,
    digits,
    finance,
    fsdd,
    gaussians,
    handwritten,
    hydraulic,
    mnist,
    mosi,
    mvsa,
    progressive_synthetic,
    sequences,
    utd_mhad,
)

__all__ = [
    "avmnist",
    "avmnist_predictions",
    "breast_tcga",
    "captions",
    "digits",
    "finance",
    "fsdd",
    "gaussians",
    "handwritten",
    "hydraulic",
    "mnist",
    "mosi",
    "mvsa",
    "progressive_synthetic",
    "sequences",
    "utd_mhad",
]
