"""
Graded trust under rising noise
===============================

An input that looks unusual is not useless at once. Reliability ρ, the probability that a modality is sound, should fall
with the damage, and not jump at the first sign of it. The model is that of :doc:`/theory`.
"""

import matplotlib.pyplot as plt
import numpy as np

import consilience as cs

digits = cs.load_data("digits")
model = cs.FusionClassifier("bayes-robust", epochs=5, random_state=0).fit(digits.train[:400])
place = model.modalities_.index("top_left")

# %%
# ρ of every test sample, with three kinds of damage to one quadrant; a level means something else for each kind. Noise
# of half a standard deviation costs no trust. With more damage ρ falls, in most samples far below one half, but it does
# not reach 0. How low it gets is learned with the model, and one that is trained three times longer on so few rows ends
# clearly higher. So compare levels of ρ within a model, not between models.

test = digits.test[:120]
kinds = {"gaussian": [0, 0.5, 1, 1.5, 2, 3, 5, 10], "stuck": [0, 1, 2, 3, 4, 6, 10], "drop": [0, 1, 2, 3, 4, 6, 9]}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), sharey=True, layout="constrained")
for axis, (kind, levels) in zip(axes, kinds.items()):
    rho = []
    for level in levels:
        damaged = cs.corrupt(test, kind, level, modalities=["top_left"], probability=1, reference=digits.train)
        rho.append(model.explain(damaged).reliability[:, place])
    low, middle, high = np.quantile(np.array(rho), [0.25, 0.5, 0.75], axis=1)
    axis.fill_between(levels, low, high, alpha=0.3, color="#b5482a")
    axis.plot(levels, middle, "o-", color="#b5482a")
    axis.set(title=kind, xlabel="level", ylim=(0, 1.02))
axes[0].set_ylabel("ρ of top_left: median, quartiles")
plt.show()
