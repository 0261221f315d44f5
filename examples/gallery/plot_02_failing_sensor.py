"""
A failing sensor
================

One of four modalities breaks while the model is in use: more and more noise. A model that gives every modality the same
weight follows it into error. ``bayes-robust`` estimates for each sample how probable it is that a modality is sound.
"""

import matplotlib.pyplot as plt

import consilience as cs

digits = cs.load_data("digits")
models = {
    name: cs.FusionClassifier(name, epochs=15, random_state=0).fit(digits.train[:500])
    for name in ("concat", "late", "bayes-robust")
}

# %%
# The noise grows from none to ten standard deviations, in one quadrant of every test picture.

levels = [0, 0.5, 1, 2, 4, 7, 10]
scores, trust = {name: [] for name in models}, []
for level in levels:
    worse = cs.corrupt(digits.test, "gaussian", level, modalities=["top_left"], probability=1, reference=digits.train)
    for name, model in models.items():
        scores[name].append(100 * model.score(worse))
    trust.append(models["bayes-robust"].trust(worse).mean(axis=0))

# %%
# The trust of ``bayes-robust`` moves to the quadrants that are still sound, and its accuracy falls least.

figure, axes = plt.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
for name, accuracy in scores.items():
    axes[0].plot(levels, accuracy, "o-", label=name)
axes[0].set(xlabel="noise in one quadrant, standard deviations", ylabel="accuracy, %")
axes[0].legend()
axes[1].stackplot(levels, list(zip(*trust)), labels=models["bayes-robust"].modalities_, alpha=0.8)
axes[1].set(xlabel="noise in top_left, standard deviations", ylabel="mean trust of bayes-robust", ylim=(0, 1))
axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
plt.show()
