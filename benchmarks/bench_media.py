"""How fast pictures of a table are read: decoded, decoded into the cache, and from the cache.

python benchmarks/bench_media.py [FILES] [PIXELS OF A SIDE]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

import consilience as cs


def write(folder: Path, files: int, side: int) -> Path:
    """Smooth pictures with some noise, as photographs are, and the table that names them."""
    rng = np.random.default_rng(0)
    down, right = np.mgrid[:side, :side] / side
    for row in range(files):
        phases = rng.uniform(0, 2 * np.pi, size=3)
        smooth = 127 + 90 * np.sin(3 * down + 4 * right + phases[:, None, None])
        pixels = np.clip(smooth + rng.normal(scale=8, size=(3, side, side)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / f"{row}.png")
    table = folder / "table.csv"
    pl.DataFrame({"file": [f"{row}.png" for row in range(files)], "y": [row % 2 for row in range(files)]}).write_csv(
        table
    )
    return table


def seconds(table: Path) -> float:
    """The time of one reading."""
    began = time.perf_counter()
    cs.load_data(table, target="y", modalities={"photo": "file"}).samples.read("photo")
    return time.perf_counter() - began


if __name__ == "__main__":
    files, side = (int(word) for word in (*sys.argv[1:], *("2000", "128")[len(sys.argv) - 1 :]))
    os.environ.pop("CONSILIENCE_CACHE", None)
    with tempfile.TemporaryDirectory() as folder:
        table = write(Path(folder), files, side)
        warm_up = write(Path(tempfile.mkdtemp(dir=folder)), 20, side)
        seconds(warm_up)
        time.sleep(3)  # only files that have not changed for two seconds are known by what the system says of them
        plain = statistics.median(seconds(table) for _ in range(3))
        os.environ["CONSILIENCE_CACHE"] = str(Path(folder) / "cache")
        first = seconds(table)
        again = statistics.median(seconds(table) for _ in range(5))
    print(f"{files} pictures of {side}×{side} pixels as images of 64×64")
    print(f"without a cache {plain:.2f} s; into the cache {first:.2f} s; from the cache {again:.3f} s")
    print(f"second time {first / again:.1f} times as fast as the first (target ≥ 5), {plain / again:.1f} without cache")
