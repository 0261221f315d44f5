"""What is said of a table when a comparison is planned is not said again in every process."""

import warnings
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from consilience.comparison import job
from consilience.comparison.sources import Source
from consilience.core.errors import TableWarning


def test_a_job_does_not_repeat_it(tmp_path, monkeypatch):
    frame = pl.DataFrame({"a": np.arange(20.0), "b": [None, *range(19)], "y": [0, 1] * 10})
    frame.write_csv(tmp_path / "t.csv")
    source = Source(str(tmp_path / "t.csv"), {"target": "y", "modalities": {"m": ["a", "b"]}})
    with pytest.warns(TableWarning, match="1 of modality 'm'"):
        expected = source.load()
    monkeypatch.setattr(job, "_LOADED", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = job.load(SimpleNamespace(sources=[source]), SimpleNamespace(data="digest", source=source.label))
    np.testing.assert_array_equal(data.samples["m"], expected.samples["m"])
