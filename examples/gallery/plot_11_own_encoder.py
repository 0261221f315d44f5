"""
An encoder of your own
======================

Any ``nn.Module`` can read a modality. Here a small convolution reads spectra, whose information is in the position of a
peak, and the default encoder reads a second sensor. A copy of the module is trained inside of the method.
"""

import matplotlib.pyplot as plt
import numpy as np
from torch import nn

import consilience as cs

rng = np.random.default_rng(0)
n, width = 900, 64
y = rng.integers(4, size=n)
centre = 8 + 14 * y + rng.integers(-5, 6, size=n)
spectrum = np.exp(-0.5 * ((np.arange(width) - centre[:, None]) / 2) ** 2) + 0.5 * rng.normal(size=(n, width))
weight = y[:, None] // 2 + 0.8 * rng.normal(size=(n, 2))
samples = cs.Samples.of({"spectrum": spectrum, "weight": weight}, y)
train, test = samples[:600], samples[600:]

# %%
# A module receives the standardised tensor `[batch, feature]` and returns features `[batch, width]`.


class Peaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 8, 9, padding=4), nn.ReLU(), nn.AvgPool1d(4), nn.Flatten(), nn.Linear(8 * 16, 16)
        )

    def forward(self, x):
        return self.layers(x.unsqueeze(1))


scores = {}
for name, encoders in {"mlp": None, "Peaks": {"spectrum": Peaks()}}.items():
    for method in ("late", "bayes-robust"):
        model = cs.FusionClassifier(method, encoders=encoders, epochs=15, random_state=0).fit(train)
        scores[f"{method}, {name}"] = 100 * model.score(test)

figure, axes = plt.subplots(1, 2, figsize=(10, 3.3), layout="constrained")
for label in range(4):
    axes[0].plot(spectrum[y == label][0] + 2 * label, label=f"class {label}")
axes[0].set(xlabel="channel", yticks=[], title="one spectrum of each class")
axes[1].barh(list(scores), list(scores.values()), color=["#7d8ea3", "#7d8ea3", "#b5482a", "#b5482a"])
axes[1].set(xlabel="accuracy, %", xlim=(0, 100))
plt.show()
