"""How much memory training on shards takes, and how fast it is beside training in memory.

1. `memory`: shards of so many gigabytes are written, and one epoch is trained on them in a process of its own, whose
   memory is sampled: what is in no file (anonymous), and the peak of all, which counts mapped files too. The same
   process with a set of one shard shows what the libraries take.
2. `speed`: on a set that fits in memory, the seconds of an epoch in memory and from shards, in turn; the files are in
   the system's cache then, so that it is reading and decoding that is timed, not the disk.

python benchmarks/bench_stream.py [--gigabytes 5] [--format parquet] [--buffer-mib 256]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

IMAGE, SOUND = 192, 64  # features of the two modalities
ROW_BYTES = 4 * (IMAGE + SOUND)
SHARD_ROWS = 2**15


def write_shards(folder: Path, size: int, form: str) -> int:
    """Write shards of about so many bytes of 32-bit numbers that say something of two classes; return the rows."""
    folder.mkdir(parents=True)
    shards = max(1, round(size / (SHARD_ROWS * ROW_BYTES)))
    for number in range(shards):
        drawn = np.random.default_rng(number)
        y = drawn.integers(0, 2, SHARD_ROWS)
        image = drawn.standard_normal((SHARD_ROWS, IMAGE), dtype=np.float32)
        sound = drawn.standard_normal((SHARD_ROWS, SOUND), dtype=np.float32)
        image[:, :8] += 0.5 * y[:, None]
        sound[:, :8] -= 0.5 * y[:, None]
        sound[drawn.random(SHARD_ROWS) < 0.1] = np.nan  # missing
        # Parts in shards of their own, as a large set would be written: validation reads one shard in ten.
        part = "test" if number == shards - 1 > 0 else "validation" if number == shards - 2 > 0 else "train"
        if form == "npy":
            for name, array in (("y", y), ("image", image), ("sound", sound)):
                np.save(folder / f"{name}-{number}.npy", array)
            np.save(folder / f"split-{number}.npy", np.full(SHARD_ROWS, part, dtype="<U10"))
            continue
        columns: dict[str, Any] = {f"image{column}": image[:, column] for column in range(IMAGE)}
        columns |= {f"sound{column}": sound[:, column] for column in range(SOUND)}
        table = pl.DataFrame(columns | {"y": y}).with_columns(split=pl.lit(part)).fill_nan(None)
        if form == "parquet":
            table.write_parquet(folder / f"part-{number}.parquet")
        else:
            table.write_ipc(folder / f"part-{number}.arrow")
    return shards * SHARD_ROWS


def load(folder: Path, form: str, buffer: int) -> Any:
    """The shards as a data set."""
    import consilience as cs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cells that are filled, and of parts without test rows
        if form == "npy":
            return cs.load_data(folder, buffer=buffer, task="classification", split="split")
        columns = {"image": "image*", "sound": "sound*"}
        return cs.load_data(
            folder, target="y", split="split", modalities=columns, buffer=buffer, task="classification", fill="zero"
        )


def train_once(folder: Path, form: str, buffer: int) -> dict[str, float]:
    """Load the shards and train one epoch in this process; return seconds and the peak of its memory."""
    import torch

    from consilience.training import Model, Trainer

    torch.set_num_threads(1)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    try:
        data = load(folder, form, buffer)
        loaded = time.perf_counter()
        trainer = Trainer(epochs=1, batch_size=512, device="cpu")
        model = Model.fit("concat", data.train, data.validation, trainer=trainer)
    finally:
        done.set()
        watcher.join()
    row = model.logs[0].rows[-1]
    return {
        "rows": len(data),
        "anonymous": peak[0],
        "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "seconds_to_load": loaded - began,
        "seconds_of_epoch": row["seconds"],
        "seconds": time.perf_counter() - began,
        "accuracy": row["validation_accuracy"],
    }


def _anonymous() -> int:
    """Bytes of this process that are in no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError("this system does not say how much of the memory is in no file")


