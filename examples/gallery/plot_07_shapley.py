"""
What each modality contributes
==============================

``explain`` predicts a sample with every subset of its modalities. A modality's Shapley value is what it adds, in the
mean over all orders. The values sum to what the model says with everything minus what it says with nothing.
"""

import matplotlib.pyplot as plt

import consilience as cs

digits = cs.load_data("digits")
model = cs.FusionClassifier("bayes-robust", epochs=15, random_state=0).fit(digits.train[:500])

# %%
# One quadrant of some pictures is noisy. Of a sample where that changed something, what did each quadrant say?

noisy = cs.corrupt(digits.test[:40], "gaussian", 5, modalities=["bottom_right"], probability=0.5)
why = model.explain(noisy)
place = model.modalities_.index("bottom_right")
row = int(why.contributions.values[:, place].argmin())
print(why.text(row))

# %%
# Left: that sample. Right: the mean over clean test samples, as a contribution to the accuracy.

mean = model.explain(digits.test, value="accuracy").mean()
figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), sharey=True, layout="constrained")
colours = ["#b5482a" if value < 0 else "#4f7d5c" for value in why.contributions.values[row]]
axes[0].barh(model.modalities_, why.contributions.values[row], color=colours)
axes[0].axvline(0, color="black", linewidth=0.8)
axes[0].set(title="one sample", xlabel="contribution to the probability")
axes[1].barh(mean.modalities, mean.values, color="#7d8ea3")
axes[1].set(title="all test samples", xlabel="contribution to the accuracy")
plt.show()
