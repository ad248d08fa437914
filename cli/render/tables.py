"""Tables in the terminal: drawn by rich, or plain aligned columns where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from ...profiles.records.drawing import ASCII, BLOCKS
from ..console import echo, printable


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
        echo(plain_table(headers, rows, right))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        side: Literal["right", "left"] = "right" if header in right else "left"
        table.add_column(header, justify=side, overflow="fold", no_wrap=header not in folded)
    for row in rows:
        table.add_row(
            *(Text(printable(cell)) for cell in row)
        )  # Text: a name may hold what rich takes for markup
    Console(highlight=False).print(table)


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return the table as text: a line of headers, one line for each row, columns two blanks apart."""
    lines = [headers, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    rights = [header in right for header in headers]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, rights, strict=True)
        ).rstrip()
        for line in lines
    )


def ramp_of_terminal() -> str:
    """Return the blocks of Unicode, or ASCII characters where the output's encoding has none."""
    try:
        BLOCKS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS
