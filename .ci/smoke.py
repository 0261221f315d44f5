"""What an installation without the repository must be able to do; run in an empty environment, outside of it.

python .ci/smoke.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1]).resolve()
ROWS = 200


def command(*words: str) -> str:
    """What a command line prints; any other exit code than 0 ends the script."""
    done = subprocess.run([sys.executable, "-m", "consilience", *words], cwd=FOLDER, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"consilience {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Import, train in Python, and go from a table to a report and predictions."""
    import numpy as np

    import consilience as cs

    repository = Path(__file__).resolve().parent.parent
    if Path(cs.__file__).resolve().is_relative_to(repository / "src"):
        raise SystemExit(f"{cs.__file__} is of the repository: run this where only the wheel is installed")
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=ROWS)
    left, right = (y[:, None] + rng.normal(size=(ROWS, 3)) for _ in range(2))
    model = cs.FusionClassifier("bayes-robust", epochs=5).fit({"left": left, "right": right}, y)
    model.save(FOLDER / "model")
    trust = cs.load(FOLDER / "model").trust({"left": left})
    assert trust.tolist() == [[1.0, 0.0]] * ROWS
    header = [f"{name}_{n}" for name in ("left", "right") for n in range(3)]
    lines = [",".join([*header, "state"])]
    lines += [",".join([*map(str, a), *map(str, b), f"s{c}"]) for a, b, c in zip(left, right, y)]
    (FOLDER / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = ("--modality", "left=left_*", "--modality", "right=right_*")
    words = ("--methods", "late", "linear", "--seeds", "2", "--epochs", "3", "--levels", "5", "--jobs", "1")
    command("compare", "table.csv", "--target", "state", *columns, *words, "--out", "run")
    command("predict", "run/best", "table.csv", "--out", "predictions.csv")
    assert (FOLDER / "run" / "report.html").stat().st_size > 10_000
    assert len((FOLDER / "predictions.csv").read_text(encoding="utf-8").splitlines()) == ROWS + 1
    command("methods", "qmf")
    command("data", "list")
    print(f"consilience {cs.__version__} from {Path(cs.__file__).parent}: trained, saved, compared and predicted")


if __name__ == "__main__":
    main()
