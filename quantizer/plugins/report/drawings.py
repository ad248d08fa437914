"""Geometry of the pictures of the page: waterfalls of noise, plots of SQNR, small histograms. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    """A plot with SQNR upwards; places are x and y in a picture of `width` and `height`."""

    title: str  # words above it, and on its horizontal axis
    key: str
    axis: str
    low: float  # the ends of the scale in dB
    high: float
    points: tuple[tuple[float, float, TensorNoiseRecord], ...]  # x, y and the tensor of each point
    line: tuple[tuple[float, float], ...] | None = None  # places of a line; None for none
    diagonal: tuple[float, float, float, float] | None = None  # x and y of both ends of a line; None for none
    ticks: tuple[tuple[int, float], ...] = ()  # dB and x of each tick of the horizontal axis
    width: int = WIDTH
    height: int = HEIGHT
    left: int = MARGIN
    right: int = WIDTH - 8

    @property
    def grid(self) -> tuple[tuple[int, float], ...]:
        """Return dB and y of each line of the grid."""
        return tuple((tick, _y(tick, self.low, self.high)) for tick in _ticks(self.low, self.high))


def sqnr_plots(records: Sequence[TensorNoiseRecord]) -> Iterator[Plot]:
    """Yield SQNR along the graph, and measured SQNR over estimated SQNR where there is both."""
    with_sqnr = [r for r in records if _finite([r.estimated, r.measured])]
    low, high = _scale([*(r.estimated for r in with_sqnr), *(r.measured for r in with_sqnr)])
    step = (WIDTH - MARGIN - 16.0) / max(len(with_sqnr) - 1, 1)
    points_in_order = [(MARGIN + 4.0 + step * at, r) for at, r in enumerate(with_sqnr)]
    line = tuple((x, _y(value, low, high)) for x, r in points_in_order for value in _finite([r.estimated]))
    points = tuple(
        (x, _y(value, low, high), r)
        for x, r in points_in_order
        if not r.is_equalized
        for value in _finite([r.measured])
    )
    key = "line: estimated" + ("; ● int8, ○ float: measured" if points else "")
    yield Plot("SQNR along the graph", key, "graph order", low, high, points, line)

    both = [
        (r.estimated, value, r) for r in records if r.estimated is not None for value in _finite([r.measured])
    ]
    if not both:
        return
    low, high = _scale([*(estimated for estimated, _, _ in both), *(measured for _, measured, _ in both)])

    def x_of(value: float) -> float:
        return MARGIN + 4.0 + (WIDTH - MARGIN - 16.0) * (value - low) / (high - low)

    yield Plot(
        "Measured against estimated",
        "● int8, ○ float",
        "estimated dB",
        low,
        high,
        tuple((x_of(estimated), _y(measured, low, high), r) for estimated, measured, r in both),
        diagonal=(x_of(low), _y(low, low, high), x_of(high), _y(high, low, high)),
        ticks=tuple((tick, x_of(tick)) for tick in _ticks(low, high)),
    )


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _scale(values: Sequence[float | None]) -> tuple[float, float]:
    """Return the tens of dB around some values; 0 to 60 without any."""
    finite = _finite(values)
    low, high = min(finite, default=0.0), max(finite, default=60.0)
    low, high = math.floor(low / 10.0) * 10.0, math.ceil(high / 10.0) * 10.0
    return low, max(high, low + 10.0)


def _ticks(low: float, high: float) -> range:
    return range(int(low), int(high) + 1, 10 if high - low <= 80 else 20)


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
