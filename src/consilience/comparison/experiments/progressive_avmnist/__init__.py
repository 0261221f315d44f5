"""What the studies of progressive fusion on AV-MNIST share; it leaves with them."""

from typing import Any, NamedTuple

PAPER = "Shankar, Thompson and Fiterau 2022, Progressive Fusion for Multimodal Integration"
LOOP = "pro"
INTO = "conv4"
TRAINING: dict[str, Any] = {
    "epochs": 16,
    "batch_size": 256,
    "lr": 0.1,
    "optimizer": "sgd",
    "weight_decay": 1e-4,
    "clip": 1.0,
    "patience": 4,
    "resident": True,
    "cuda_graphs": True,
}
BUILD: dict[str, Any] = {"components": 4, "noise": 800.0}
QUICK_BUILD: dict[str, Any] = {"n": 2100, "side": 28, "noise": 120.0}


class Row(NamedTuple):
    """One line of a table: a model's name there, and a figure of it without and with the loop."""

    name: str
    base: float
    loop: float


TABLE9 = {
    "concat": Row("LF", 71.4, 71.6),
    "lowrank": Row("LFN", 71.1, 71.8),
    "mfm": Row("MFM", 71.4, 72.2),
    "gradient-blend": Row("GB", 68.9, 69.3),
    "refnet": Row("RefNet", 70.6, 71.2),
    "mfas": Row("MFAS", 72.1, 72.5),
}
