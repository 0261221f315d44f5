"""Opinions of models that are trained already: fuse them by Bayes' theorem, learn their dependence, save the fusion."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_predict

import consilience as cs

data = cs.load_data("digits")
train, test = data.train, data.test

# Stand-ins for your own models, one for each quadrant of the picture; anything with logits or probabilities will do.
expert = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
models = {name: clone(expert).fit(train[name], train.y) for name in train.names}
opinions = {name: model.predict_log_proba(test[name]) for name, model in models.items()}
alone = max(model.score(test[name], test.y) for name, model in models.items())
print(f"the best model alone: {alone:.3f}")

prior = np.bincount(train.y) / len(train)  # what the models have already assumed about the classes
theorem = (cs.fuse(opinions, prior).argmax(axis=1) == test.y).mean()
print(f"Bayes' theorem, nothing learned: {theorem:.3f}")

# What repeats itself must not count twice: learned from opinions on samples that the models were not trained on.
held_out = {
    name: cross_val_predict(model, train[name], train.y, cv=5, method="predict_log_proba")
    for name, model in models.items()
}
fusion = cs.BayesFusion().fit(held_out, train.y)
learned = fusion.score(opinions, test.y)
print(f"calibrated, dependence learned: {learned:.3f}")

with TemporaryDirectory() as folder:
    again = cs.load(fusion.save(Path(folder) / "fusion"))
    same = np.array_equal(again.predict_proba(opinions), fusion.predict_proba(opinions))
    print(f"the saved fusion says the same: {same}")
