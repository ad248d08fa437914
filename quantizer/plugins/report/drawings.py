"""Geometry of small histograms. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


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
