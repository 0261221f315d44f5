"""
Is a probability of 0.9 right nine times in ten?
================================================

A reliability diagram compares probabilities with how often they are right, on clean and on noisy test samples.
"""

import matplotlib.pyplot as plt
import numpy as np

import consilience as cs
from consilience.evaluation import ece

digits = cs.load_data("digits")
noisy = cs.corrupt(digits.test, "gaussian", 3, reference=digits.train)
models = {
    name: cs.FusionClassifier(name, epochs=15, random_state=0).fit(digits.train[:500])
    for name in ("concat", "late", "bayes-robust")
}

# %%
# A point above the diagonal is right more often than its probability says, one below it less often. ``late``, the mean
# of its experts' logits, is far too modest, even on clean samples. ``concat`` and ``bayes-robust`` are off by little
# there; where half the quadrants are noisy, ``concat`` is too sure of itself and ``bayes-robust`` too modest.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
edges = np.linspace(0.1, 1, 8)
for axis, (title, samples) in zip(axes, {"clean": digits.test, "half the quadrants noisy": noisy}.items()):
    axis.plot([0, 1], [0, 1], "k--", linewidth=0.8)
    for name, model in models.items():
        probabilities = model.predict_proba(samples)
        sure, right = probabilities.max(axis=1), model.classes_[probabilities.argmax(axis=1)] == samples.y
        bins = np.digitize(sure, edges)
        filled = [number for number in range(len(edges) + 1) if (bins == number).sum() >= 10]
        error = 100 * ece(samples.y, probabilities, classes=model.classes_)
        points = [(sure[bins == number].mean(), right[bins == number].mean()) for number in filled]
        axis.plot(*zip(*points), "o-", label=f"{name}, error {error:.1f} points")
    axis.set(title=title, xlabel="probability of the decision")
    axis.legend(loc="lower right")
axes[0].set_ylabel("share that is right")
plt.show()
