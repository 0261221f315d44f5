"""The figures of tables 6 and 7 as they are printed, by sector and method."""

from __future__ import annotations

from typing import NamedTuple

SECTORS = {"food": "F&B", "health": "HEALTH", "tech": "TECH"}
MODELS = {
    "ef-lstm": "EF-LSTM",
    "lf-lstm": "LF-LSTM",
    "gradient-blend": "GB",
    "lf-transformer": "LF-Transformer",
    "mult": "MulT",
    "ef-transformer": "EF-Transformer",
}
# What the areas of table 6 are measured from: "we use a transformer model as the baseline", whose own are 0.
BASELINE = "ef-transformer"


class Row(NamedTuple):
    """One line of table 6 in one sector: mean squared error, its average deviation, ROBUSTAUC."""

    error: float
    deviation: float
    area: float


TABLE6: dict[tuple[str, str], Row] = {
    ("food", "ef-lstm"): Row(0.73, 0.03, 0.35),
    ("food", "pro:ef-lstm"): Row(0.70, 0.04, 0.40),
    ("food", "lf-lstm"): Row(0.77, 0.05, 0.29),
    ("food", "pro:lf-lstm"): Row(0.73, 0.05, 0.33),
    ("food", "gradient-blend"): Row(0.690, 0.04, 0.39),
    ("food", "pro:gradient-blend"): Row(0.688, 0.02, 0.39),
    ("food", "lf-transformer"): Row(0.838, 0.004, 0.09),
    ("food", "pro:lf-transformer"): Row(0.788, 0.004, 0.15),
    ("food", "mult"): Row(0.814, 0.005, 0.13),
    ("food", "pro:mult"): Row(0.765, 0.006, 0.19),
    ("food", "ef-transformer"): Row(0.836, 0.009, 0.0),
    ("food", "pro:ef-transformer"): Row(0.827, 0.009, 0.01),
    ("health", "ef-lstm"): Row(0.308, 0.005, 0.018),
    ("health", "pro:ef-lstm"): Row(0.306, 0.003, 0.029),
    ("health", "lf-lstm"): Row(0.331, 0.009, 0.016),
    ("health", "pro:lf-lstm"): Row(0.315, 0.007, 0.026),
    ("health", "gradient-blend"): Row(0.318, 0.03, 0.022),
    ("health", "pro:gradient-blend"): Row(0.305, 0.003, 0.035),
    ("health", "lf-transformer"): Row(0.337, 0.004, 0.012),
    ("health", "pro:lf-transformer"): Row(0.331, 0.004, 0.015),
    ("health", "mult"): Row(0.333, 0.004, 0.001),
    ("health", "pro:mult"): Row(0.329, 0.005, 0.002),
    ("health", "ef-transformer"): Row(0.335, 0.001, 0.0),
    ("health", "pro:ef-transformer"): Row(0.326, 0.004, 0.02),
    ("tech", "ef-lstm"): Row(0.742, 0.006, 0.027),
    ("tech", "pro:ef-lstm"): Row(0.738, 0.004, 0.028),
    ("tech", "lf-lstm"): Row(0.736, 0.006, 0.028),
    ("tech", "pro:lf-lstm"): Row(0.737, 0.005, 0.028),
    ("tech", "gradient-blend"): Row(0.740, 0.006, 0.029),
    ("tech", "pro:gradient-blend"): Row(0.738, 0.005, 0.029),
    ("tech", "lf-transformer"): Row(0.757, 0.005, 0.027),
    ("tech", "pro:lf-transformer"): Row(0.755, 0.005, 0.028),
    ("tech", "mult"): Row(0.763, 0.005, 0.025),
    ("tech", "pro:mult"): Row(0.757, 0.004, 0.026),
    ("tech", "ef-transformer"): Row(0.755, 0.004, 0.0),
    ("tech", "pro:ef-transformer"): Row(0.750, 0.004, 0.0),
}
TABLE7: dict[tuple[str, str], float] = {
    ("food", "ef-lstm"): 1.836,
    ("food", "pro:ef-lstm"): 1.753,
    ("food", "lf-lstm"): 1.891,
    ("food", "pro:lf-lstm"): 1.786,
    ("food", "lf-transformer"): 2.157,
    ("food", "pro:lf-transformer"): 2.112,
    ("food", "mult"): 2.056,
    ("food", "pro:mult"): 2.032,
    ("health", "ef-lstm"): 0.521,
    ("health", "pro:ef-lstm"): 0.511,
    ("health", "lf-lstm"): 0.545,
    ("health", "pro:lf-lstm"): 0.522,
    ("health", "lf-transformer"): 0.572,
    ("health", "pro:lf-transformer"): 0.566,
    ("health", "mult"): 0.554,
    ("health", "pro:mult"): 0.553,
    ("tech", "ef-lstm"): 0.119,
    ("tech", "pro:ef-lstm"): 0.124,
    ("tech", "lf-lstm"): 0.120,
    ("tech", "pro:lf-lstm"): 0.121,
    ("tech", "lf-transformer"): 0.143,
    ("tech", "pro:lf-transformer"): 0.144,
    ("tech", "mult"): 0.135,
    ("tech", "pro:mult"): 0.132,
}
