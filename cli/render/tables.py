"""Tables and small histograms in the terminal: drawn by rich, or plain aligned columns where nobody looks."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from ...profiles.records.histogram import EqualBins, Histogram


BLOCKS, ASCII = "▁▂▃▄▅▆▇█", ".:-=+*#@"


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    folded: Sequence[str] = (),
) -> None:
    """Print rows under headers; the columns named in `right` are aligned to the right.

    On a terminal the columns named in `folded` are folded where the table would be too wide. Elsewhere
    every row is one line, columns are two blanks apart, and nothing is cut.
    """
    if not sys.stdout.isatty():
        click.echo(plain_table(headers, rows, right))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        side: Literal["right", "left"] = "right" if header in right else "left"
        table.add_column(header, justify=side, overflow="fold", no_wrap=header not in folded)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: a name may hold what rich takes for markup
    Console(highlight=False).print(table)


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return the table as text: a line of headers, one line for each row, columns two blanks apart."""
    lines = [headers, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    rights = [header in right for header in headers]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, rights, strict=True)
        ).rstrip()
        for line in lines
    )


def small_histogram(
    histogram: Histogram | EqualBins, minimum: float, maximum: float, cells: int = 16, ramp: str = BLOCKS
) -> str:
    """Return a histogram drawn in `cells` characters from minimum to maximum.

    Heights are logarithmic, so the tails that decide a range can be seen: an empty cell is blank, and a
    cell with anything in it is not. The mass of a bin is taken as evenly spread.

    Args:
        histogram: of the finite elements.
        minimum, maximum: range of the drawing, usually that of the elements.
        cells: width in characters.
        ramp: characters from lowest to highest.
    """
    import numpy as np

    total = histogram.counts.sum()
    if total == 0:
        return " " * cells
    if not minimum < maximum:
        return ramp[-1] + " " * (cells - 1)
    edges = np.clip(histogram.edges(), minimum, maximum)
    cumulative = np.concatenate([[0.0], np.cumsum(histogram.counts, dtype=np.float64)])
    counts = np.diff(np.interp(np.linspace(minimum, maximum, cells + 1), edges, cumulative))
    counts[counts < total * 1e-12] = 0.0  # rounding of the sums
    top = math.log1p(float(counts.max()))
    heights = [math.ceil(len(ramp) * math.log1p(float(count)) / top) for count in counts]
    return "".join(ramp[min(height, len(ramp)) - 1] if height else " " for height in heights)


def ramp_of_terminal() -> str:
    """Return the blocks of Unicode, or ASCII characters where the output's encoding has none."""
    try:
        BLOCKS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """Return a shape as in "?x3x224x224": "?" for a free dimension or rank, "scalar" for none."""
    if shape is None:
        return "?"
    return "x".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def size_text(size: int) -> str:
    """Return a size in bytes with its unit and four digits or fewer before it, as in "49.3 MB"."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size} B"
