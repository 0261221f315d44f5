"""
Imputing quadrants
==================

A latent model is trained on pictures without labels, one modality for each quadrant. From the upper half it says what
the lower half may look like.
"""

import matplotlib.pyplot as plt
import numpy as np

import consilience as cs

digits = cs.load_data("digits")
model = cs.MultimodalVAE("m2vae", latent=10, epochs=60, lr=3e-3, random_state=0).fit(digits.train)

# %%
# ``impute`` returns the expected values of what is missing, in pixels. Missing are, column by column: the lower half,
# everything but one quadrant, and the right half.

chosen = [int(np.flatnonzero(digits.test.y == label)[0]) for label in (0, 2, 3, 4, 6)]
test = digits.test[chosen]
given = {"top": ["top_left", "top_right"], "one": ["top_left"], "left": ["top_left", "bottom_left"]}
filled = {name: model.impute(test.only(present)) for name, present in given.items()}


def picture(quadrants, row):
    part = {name: np.asarray(quadrants[name])[row].reshape(4, 4) for name in digits.test.names}
    top = np.hstack([part["top_left"], part["top_right"]])
    return np.vstack([top, np.hstack([part["bottom_left"], part["bottom_right"]])])


figure, axes = plt.subplots(len(chosen), 4, figsize=(6, 7.2), layout="constrained")
for row, line in enumerate(axes):
    for axis, (name, quadrants) in zip(line, {"true": test, **filled}.items()):
        axis.imshow(picture(quadrants, row), cmap="gray_r", vmin=0, vmax=16)
        axis.set(xticks=[], yticks=[])
        if row == 0:
            axis.set_title(name if name == "true" else f"given: {name}")
plt.show()
