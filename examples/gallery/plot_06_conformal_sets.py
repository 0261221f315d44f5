"""
Prediction sets with a modality missing
=======================================

``predict_set`` returns the classes that cannot be ruled out, so that the true class is among them with a stated
probability. Every number of present modalities has its own threshold, so that the promise holds for all of them; a
single modality needs larger sets.
"""

import matplotlib.pyplot as plt
import numpy as np

import consilience as cs
from consilience.evaluation import mean_set_size, set_coverage

digits = cs.load_data("digits")
order = np.random.default_rng(0).permutation(len(digits.test))  # neighbours are by the same writer
known, new = digits.test[order[:180]], digits.test[order[180:]]
model = cs.FusionClassifier("late", epochs=15, random_state=0).fit(digits.train)
model = model.calibrate(known)

# %%
# Hide one modality after the other. With 180 calibration and 179 test samples the measured coverage differs from 90 %
# by chance: the grey band is two standard deviations wide on both sides.

coverages, sizes = [], []
for left in range(4, 0, -1):
    sets = model.predict_set(new.only(new.names[:left]), coverage=0.9)
    coverages.append(100 * set_coverage(new.y, sets, classes=model.classes_))
    sizes.append(mean_set_size(sets))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
present = ["4", "3", "2", "1"]
axes[0].plot(present, coverages, "o-", color="#b5482a")
chance = 200 * np.sqrt(0.9 * 0.1 * (1 / len(known) + 1 / len(new)))
axes[0].axhspan(90 - chance, 90 + chance, color="#dddddd")
axes[0].axhline(90, color="black", linestyle="--", linewidth=1)
axes[0].set(xlabel="modalities present", ylabel="sets with the true class, %", ylim=(70, 101))
axes[1].bar(present, sizes, color="#7d8ea3")
axes[1].set(xlabel="modalities present", ylabel="classes in a set, mean")
plt.show()
