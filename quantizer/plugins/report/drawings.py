"""Geometry of the pictures of the page: plots of SQNR, small histograms. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .content import TensorNoiseRecord

WIDTH, HEIGHT, MARGIN = 720, 260, 44
"""Size of a plot, and the room at its left for the scale."""


@dataclass(frozen=True)
class Plot:
    """SQNR along the graph, upwards; places are x and y in a picture of `width` and `height`."""

    low: float  # the ends of the scale in dB
    high: float
    points: tuple[tuple[float, float, TensorNoiseRecord], ...]  # x, y and the tensor of each point
    width: int = WIDTH
    height: int = HEIGHT
    left: int = MARGIN
    right: int = WIDTH - 8

    @property
    def grid(self) -> tuple[tuple[int, float], ...]:
        """Return dB and y of each line of the grid."""
        ticks = range(int(self.low), int(self.high) + 1, 10 if self.high - self.low <= 80 else 20)
        return tuple((tick, _y(tick, self.low, self.high)) for tick in ticks)


def sqnr_plot(records: Sequence[TensorNoiseRecord]) -> Plot:
    """Return the plot of the tensors with a finite SQNR; equalized ones have a place and no point."""
    known = [(r, r.sqnr) for r in records if r.sqnr is not None and math.isfinite(r.sqnr)]
    values = [sqnr for _, sqnr in known]
    low = math.floor(min(values, default=0.0) / 10.0) * 10.0
    high = max(math.ceil(max(values, default=60.0) / 10.0) * 10.0, low + 10.0)
    step = (WIDTH - MARGIN - 16.0) / max(len(known) - 1, 1)
    places = ((MARGIN + 4.0 + step * at, _y(sqnr, low, high), r) for at, (r, sqnr) in enumerate(known))
    return Plot(low, high, tuple(place for place in places if not place[2].is_equalized))


def _y(value: float, low: float, high: float) -> float:
    return 16.0 + (HEIGHT - 46.0) * (1.0 - (value - low) / (high - low))


def sparkline_path(counts: Sequence[int], columns: int = 32) -> tuple[int, str]:
    """Return the width of a small histogram of height 16, with logarithmic heights, and its SVG path."""
    size = max(1, -(-len(counts) // columns))
    joined = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    top = math.log1p(max(joined, default=0)) or 1.0
    path, last = "M0 16", 16
    for at, count in enumerate(joined):
        height = max(round(16 * math.log1p(count) / top), 1 if count else 0)
        path += (f"V{16 - height}" if 16 - height != last else "") + f"H{2 * at + 2}"
        last = 16 - height
    return 2 * len(joined), f"{path}V16z"
