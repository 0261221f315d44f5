"""Raw inputs of an exported model → what its method receives: empty cells, categories and standardisation as tensors.

These modules compute in a graph what `Encoding` and the transforms of `Preparation` compute with NumPy. Nothing here
may depend on values or on the number of rows. Nothing can raise an error: rows that would be refused become NaN.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.modalities import Modality
from consilience.data.files.calendar_features import Calendar
from consilience.data.files.column_encoding import Encoding
from consilience.preparation.transforms import FARTHEST, Standardise

# Codes of a column of categories: its known strings are 0, 1, …
EMPTY, UNKNOWN = -1, -2
PADDING = -1  # of token ids
_DAY = 86_400.0
_YEAR = 365.25


class Columns(nn.Module):
    """The columns of one modality of a table → its features, as `Encoding.encode` makes them.

    Its inputs are numbers `[n, column]`, the codes of categories `[n, column]` and times in seconds since 1970
    `[n, column]`, each left out where the modality has no such column.
    """

    fills: Tensor

    def __init__(self, encoding: Encoding, dtype: torch.dtype):
        super().__init__()
        self.numbers = len(encoding.numbers)
        self.sizes = [len(known) for known in encoding.categories.values()]
        self.hours = [calendar.hours for calendar in encoding.calendars.values()]
        self.flagged = [encoding.columns.index(column) for column in encoding.flagged]
        self.fills_gaps = encoding.fills is not None
        fills = np.zeros(0) if encoding.fills is None else encoding.fills
        self.register_buffer("fills", torch.from_numpy(np.asarray(fills)).to(dtype))

    def forward(self, parts: list[Tensor]) -> Tensor:
        """Features `[n, feature]`; rows without any cell are NaN, and so are cells that nothing fills."""
        left = list(parts)
        measured, gaps = [], []
        codes = times = None
        if self.numbers:
            measured.append(left.pop(0))
            gaps.append(measured[0].isnan())
        if self.hours:
            times = left.pop(0)
            measured += [
                calendar_features(times[:, place].double(), hours).to(self.fills)
                for place, hours in enumerate(self.hours)
            ]
            gaps.append(times.isnan())
        if self.sizes:
            codes = left.pop(0)
            gaps.append(codes == EMPTY)
        empty = torch.cat(gaps, dim=1)
        missing = empty.all(dim=1, keepdim=True)
        features = []
        if measured:
            values = torch.cat(measured, dim=1)
            features.append(torch.where(values.isnan() & ~missing, self.fills, values) if self.fills_gaps else values)
        dtype = measured[0].dtype if measured else torch.float32
        if codes is not None:
            for place, size in enumerate(self.sizes):
                one_hot = (codes[:, place, None] == torch.arange(size)).to(dtype)
                if not self.fills_gaps:
                    one_hot = one_hot.masked_fill((codes[:, place, None] == EMPTY) & ~missing, torch.nan)
                features.append(one_hot)
        features += [empty[:, place, None].to(dtype) for place in self.flagged]
        return torch.cat(features, dim=1).masked_fill(missing, torch.nan)


def calendar_features(seconds: Tensor, hours: bool) -> Tensor:
    """The features of `Calendar` from seconds since 1970 on the clock on the wall: `[n]` → `[n, feature]`.

    The day becomes a date by the rule of 400 years that always have 146 097 days (Hinnant, chrono-compatible low-level
    date algorithms), counted from the first of March.

    >>> noon = torch.tensor([1704110400.0], dtype=torch.float64)  # 2024-01-01 12:00, a Monday
    >>> [round(value, 3) + 0.0 for value in calendar_features(noon, hours=True)[0].tolist()]
    [2024.0, 0.0, 1.0, 0.0, 1.0, 0.0, -1.0]
    """
    known = seconds.nan_to_num()
    day = (known / _DAY).floor()
    shifted = day + 719_468  # days since 0000-03-01
    era = (shifted / 146_097).floor()
    of_era = shifted - era * 146_097
    year_of_era = (
        (of_era - (of_era / 1460).floor() + (of_era / 36_524).floor() - (of_era / 146_096).floor()) / 365
    ).floor()
    of_year = of_era - (365 * year_of_era + (year_of_era / 4).floor() - (year_of_era / 100).floor())  # from March
    late = of_year >= 306  # January and February belong to the next year
    year = year_of_era + era * 400 + late.to(known)
    leap = (_divides(year, 4) & ~_divides(year, 100)) | _divides(year, 400)
    ordinal = torch.where(late, of_year - 306, of_year + 59 + leap.to(known))  # from the first of January
    weekday = (day + 3) - 7 * ((day + 3) / 7).floor()  # 1970 began on a Thursday
    circles = [ordinal / _YEAR, weekday / 7]
    if hours:
        circles.append((known - day * _DAY).floor() / _DAY)
    waves = [wave(2 * math.pi * part) for part in circles for wave in (torch.sin, torch.cos)]
    return torch.stack([year, *waves], dim=1).masked_fill(seconds.isnan()[:, None], torch.nan)


def _divides(number: Tensor, by: int) -> Tensor:
    return number - by * (number / by).floor() == 0


class Numbers(nn.Module):
    """Numbers of any shape → standardised ones, which rows have them, and which hold NaN or infinity in part.

    Of a sequence, the steps after the last that is not all NaN are padding.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, transform: Standardise):
        super().__init__()
        self.modality = transform.output
        self.register_buffer("shift", torch.from_numpy(transform._shift))
        self.register_buffer("scale", torch.from_numpy(transform._scale))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Return values, lengths, presence and broken rows for x `[n, *shape]`."""
        unknown, finite, lengths = x.isnan(), x.isfinite(), None
        if self.modality.timed:
            step = (~unknown).flatten(2).any(dim=2)  # [n, time]
            lengths = (step * torch.arange(1, x.shape[1] + 1)).amax(dim=1)
            beyond = torch.arange(x.shape[1]) >= lengths[:, None]
            finite = finite | beyond[..., None]
            present = lengths > 0
        else:
            present = ~unknown.flatten(1).all(dim=1)
        broken = ~finite.flatten(1).all(dim=1) & present
        known = torch.where(x.isfinite(), x, 0.0).double()
        standard = ((known - self.shift) / self.scale).float().clamp(-FARTHEST, FARTHEST)
        if lengths is not None:
            standard = standard.masked_fill((torch.arange(x.shape[1]) >= lengths[:, None])[..., None], 0)
        return standard, lengths, present, broken


class Ids(nn.Module):
    """Token ids `[n, time]`, padded at the end by −1, as the method receives them."""

    def __init__(self, modality: Modality):
        super().__init__()
        self.modality = modality

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Return ids, lengths, presence and broken rows, of which there are none."""
        lengths = ((x != PADDING) * torch.arange(1, x.shape[1] + 1)).amax(dim=1)
        present = lengths > 0
        return x.clamp(min=0), lengths, present, torch.zeros_like(present)


def seconds_of(calendar: Calendar, when: np.ndarray) -> np.ndarray:
    """Times `[n]` as the seconds since 1970 that a graph reads, NaN where there is none (NaT).

    >>> seconds_of(Calendar(None, hours=True), np.array(["1970-01-02", "NaT"], dtype="datetime64[s]")).tolist()
    [86400.0, nan]
    """
    seconds = when.astype("datetime64[s]").astype(np.int64).astype(np.float64)
    return np.where(np.isnat(when), np.nan, seconds)
