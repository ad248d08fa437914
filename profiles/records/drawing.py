"""Histograms and shapes as people see them: a line of characters, and a drawing in SVG."""

from __future__ import annotations

import html
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..base.arguments import checks_arguments
from ..base.errors import ConfigError
from ..base.output_files import write_atomically

if TYPE_CHECKING:
    from .histogram import Bins

BLOCKS, ASCII = "▁▂▃▄▅▆▇█", ".:-=+*#@"
BARS, WIDTH, HEIGHT = 96, 480, 120
"""Number of bars of a drawing, and its size in pixels without the text."""


def small_histogram(
    histogram: Bins, minimum: float, maximum: float, cells: int = 16, ramp: str = BLOCKS
) -> str:
    """Return a histogram in `cells` characters of a ramp from low to high; only an empty cell is blank."""
    levels = [math.ceil(len(ramp) * height) for height in heights(histogram, minimum, maximum, cells)]
    return "".join(ramp[min(level, len(ramp)) - 1] if level else " " for level in levels)


def heights(histogram: Bins, minimum: float, maximum: float, cells: int) -> list[float]:
    """Return the heights of `cells` bars from minimum to maximum, in [0, 1]: logarithms of the counts."""
    import numpy as np

    total = histogram.counts.sum()
    if total == 0:
        return [0.0] * cells
    if not minimum < maximum:
        return [1.0] + [0.0] * (cells - 1)
    edges = np.clip(histogram.edges(), minimum, maximum)
    cumulative = np.concatenate([[0.0], np.cumsum(histogram.counts, dtype=np.float64)])
    counts = np.diff(np.interp(np.linspace(minimum, maximum, cells + 1), edges, cumulative))
    counts[counts < total * 1e-12] = 0.0  # rounding of the sums
    top = math.log1p(float(counts.max()))
    return [math.log1p(float(count)) / top for count in counts]


@dataclass(frozen=True, repr=False)
class Drawing:
    """A drawing, which a notebook shows."""

    title: str
    svg: str

    def __repr__(self) -> str:
        """Return one line."""
        return f"<Drawing: {self.title}>"

    def _repr_svg_(self) -> str:
        return self.svg

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the drawing as an SVG file.

        Raises:
            ConfigError: the name does not end in .svg, or the file cannot be written.
        """
        if not str(os.fspath(path)).lower().endswith(".svg"):
            raise ConfigError(f"{path}: a drawing is written as .svg; choose a name with this ending")
        write_atomically(path, self.svg + "\n")


def drawing(name: str, histogram: Bins, minimum: float, maximum: float) -> Drawing:
    """Return a histogram as bars from minimum to maximum; their heights are logarithmic."""
    step = WIDTH / BARS
    bars = "".join(
        f'<rect x="{10 + number * step:.1f}" y="{20 + HEIGHT * (1 - height):.1f}" width="{step:.1f}" '
        f'height="{HEIGHT * height:.1f}" fill="#4a7fb5"/>'
        for number, height in enumerate(heights(histogram, minimum, maximum, BARS))
        if height
    )
    title, below = html.escape(name), HEIGHT + 36
    texts = (
        f'<text x="10" y="14">{title}</text><text x="10" y="{below}">{minimum:.6g}</text>'
        f'<text x="{10 + WIDTH}" y="{below}" text-anchor="end">{maximum:.6g}</text>'
    )
    size = f'width="{WIDTH + 20}" height="{HEIGHT + 44}" font-family="sans-serif" font-size="12"'
    return Drawing(name, f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{bars}{texts}</svg>')


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """Return a shape as in "?x3x224x224": "?" for a free dimension or rank, "scalar" for none."""
    if shape is None:
        return "?"
    return "x".join("?" if dim is None else str(dim) for dim in shape) or "scalar"
