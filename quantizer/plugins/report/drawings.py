"""Geometry of the pictures of the page: waterfalls of noise, plots of SQNR, small histograms. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .content import NoiseBudget, TensorNoiseRecord

MAX_STEPS = 14
"""Nodes of a waterfall that have a step of their own; the rest is one step."""

MIN_SHARE_OF_LIMIT = 0.1
"""Share of the limit from which a waterfall is drawn to the scale of the limit."""

WIDTH, HEIGHT, MARGIN = 720, 260, 44
"""Size of a plot, and the room at its left for the scale."""


@dataclass(frozen=True)
class WaterfallStep:
    """One step."""

    node: str | None  # its name; None for all nodes that have no step of their own
    start: float  # the share of the noise that the steps before it add up to
    share: float  # of the noise
    sqnr: float | None  # in dB, of the output with this noise alone; None where it has none
    is_run: bool = False  # whether that was run


@dataclass(frozen=True)
class Waterfall:
    """The noise of an output, node by node."""

    steps: tuple[WaterfallStep, ...]  # the largest first
    rest: int  # the number of nodes of the last step, 0 where each has its own
    used: float | None  # all noise over the noise that the limit allows; None without a limit
    is_to_limit: bool  # whether the full width is the limit; else it is all noise
    width: float  # of all noise, from 0 to 1
    marks: tuple[tuple[float, str], ...]  # the place of the limit where it lies within all noise


def waterfall(budget: NoiseBudget) -> Waterfall:
    """Return the steps of the noise of an output; noise is 10**(-SQNR / 10)."""
    start, steps = 0.0, list[WaterfallStep]()
    for part in budget.parts[:MAX_STEPS]:
        steps.append(WaterfallStep(part.node, start, part.share, part.sqnr, part.is_run))
        start += part.share
    rest = budget.parts[MAX_STEPS:]
    if rest:
        share = sum(part.share for part in rest)
        sqnr = budget.sqnr - 10.0 * math.log10(share) if share > 0.0 else None
        steps.append(WaterfallStep(None, start, share, sqnr))
    if budget.limit is None:
        return Waterfall(tuple(steps), len(rest), None, False, 1.0, ())
    used = 10.0 ** (-budget.sqnr / 10.0) / 10.0 ** (-budget.limit / 10.0)
    width = min(used, 1.0) if used >= MIN_SHARE_OF_LIMIT else 1.0
    marks = ((width / used, "limit"),) if used > 1.0 else ()
    return Waterfall(tuple(steps), len(rest), used, MIN_SHARE_OF_LIMIT <= used <= 1.0, width, marks)


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


def curve_path(values: Sequence[float]) -> str:
    """Return the SVG path of a signal, 100 wide and 40 high: its lowest and highest values in turn."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    step, scale = 100.0 / max(1, len(values) - 1), 38.0 / (high - low) if high > low else 0.0
    points = (f"{at * step:.2f} {39.0 - (value - low) * scale:.2f}" for at, value in enumerate(values))
    return "M" + "L".join(points)
