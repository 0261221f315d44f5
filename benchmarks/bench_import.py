"""What starting costs: `import consilience` beside `import torch`, and `consilience predict MODEL small.csv`.

Imports are timed in alternating fresh processes, by the clock. Predictions are timed by the processor time of the
process, user and system together, so that waiting for the disk does not count.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CLOCK = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
TRAIN = """
import sys
import numpy as np
import polars as pl
from consilience import FusionClassifier, load_data

folder = sys.argv[1]
rng = np.random.default_rng(0)
y = rng.integers(3, size=300)
columns = {f"{name}_{place}": rng.normal(size=300) + y for name in ("vibration", "heat") for place in range(8)}
table = pl.DataFrame({**columns, "fault": y})
table.drop("fault").head(20).write_csv(f"{folder}/small.csv")
data = load_data(table, target="fault", modalities={"vibration": "vibration_*", "heat": "heat_*"})
for method in ("concat", "late", "bayes-robust"):
    model = FusionClassifier(method, encoders=dict.fromkeys(data.samples.names, "mlp"), epochs=2).fit(data.train)
    model.model_.recipe = data.recipe()
    model.save(f"{folder}/{method}")
"""


def seconds(statement: str) -> float:
    done = subprocess.run([sys.executable, "-c", CLOCK.format(statement)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def processor_seconds(words: list[str]) -> float:
    """Of one process, on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    alone, both = [], []
    for _ in range(9):
        alone.append(seconds("import torch"))
        both.append(seconds("import torch, consilience"))
    added = statistics.median(both) - statistics.median(alone)
    print(f"import torch {statistics.median(alone):.3f} s, with consilience {added:+.3f} s (target ≤ +0.15)")
    print(f"ratio {statistics.median(both) / statistics.median(alone):.3f}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", TRAIN, folder], check=True)
        torch_alone = statistics.median(processor_seconds(["-c", "import torch"]) for _ in range(5))
        print(f"processor time: import torch {torch_alone:.2f} s")
        for method in ("concat", "late", "bayes-robust"):
            words = ["-m", "consilience", "predict", str(Path(folder) / method), str(Path(folder) / "small.csv")]
            whole = statistics.median(processor_seconds(words) for _ in range(5))
            print(f"  predict, {method}: {whole:.2f} s (target ≤ 2.4), {whole / torch_alone:.1f} times import torch")
