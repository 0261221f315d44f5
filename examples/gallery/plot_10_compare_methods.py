"""
Comparing methods
=================

``cs.compare`` trains every method with several seeds, measures it on clean and on corrupted test samples, and tests
the differences. This is a small comparison; for your own data use more seeds, or ``consilience compare``.
"""

import tempfile

import matplotlib.pyplot as plt

import consilience as cs

digits = cs.load_data("digits")
methods = ["late", "concat", "qmf"]
levels = (0, 2, 5, 10)
with tempfile.TemporaryDirectory() as folder:
    comparison = cs.compare(
        digits,
        methods,
        corruption="gaussian",
        levels=levels,
        seeds=3,
        training={"epochs": 10},
        out=f"{folder}/run",
        verbose=0,
    )
    print(comparison.table())
    differences = comparison.statistics()

# %%
# The differences to ``late``, with intervals over seeds and test samples. Where an interval does not cross 0, the
# difference is significant before correction; ``significant`` is after Holm's correction for all comparisons.

figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
for place, method in enumerate(["concat", "qmf"]):
    rows = differences.filter(method=method).sort("level")
    middle, low, high = (100 * rows[name].to_numpy() for name in ("difference", "low", "high"))
    at = rows["level"].to_numpy() + 0.15 * place
    axes.errorbar(at, middle, yerr=[middle - low, high - middle], fmt="o", capsize=3, label=method)
axes.axhline(0, color="black", linewidth=0.8)
axes.set(xlabel="noise, standard deviations", ylabel="accuracy minus that of late, points")
axes.legend()
plt.show()
