"""Robustness: how far accuracy falls as modalities get worse, and which of two methods loses less."""

import consilience as cs

data = cs.load_data("digits")
corruption, levels = "gaussian", [0, 1, 2, 4, 8]

curves = {}
for method in ("concat", "late-probs"):
    model = cs.FusionClassifier(method, epochs=20, validation=data.validation).fit(data.train)
    # The level counts standard deviations of the training data; every modality of a sample is hit with probability ½.
    curves[method] = cs.robustness_curve(model, data.test, corruption=corruption, levels=levels, repeats=3)
    print(method, curves[method].table())

gain = cs.robust_auc(curves["late-probs"], curves["concat"])
effective = cs.robust_auc(curves["late-probs"], curves["concat"], "effective")
print(f"late-probs against concat: area {gain:+.3f}, without the gap on clean samples {effective:+.3f}")
