"""A CSV of one's own, with sensors that fail: load it, train, predict with what is there, save."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

import consilience as cs

rng = np.random.default_rng(0)
fault = rng.choice(["none", "bearing", "leak"], size=900)
vibration = rng.normal(size=(900, 3)) + 2.0 * (fault == "bearing")[:, None]
temperature = rng.normal(size=(900, 2)) + 2.0 * (fault == "leak")[:, None]
vibration[rng.random(900) < 0.2] = np.nan  # this sensor has failed: all its cells are empty

with TemporaryDirectory() as folder:
    path = Path(folder) / "machines.csv"
    columns = {f"vibration_{n}": column for n, column in enumerate(vibration.T)}
    columns |= {f"temperature_{n}": column for n, column in enumerate(temperature.T)}
    pl.DataFrame({**columns, "fault": fault}).fill_nan(None).write_csv(path)

    sensors = {"vibration": "vibration_*", "temperature": "temperature_*"}
    data = cs.load_data(path, target="fault", modalities=sensors)
    print(data)

    model = cs.FusionClassifier("late", epochs=30, validation=data.validation).fit(data.train)
    accuracy = model.score(data.test)
    print(f"accuracy: {accuracy:.3f}")
    print(f"a reading without vibration: {model.predict({'temperature': [[2.3, 1.8]]})[0]}")

    again = cs.load(model.save(Path(folder) / "model"))
    same = np.array_equal(again.predict(data.test), model.predict(data.test))
    print(f"the saved model says the same: {same}")
