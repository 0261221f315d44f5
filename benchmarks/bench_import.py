"""What `import consilience` adds to `import torch`: medians of alternating fresh processes."""

from __future__ import annotations

import statistics
import subprocess
import sys

CLOCK = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"


def seconds(statement: str) -> float:
    done = subprocess.run([sys.executable, "-c", CLOCK.format(statement)], capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    alone, both = [], []
    for _ in range(9):
        alone.append(seconds("import torch"))
        both.append(seconds("import torch, consilience"))
    added = statistics.median(both) - statistics.median(alone)
    print(f"import torch {statistics.median(alone):.3f} s, with consilience {added:+.3f} s (target ≤ +0.15)")
    print(f"ratio {statistics.median(both) / statistics.median(alone):.3f}")
