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
model = cs.FusionClassifier("bayes-robust", epochs=15, random_state=0).fit(digits.train[:500])
place = model.modalities_.index("bottom_left")
rng = np.random.default_rng(0)

# %%
# The reference are held-out samples of the time when all was well. The stream starts like them.

order = rng.permutation(len(digits.test))[:300]
stream = digits.test[order]
drifted = cs.corrupt(stream, "gaussian", 2, modalities=["bottom_left"], probability=1, reference=digits.train)
monitor = cs.Monitor(model, digits.validation, false_alarms=0.01)
first_alarm, rho = None, []
for start in range(0, 300, 20):
    rows = (stream if start < 160 else drifted)[start : start + 20]
    state = monitor.update(rows)
    rho.append(float(np.mean(model.explain(rows).reliability[:, place])))
    if first_alarm is None and state.alarms:
        first_alarm = start + 20
        print(state.alarms[0])

figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
axes.plot(range(10, 310, 20), rho, "o-", color="#7d8ea3", label="mean ρ of bottom_left in twenty rows")
axes.axvline(160, color="black", linestyle="--", linewidth=1, label="the sensor drifts")
if first_alarm is not None:
    axes.axvline(first_alarm, color="#b5482a", label="first alarm")
axes.set(xlabel="row of the stream", ylim=(0, 1.02))
axes.legend(loc="lower left")
plt.show()
