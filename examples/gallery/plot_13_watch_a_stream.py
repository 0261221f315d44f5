"""
Watching a stream
=================

``cs.Monitor`` watches rows for changes against a reference, with a stated rate of false alarms. Here a sensor drifts
from the middle of the stream on.
"""

import matplotlib.pyplot as plt
import numpy as np

import consilience as cs

digits = cs.load_data("digits")
model = cs.FusionClassifier("bayes-robust", epochs=5, random_state=0).fit(digits.train[:400])
place = model.modalities_.index("bottom_left")
rng = np.random.default_rng(0)

# %%
# The reference is made of held-out samples of the time when all was well. The stream starts like them. Every alarm is
# printed, the first one first.

order = rng.permutation(len(digits.test))[:300]
stream = digits.test[order]
drifted = cs.corrupt(stream, "gaussian", 2, modalities=["bottom_left"], probability=1, reference=digits.train)
monitor = cs.Monitor(model, digits.validation, false_alarms=0.01)
alarms, rho = [], []
for start in range(0, 300, 20):
    rows = (stream if start < 160 else drifted)[start : start + 20]
    alarms += monitor.update(rows).alarms
    rho.append(float(np.mean(model.explain(rows).reliability[:, place])))
print(*(alarm.describe() for alarm in alarms), sep="\n")

# %%
# The sensor that drifts is named first, a few rows after the drift begins. Later alarms name sensors that are sound: ρ
# and trust of each modality depend on what the others say. If the change is weaker, or ρ of the model less sharp, as
# after longer training on so few rows, a sound neighbour may even be blamed first: look at several alarms before you
# change a sensor. The red line is the row of the first one.

figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
axes.plot(range(10, 310, 20), rho, "o-", color="#7d8ea3", label="mean ρ of bottom_left in twenty rows")
axes.axvline(160, color="black", linestyle="--", linewidth=1, label="the sensor drifts")
axes.axvline(alarms[0].row, color="#b5482a", label=f"first alarm: {alarms[0].quantity}")
axes.set(xlabel="row of the stream", ylim=(0, 1.02))
axes.legend(loc="lower left")
plt.show()
