"""
Label shift: class shares that change
=====================================

The classifiers were trained where all classes are equally frequent. Where they are used, some classes are rare. The
new shares can be estimated from the opinions alone, without labels, by expectation maximisation.
"""

import matplotlib.pyplot as plt
import numpy as np

import consilience as cs

data = cs.load_data("gaussians", n=6000, dependence=0.0, prior=[1 / 3, 1 / 3, 1 / 3])
truth, samples = data.extra["truth"], data.samples
opinions = truth.opinions(samples).transpose(1, 0, 2)

# %%
# Take samples so that the classes have other shares.

shares = np.array([0.75, 0.2, 0.05])
rng = np.random.default_rng(0)
rows = np.concatenate(
    [
        rng.choice(np.flatnonzero(samples.y == label), size=int(1200 * share), replace=False)
        for label, share in enumerate(shares)
    ]
)
shifted = {name: opinion[rows] for name, opinion in zip(samples.names, opinions)}
y = samples.y[rows]

# %%
# Estimate the shares from the fused probabilities, and fuse again with them.

before = cs.fuse(shifted, truth.prior)
estimated = cs.estimate_target_prior(before, truth.prior)
after = cs.fuse(shifted, truth.prior, target_prior=estimated)
accuracy = {"training shares": before, "estimated shares": after}
accuracy = {name: 100 * (one.argmax(axis=1) == y).mean() for name, one in accuracy.items()}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
place = np.arange(3)
for offset, (name, values) in enumerate({"training": truth.prior, "true": shares, "estimated": estimated}.items()):
    axes[0].bar(place + 0.27 * (offset - 1), values, 0.25, label=name)
axes[0].set(xticks=place, xlabel="class", ylabel="share")
axes[0].legend()
axes[1].bar(list(accuracy), list(accuracy.values()), color=["#7d8ea3", "#b5482a"])
axes[1].set(ylabel="accuracy, %", ylim=(min(accuracy.values()) - 5, 100))
plt.show()
