"""`captions`: small generated pictures with sentences; each leaves open what the other often says."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeFloat, NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.named_sets import register
from consilience.data.splits import draw_split

_SIZE = 16
_COLOURS = {"red": (1.0, 0.2, 0.2), "green": (0.2, 0.9, 0.3), "blue": (0.2, 0.4, 1.0)}
_SHAPES = ("circle", "cross")
_OPENINGS = ("a", "here is a", "we see a", "this picture shows a", "someone drew a")
_PLACES = ("on the left", "on the right", "in a corner", "near the middle", "by itself")
_VAGUE_COLOURS = ("small", "bright", "pretty")
_VAGUE_SHAPES = ("thing", "figure", "mark")

_GREY_SHARE = 0.5  # pictures without colour
_COLOUR_NAMED = 0.8  # sentences that name the colour
_SHAPE_NAMED = 0.4  # sentences that name the shape


@register("captions", description="Small generated pictures of coloured shapes, with sentences that name part of them")
def captions(
    *, n: Annotated[int, Interval(30)] = 1500, noise: NonNegativeFloat = 0.15, seed: NonNegativeInt = 0
) -> DataSet:
    """Six classes such as "red circle": image `[3, 16, 16]` in [0, 1] shows the shape and, in half of the pictures, the
    colour; the sentence mostly names the colour and sometimes the shape.
    """
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % (len(_COLOURS) * len(_SHAPES)))
    colour, shape = y // len(_SHAPES), y % len(_SHAPES)
    labels = np.array([f"{one} {other}" for one in _COLOURS for other in _SHAPES])[y]
    samples = Samples.of(
        {"image": _draw_images(colour, shape, noise, rng), "text": _write_sentences(colour, shape, rng)}, labels
    )
    split = draw_split(labels, "classification", seed=seed, validation=0.2, test=0.2)
    return DataSet("captions", samples, "classification", *split)


def _draw_images(colour: np.ndarray, shape: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    n = len(colour)
    radius = rng.uniform(3.0, 5.0, size=(n, 1, 1))
    middle = rng.uniform(5.0, _SIZE - 6.0, size=(n, 2))
    down = np.arange(_SIZE)[:, None] - middle[:, 0, None, None]
    right = np.arange(_SIZE) - middle[:, 1, None, None]
    circle = down**2 + right**2 <= radius**2
    # Arms such that both shapes have nearly the same area: counting pixels does not tell them apart.
    long, short = np.maximum(np.abs(down), np.abs(right)), np.minimum(np.abs(down), np.abs(right))
    cross = (long <= 1.25 * radius) & (short <= 0.38 * radius)
    drawn = np.where((shape == _SHAPES.index("circle"))[:, None, None], circle, cross)  # [n, height, width]
    tint = np.array(list(_COLOURS.values()))[colour]
    grey = rng.random(n) < _GREY_SHARE
    tint[grey] = 0.6
    image = drawn[:, None] * tint[:, :, None, None] + noise * rng.normal(size=(n, 3, _SIZE, _SIZE))
    return image.clip(0, 1).astype(np.float32)


def _write_sentences(colour: np.ndarray, shape: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    n = len(colour)
    colours = np.where(rng.random(n) < _COLOUR_NAMED, np.array(list(_COLOURS))[colour], rng.choice(_VAGUE_COLOURS, n))
    shapes = np.where(rng.random(n) < _SHAPE_NAMED, np.array(_SHAPES)[shape], rng.choice(_VAGUE_SHAPES, n))
    words = zip(rng.choice(_OPENINGS, n), colours, shapes, rng.choice(_PLACES, n))
    return np.array([" ".join(parts) for parts in words])
