"""
A loop around your own model
============================

The class depends on the product of a word in the first modality with a word in the second: no modality alone knows
anything. ``cs.progressive`` feeds what the fusion found back to the encoders of a model that you have.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import consilience as cs


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.sound = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
        self.sight = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
        self.join, self.head = nn.Linear(24, 8), nn.Linear(8, 2)

    def forward(self, sound, sight):
        return self.head(self.join(torch.cat([self.sound(sound), self.sight(sight)], dim=1)))


generator = torch.Generator().manual_seed(0)
sound, sight = (torch.randn(3000, 6, generator=generator) for _ in range(2))
y = ((sound[:, 0] * sight[:, 0] + sound[:, 1] * sight[:, 1]) > 0).long()
train, test = slice(0, 2000), slice(2000, 3000)


def learn(model, epochs=60):
    optimizer, accuracy = torch.optim.Adam(model.parameters(), lr=5e-3), []
    for _ in range(epochs):
        for rows in torch.randperm(2000, generator=generator).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(sound[rows], sight[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy.append(100 * (model(sound[test], sight[test]).argmax(dim=1) == y[test]).float().mean().item())
    return accuracy


# %%
# The fusion of this model is linear: sums of what each branch says. With the loop the second pass of one branch sees
# the other.

curves = {}
for name in ("as it is", "with the loop"):
    torch.manual_seed(0)
    model = TwoBranches()
    if name == "with the loop":
        encoders = {"sound": "sound", "sight": "sight"}
        model = cs.progressive(model, encoders=encoders, fusion="join", example=(sound[:2], sight[:2]))
    curves[name] = learn(model)

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, accuracy in curves.items():
    axes.plot(range(1, len(accuracy) + 1), accuracy, label=name)
axes.set(xlabel="epoch", ylabel="test accuracy, %")
axes.legend()
plt.show()
