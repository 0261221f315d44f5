"""`finance`: daily opening prices of stocks of one sector; tomorrow's volatility of one of them from all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import PositiveInt
from consilience.data.dataset import DataSet
from consilience.data.files.table_reading import read_header, read_table
from consilience.data.named_sets import register, source_files
from consilience.data.splits import given_split

_FILES = source_files("finance", "open_2000-06-01_2021-02-28.csv.gz")
# Shankar, Thompson and Fiterau 2022, appendix C, and the smaller groups of MultiBench. The target of the large groups
# is not stated there; here it is that of the smaller group of the same sector, or all stocks.
GROUPS = {
    "food": (("MCD", "SBUX", "HSY", "HRL"), "MCD"),
    "health": (("MRK", "WST", "CVS", "MCK", "ABT", "UNH", "TFX"), "UNH"),
    "tech": (("AAPL", "MSFT", "AMZN", "INTC", "AMD", "MSI"), "MSFT"),
    "food-large": (
        ("CAG", "CPB", "DRI", "GIS", "HRL", "HSY", "K", "MCD", "MKC", "SBUX", "SJM", "TSN", "YUM"),
        "MCD",
    ),
    "health-large": (("MRK", "WST", "CVS", "MCK", "ABT", "UNH", "TFX", "PFE", "GSK", "NVS", "WBA"), "UNH"),
    "tech-large": (
        (
            *("AAPL", "ADBE", "AMD", "AMZN", "GOOG", "HPQ", "IBM", "INTC", "MSFT", "MSI", "NVDA", "ORCL", "QCOM"),
            "ZBRA",
        ),
        "MSFT",
    ),
}


@register("finance", description="Daily opening prices of a sector; tomorrow's volatility of one stock", files=_FILES)
def finance(
    folder: Path,
    *,
    group: str = "food",
    targets: Literal["one", "all"] = "one",
    window: PositiveInt = 500,
    train: PositiveInt = 3200,
    validation: PositiveInt = 500,
) -> DataSet:
    """A sequence `[window, 1]` of daily log returns for each stock; the target is a squared return of the next day.

    Returns and targets are divided by their standard deviation over the training days. Days on which a stock has no
    price (GOOG before August 2004) are left out for all. The parts are in the order of dates.

    Args:
        folder: Of the file.
        group: The sector, a key of `GROUPS`.
        targets: "one" for one stock, or "all" for every stock `[n, stock]`, with one standard deviation for all.
        window: Days in a sequence.
        train: Days for training, at most 70 %.
        validation: Days for validation, at most a third of the rest.
    """
    if group not in GROUPS:
        raise unknown_name("group", group, GROUPS, "It was given for data set 'finance'")
    tickers, target = GROUPS[group]
    prices = read_prices(folder / _FILES.names[0], tickers)
    returns = np.diff(np.log(prices), axis=0)
    if len(returns) < window + 10:
        raise InputError(f"finance: {len(returns)} days with prices of {group} are too few for a window of {window}")
    count = len(returns) - window  # the target of window t is the return of day t + window
    # A group with a young stock has fewer days; its parts shrink together, so that some days remain for the test.
    learned = min(train, int(0.7 * count))
    validation = min(validation, (count - learned) // 3)
    volatility = returns[window:] ** 2
    y = volatility[:, tickers.index(target)] if targets == "one" else volatility
    y = y / y[:learned].std()
    returns = returns / returns[: window + learned].std(axis=0)
    windows = np.lib.stride_tricks.sliding_window_view(returns, window, axis=0)[:count].astype(np.float32)
    part_of_row = np.repeat(["train", "validation", "test"], [learned, validation, count - learned - validation])
    values = {ticker: windows[:, column, :, None] for column, ticker in enumerate(tickers)}
    return DataSet("finance", Samples.of(values, y), "regression", *given_split(part_of_row, y, "regression"))


def read_prices(path: Path, tickers: tuple[str, ...]) -> np.ndarray:
    """Prices `[day, ticker]` of the days on which every ticker has one, by date."""
    wanted = ("Date", *tickers)
    lacking = [name for name in wanted if name not in read_header(path)]
    if lacking:
        raise InputError(f"{path.name} has no column {', '.join(lacking)}")
    frame = read_table(path, wanted, strings=("Date",))
    prices = frame.sort("Date").select(tickers).cast(float, strict=False).to_numpy()  # type: ignore[arg-type]
    known = np.isfinite(prices).all(axis=1)
    if not (prices[known] > 0).all():
        raise InputError(f"{path.name} holds prices that are not positive")
    return prices[known]
