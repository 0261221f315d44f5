"""
Fusing two classifiers
======================

Two classifiers are trained already, one for the left half of a digit and one for the right half. ``cs.fuse`` combines
their outputs by Bayes' theorem; nothing is trained. ``cs.BayesFusion`` also learns a temperature for each classifier
and their dependence, from opinions on samples that they were not trained on.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_predict

import consilience as cs

digits = cs.load_data("digits")
halves = {"left": ["top_left", "bottom_left"], "right": ["top_right", "bottom_right"]}


def pixels(samples, half):
    return np.hstack([samples[name] for name in halves[half]])


train, test = digits.train, digits.test
expert = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
experts = {half: expert.__class__(**expert.get_params()).fit(pixels(train, half), train.y) for half in halves}
opinions = {half: model.predict_log_proba(pixels(test, half)) for half, model in experts.items()}

# %%
# The theorem needs the class shares that the classifiers were trained with.

prior = np.bincount(train.y) / len(train)
fused = cs.fuse(opinions, prior)

# %%
# Out-of-fold opinions on the training samples show how sure the classifiers are when they are wrong.

held_out = {
    half: cross_val_predict(expert, pixels(train, half), train.y, cv=5, method="predict_log_proba") for half in halves
}
learned = cs.BayesFusion().fit(held_out, train.y)


def log_loss(log_posterior):
    return -log_posterior[np.arange(len(test)), test.y].mean()


outputs = {
    "left alone": opinions["left"],
    "right alone": opinions["right"],
    "fuse": fused,
    "BayesFusion": learned.predict_log_proba(opinions),
}

# %%
# The fusion is right more often than either half, and its probabilities are better.

figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
axes[0].barh(list(outputs), [100 * (one.argmax(axis=1) == test.y).mean() for one in outputs.values()], color="#b5482a")
axes[1].barh(list(outputs), [log_loss(one) for one in outputs.values()], color="#7d8ea3")
axes[0].set(xlabel="accuracy, %", xlim=(60, 100))
axes[1].set(xlabel="log-loss, nats")
axes[0].invert_yaxis()
plt.show()
