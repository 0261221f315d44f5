"""
A method of your own
====================

A method is one class. This one multiplies the experts' probabilities with weights that it learns, one for each
modality. Registered under a name, it can be trained, saved, compared and explained like every other method.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import consilience as cs
from consilience.methods import ExpertMethod, register

# %%
# ``combine`` gets the logits of all experts `[batch, modality, class]` and the batch, whose ``present`` says which
# modalities are there. It returns the output and the weights.


@register("learned-product")
class LearnedProduct(ExpertMethod):
    """The sum of the present experts' logits, each with a learned weight that is the same for all samples."""

    def __init__(self, spec):
        super().__init__(spec)
        self.importance = nn.Parameter(torch.zeros(len(spec.modalities)))

    def combine(self, opinions, batch):
        weights = nn.functional.softplus(self.importance) * batch.present
        return (weights.unsqueeze(-1) * opinions).sum(dim=1), weights


# %%
# Make one quadrant nearly useless in training, and see whether the weights notice.

digits = cs.load_data("digits")
noisy = {
    part: cs.corrupt(samples, "gaussian", 3, modalities=["top_left"], probability=1, reference=digits.train)
    for part, samples in (("train", digits.train), ("test", digits.test))
}
model = cs.FusionClassifier("learned-product", epochs=30, random_state=0).fit(noisy["train"])
late = cs.FusionClassifier("late", epochs=30, random_state=0).fit(noisy["train"])
scores = {name: 100 * one.score(noisy["test"]) for name, one in (("learned-product", model), ("late", late))}
trust = {name: one.trust(noisy["test"]).mean(axis=0) for name, one in (("learned-product", model), ("late", late))}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
axes[0].bar(list(scores), list(scores.values()), color=["#b5482a", "#7d8ea3"])
axes[0].set(ylabel="accuracy, %", ylim=(min(scores.values()) - 5, 100))
for place, (name, values) in enumerate(trust.items()):
    at = [row + 0.4 * place for row in range(4)]
    axes[1].barh(at, values, height=0.38, label=name, color=["#b5482a", "#7d8ea3"][place])
axes[1].set(yticks=[row + 0.2 for row in range(4)], yticklabels=model.modalities_, xlabel="mean trust")
axes[1].legend()
plt.show()
