"""The contract of export over every method, with onnxruntime as the judge; see exported.py."""

import pytest

from contracts.contract import built_in, cases
from contracts.exported import FAST, exports

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'consilience[onnx]'")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install 'consilience[onnx]'")


@pytest.mark.parametrize(
    ("name", "kind", "data"),
    [
        pytest.param(*case, marks=() if case[0] in FAST and case[1] == "classification" else pytest.mark.slow)
        for case in cases()
    ],
)
def test_onnxruntime_gives_our_numbers(name, kind, data):
    exports(name, kind, built_in(data))
