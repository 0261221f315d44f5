"""
Dependent experts: calibrated kappa
===================================

Two sensors that share a disturbance do not give twice the evidence. Bayes' theorem corrects for that by a factor κ.
Here the true posterior is known, so we can see what happens if the experts are treated as independent, and what
``BayesFusion`` learns from their opinions.
"""

import matplotlib.pyplot as plt
import numpy as np

import consilience as cs

dependences = [0.0, 0.3, 0.6, 0.8, 0.9]
losses = {"κ = 1 (independent)": [], "κ learned": [], "true posterior": []}
for dependence in dependences:
    data = cs.load_data("gaussians", n=3000, dependence=dependence, prior=[0.5, 0.3, 0.2])
    truth, samples = data.extra["truth"], data.samples
    opinions = dict(zip(samples.names, truth.opinions(samples).transpose(1, 0, 2)))
    known, new = np.arange(0, 3000, 2), np.arange(1, 3000, 2)

    learned = cs.BayesFusion(prior=truth.prior).fit({k: v[known] for k, v in opinions.items()}, samples.y[known])
    held_out = {name: opinion[new] for name, opinion in opinions.items()}
    posteriors = {
        "κ = 1 (independent)": cs.fuse(held_out, truth.prior),
        "κ learned": learned.predict_log_proba(held_out),
        "true posterior": truth.log_posterior(samples)[new],
    }
    for name, posterior in posteriors.items():
        losses[name].append(-posterior[np.arange(len(new)), samples.y[new]].mean())

# %%
# Without dependence all three agree. The stronger it is, the more the product of independent experts is too sure.

figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
for name, values in losses.items():
    axes.plot(dependences, values, "o-" if "true" not in name else "k--", label=name)
axes.set(xlabel="dependence of the modalities, given the class", ylabel="log-loss, nats")
axes.legend()
plt.show()
