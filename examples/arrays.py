"""Arrays and labels: train a fusion method on a mapping of arrays, and predict with a modality missing."""

import consilience as cs

data = cs.load_data("digits")  # four quadrants of a picture; any mapping of arrays with the samples first will do
X_train, y_train = dict(data.train), data.train.y
X_test, y_test = dict(data.test), data.test.y

model = cs.FusionClassifier("late", epochs=20).fit(X_train, y_train)
accuracy = model.score(X_test, y_test)
print(f"all four quadrants: {accuracy:.3f}")

upper = {name: values for name, values in X_test.items() if name.startswith("top")}
accuracy_upper = model.score(upper, y_test)
print(f"the lower half missing: {accuracy_upper:.3f}")

trust = dict(zip(model.modalities_, model.trust(upper)[0].tolist()))
print(f"trust in the first sample's quadrants: {trust}")
