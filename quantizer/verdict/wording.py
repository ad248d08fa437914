"""The verdict as a list of facts, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...profiles.base.presentation import Presentation, Table, size_text

if TYPE_CHECKING:
    from .fixes import Fix
    from .verdict import Verdict

REASONS = 3
"""Reasons of float nodes that are shown; JSON has all."""


def facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield name and text of what stands below the sentence: size, speed, share of int8, the cause."""
    yield "size", _size(verdict)
    yield from (("speed", text) for text in _speed(verdict))
    yield "int8", _int8(verdict)
    yield from (("ALARM", alarm) for alarm in verdict.alarms)
    yield from (("remark", remark) for remark in verdict.remarks if remark not in verdict.sentence)
    if verdict.cause:
        yield "cause", verdict.cause


def presentation_of(verdict: Verdict) -> Presentation:
    """Return the facts, and what to try, as keywords of `quantize`."""
    applied = [] if verdict.applied is None else [("fixed", _keywords(verdict.applied))]
    tries = tuple((_keywords(fix), fix.brings) for fix in verdict.fixes)
    tables = (Table(("try quantize(..., )", "brings"), tries, left=2),) if tries else ()
    return Presentation((*facts(verdict), *applied), tables)


def _keywords(fix: Fix) -> str:
    """Return the change of settings as Python writes it; SpeedDemand is a name of the package."""
    words = ["speed=SpeedDemand()"] if fix.check_speed else []
    for name, value in fix.settings.items():
        words.append(f"{name}={list(value) if isinstance(value, tuple) else value!r}")
    return ", ".join(words)


def _size(verdict: Verdict) -> str:
    ratio = verdict.float_bytes / max(verdict.quantized_bytes, 1)
    return (
        f"{size_text(verdict.float_bytes)} -> {size_text(verdict.quantized_bytes)}, {ratio:.2f} times smaller"
    )


def _speed(verdict: Verdict) -> Iterator[str]:
    found = verdict.latency
    if found is None:
        yield "not measured"
    else:
        threads = f"{found.threads} thread{'s'[: found.threads != 1]}"
        yield (
            f"{found.speedup:.2f} times as fast as float ({found.speedup_low:.2f} to "
            f"{found.speedup_high:.2f}; {threads}, this processor)"
        )


def _int8(verdict: Verdict) -> str:
    """Return the share of the arithmetic, and why the rest is float."""
    parts = verdict.composition
    share = f"{parts.quantized} node{'s'[: parts.quantized != 1]} quantized"
    if parts.int8_share is not None:
        share = f"{100 * parts.int8_share:.0f} % of the multiply-adds"
    count = sum(group.nodes for group in parts.floats)
    if not count:
        return f"{share}; no node stays float"
    reasons = "; ".join(f"{group.nodes}: {group.reason}" for group in parts.floats[:REASONS])
    return f"{share}; {count} node{'s stay' if count > 1 else ' stays'} float, of them {reasons}"
