"""Colours that stay apart for colour-blind readers and read on white and on near-black; who gets which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

INK = "#1b1c1e"  # text and axes; becomes currentColor in an SVG, so it must differ from every other colour
# After Okabe and Ito, Color Universal Design: their dark hues, and two of their light ones darkened to stand on white.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#c76aa0", "#a67c00", "#7b68c8", "#1898b0", "#7d7f83")
# The same hues, lighter: what a dark page shows in their place.
SERIES_ON_DARK = ("#4da3e0", "#f08344", "#2fbd91", "#dd8fba", "#c9a02c", "#a294ec", "#45b6cc", "#9c9ea3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


@dataclass(frozen=True)
class Look:
    """How one method or modality is drawn everywhere; one that is not `shown` in colour stays in the background."""

    colour: str
    marker: str
    shown: bool = True

    @property
    def opacity(self) -> float:
        """Lines in the background are faint ink, which suits both themes."""
        return 1.0 if self.shown else 0.28


BACKGROUND = Look(INK, "", shown=False)


def looks_of(names: Sequence[str], first: Iterable[str] = ()) -> dict[str, Look]:
    """A look for every name: colours for as many as there are, those in `first` before the others.

    >>> looks = looks_of([f"method-{i}" for i in range(20)], first=["method-19"])
    >>> looks["method-19"].colour == SERIES[0], looks["method-7"].shown
    (True, False)
    """
    wanted = [name for name in dict.fromkeys([*first, *names]) if name in names]
    shown = {name: Look(SERIES[place], MARKERS[place]) for place, name in enumerate(wanted[: len(SERIES)])}
    return {name: shown.get(name, BACKGROUND) for name in names}
