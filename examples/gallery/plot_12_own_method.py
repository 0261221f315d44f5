"""
A method of your own
====================

A method is one class. This one weights each expert by how certain it is of the sample: the less entropy its
probabilities have, the more its logits count. Registered under a name, it can be trained, saved, compared and explained
like every other method.
"""

import matplotlib.pyplot as plt

import consilience as cs
from consilience.methods import ExpertMethod, register

# %%
# ``combine`` gets the logits of all experts `[batch, modality, class]` and the batch, whose ``present`` says which
# modalities are there. It returns the output and the weights.


@register("by-entropy")
class ByEntropy(ExpertMethod):
    """The sum of the present experts' logits, weighted by exp(−2·entropy) and normalised."""

    def combine(self, opinions, batch):
        log_p = opinions.log_softmax(dim=-1)
        entropy = -(log_p.exp() * log_p).sum(dim=-1)
        weights = (-2 * entropy).exp() * batch.present
        weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1e-12)
        return (weights.unsqueeze(-1) * opinions).sum(dim=1), weights


# %%
# Train it on clean samples, and make one quadrant of the test samples noisy.

digits = cs.load_data("digits")
models = {
    name: cs.FusionClassifier(name, epochs=20, random_state=0).fit(digits.train) for name in ("by-entropy", "late")
}
levels = [0, 1, 2, 4]
scores, trust = {name: [] for name in models}, []
for level in levels:
    noisy = cs.corrupt(digits.test, "gaussian", level, modalities=["top_left"], probability=1, reference=digits.train)
    for name, model in models.items():
        scores[name].append(100 * model.score(noisy))
    trust.append(models["by-entropy"].trust(noisy).mean(axis=0))

# %%
# Trust moves in the right direction. That alone does not make the method better than ``late``, as the left picture
# shows: an expert may be certain and wrong, and what an uncertain one still knows is lost. ``cs.trust_diagnostics``
# measures whether weights fall where their expert is wrong.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for name, accuracy in scores.items():
    axes[0].plot(levels, accuracy, "o-", label=name)
axes[0].set(xlabel="noise in top_left, standard deviations", ylabel="accuracy, %")
axes[0].legend()
axes[1].plot(levels, trust, "o-", label=models["by-entropy"].modalities_)
axes[1].set(xlabel="noise in top_left, standard deviations", ylabel="mean trust", ylim=(0, 0.5))
axes[1].legend()
plt.show()
