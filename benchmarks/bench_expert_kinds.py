"""Which expert suits a table? Each kind alone on every modality: log-loss and accuracy on held-out training rows.

The encoder `auto` pools a network, a logistic regression and decision trees. This compares it with its members and with
`mlp`, the default before it, on half of the training rows of each set; the other half is what they are judged on. Test
rows have no part in it.

    python benchmarks/bench_expert_kinds.py --sets digits wine breast-cancer --seeds 3 --keep docs/defaults.json
"""

import argparse
import json
from pathlib import Path

import default_sets
import numpy as np
from joblib import Parallel, delayed

KINDS = {
    "mlp": "mlp",
    "network of auto": {"name": "mlp", "hidden": [256], "dropout": 0.3},
    "linear": "linear",
    "trees": "trees",
    "auto": "auto",
}


def measure(name, size, seed, modality):
    """Accuracy in per cent, log-loss and processor seconds of every kind, on half of the training rows."""
    import time

    import torch
    from sklearn.metrics import log_loss

    from consilience import FusionClassifier

    torch.set_num_threads(1)
    rows = default_sets.draw(name, "all", seed).train.only([modality])
    order = np.random.default_rng(seed).permutation(len(rows))
    learned, judged = rows.select(np.sort(order[: len(rows) // 2])), rows.select(np.sort(order[len(rows) // 2 :]))
    learned = learned if size == "all" else learned[:: max(1, len(learned) // int(size))][: int(size)]
    found = {}
    for kind, choice in KINDS.items():
        started = time.process_time()
        model = FusionClassifier(f"unimodal:{modality}", encoders={modality: choice}, device="cpu", random_state=seed)
        model.fit(learned)
        known = np.isin(judged.y, model.classes_)
        p = model.predict_proba(judged[known])
        right = model.classes_[p.argmax(axis=1)] == judged.y[known]
        loss = log_loss(judged.y[known], p, labels=model.classes_)
        found[kind] = [100 * float(right.mean()), float(loss), time.process_time() - started]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["wine", "breast-cancer"])
    parser.add_argument("--sizes", nargs="+", default=["all", "100"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    runs = [
        (name, size, seed, modality)
        for name in asked.sets
        for size in asked.sizes
        for seed in range(asked.seeds)
        for modality in default_sets.draw(name, "all", seed).train.names
    ]
    found = Parallel(n_jobs=asked.jobs)(delayed(measure)(*run) for run in runs)
    figures = {}
    for (name, size, seed, _), kinds in zip(runs, found):
        for kind, values in kinds.items():
            figures.setdefault(size, {}).setdefault(name, {}).setdefault(kind, {}).setdefault(str(seed), []).append(
                values
            )
    means = {
        size: {
            name: {
                kind: [np.mean(own, axis=0).round(4).tolist() for own in seeds.values()]
                for kind, seeds in kinds.items()
            }
            for name, kinds in sets.items()
        }
        for size, sets in figures.items()
    }
    for size, sets in means.items():
        print(f"\n{size} rows of half the training part: accuracy / log-loss / seconds, mean over modalities and seeds")
        for name, kinds in sets.items():
            shown = {kind: np.mean(values, axis=0) for kind, values in kinds.items()}
            print(f"{name:16}", *(f"{kind} {a:.1f} / {loss:.3f} / {s:.1f};" for kind, (a, loss, s) in shown.items()))
    if asked.keep is not None:
        asked.keep.write_text(json.dumps({"seeds": asked.seeds, "figures": means}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