def in_process(folder: Path, form: str, buffer: int) -> dict[str, float]:
    """What `train_once` returns, in a process of its own."""
    command = [sys.executable, __file__, "--child", str(folder), "--format", form, "--buffer-rows", str(buffer)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measure_memory(folder: Path, gigabytes: float, form: str, buffer_mib: int) -> dict[str, Any]:
    """Train on shards of so many gigabytes, and on three shards, each in a process of its own."""
    buffer = max(1, buffer_mib * 2**20 // ROW_BYTES)
    rows = write_shards(folder / "large", round(gigabytes * 2**30), form)
    write_shards(folder / "small", 3 * SHARD_ROWS * ROW_BYTES, form)
    small = in_process(folder / "small", form, 1000)
    large = in_process(folder / "large", form, buffer)
    values = rows * ROW_BYTES
    return {
        "format": form,
        "gigabytes": values / 2**30,
        "buffer_mib": buffer_mib,
        "small": small,
        "large": large,
        "above_small_mib": (large["anonymous"] - small["anonymous"]) / 2**20,
        "share_of_data": (large["anonymous"] - small["anonymous"]) / values,
    }


def measure_speed(folder: Path, form: str, rounds: int = 3) -> list[tuple[float, float]]:
    """Seconds of a second epoch in memory and from shards whose buffer holds a quarter, for each round."""
    import torch

    from consilience.core.samples import Samples
    from consilience.training import Model, Trainer

    torch.set_num_threads(1)
    write_shards(folder / "speed", 12 * SHARD_ROWS * ROW_BYTES, form)
    shards = load(folder / "speed", form, 3 * SHARD_ROWS)
    train = shards.train
    resident = Samples.of({name: np.asarray(train[name][:]) for name in train}, train.y, present=train.present)
    trainer = Trainer(epochs=2, batch_size=512, device="cpu")
    return [
        tuple(Model.fit("concat", each, trainer=trainer).logs[0].rows[1]["seconds"] for each in (resident, train))  # type: ignore[misc]
        for _ in range(rounds)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--format", choices=["parquet", "arrow", "npy"], default="parquet")
    parser.add_argument("--buffer-mib", type=int, default=256)
    parser.add_argument("--buffer-rows", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where shards are written; a temporary folder by default")
    parser.add_argument("--out", type=Path, help="a JSON file of the results")
    chosen = parser.parse_args()
    if chosen.child is not None:
        print(json.dumps(train_once(chosen.child, chosen.format, chosen.buffer_rows)))
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        found = measure_memory(Path(folder), chosen.gigabytes, chosen.format, chosen.buffer_mib)
        large, small = found["large"], found["small"]
        print(f"{found['gigabytes']:.2f} GiB in {chosen.format} shards, a buffer of {chosen.buffer_mib} MiB, 1 thread")
        print(
            f"memory in no file: {large['anonymous'] / 2**20:.0f} MiB at most, {small['anonymous'] / 2**20:.0f} MiB "
            f"with three shards: {found['above_small_mib']:.0f} MiB more, {100 * found['share_of_data']:.1f} % of the "
            f"data; peak with mapped files {large['peak'] / 2**20:.0f} MiB"
        )
        print(
            f"reading once {large['seconds_to_load']:.1f} s, an epoch {large['seconds_of_epoch']:.1f} s "
            f"({large['rows'] / large['seconds_of_epoch']:.0f} rows a second), accuracy {large['accuracy']:.3f}"
        )
        speed = measure_speed(Path(folder), chosen.format)
    found["speed"] = speed
    ratios = [shards / resident for resident, shards in speed]
    print(
        f"an epoch from shards takes {statistics.median(ratios):.2f} times as long as in memory "
        f"({min(ratios):.2f} … {max(ratios):.2f} in {len(ratios)} rounds)"
    )
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
