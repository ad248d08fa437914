"""The verdict of `qprof quantize --data`, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....profiles.base.presentation import size_text

if TYPE_CHECKING:
    from ....quantizer.evaluation.result import Evaluation
    from ....quantizer.verdict.fixes import Fix
    from ....quantizer.verdict.verdict import Judged, Verdict

SHOWN = 3
"""Reasons of float nodes, outputs and fixes that are printed; JSON has all."""


def verdict_text(judged: Judged, arguments: Sequence[str]) -> str:
    """Return the verdict for people: a line for each thing, its name in front.

    Args:
        judged: what was found.
        arguments: of the command line, which commands to try repeat.
    """
    from ..evaluation import failure_text

    verdict, evaluation = judged.verdict, judged.evaluation
    lines = [
        ("verdict", verdict.sentence),
        *(("", output.text) for output in verdict.outputs[1:SHOWN] if output.grade != "good"),
        ("size", _size(verdict)),
        *(("speed", text) for text in _speed(verdict)),
        ("int8", _int8(verdict)),
        *(("ALARM", alarm) for alarm in verdict.alarms),
        *(("remark", remark) for remark in verdict.remarks if remark not in verdict.sentence),
        *([("cause", verdict.cause)] if verdict.cause else []),
        *_tries(verdict, arguments),
        *(("FAILED", failure_text(failure)) for failure in evaluation.failures),
        *(("FAILED", doubt) for doubt in evaluation.doubts if evaluation.gated),
        *([("gate", "passed")] if _has_passed(evaluation) else []),
    ]
    return "\n".join(f"{name:9} {text}" for name, text in lines)


def _has_passed(evaluation: Evaluation) -> bool:
    return evaluation.passed and evaluation.gated


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
    share = f"{100 * parts.int8_share:.0f} % of the multiply-adds"
    count = sum(group.nodes for group in parts.floats)
    if not count:
        return f"{share}; no node stays float"
    reasons = "; ".join(f"{group.nodes}: {group.reason}" for group in parts.floats[:SHOWN])
    return f"{share}; {count} node{'s stay' if count > 1 else ' stays'} float, of them {reasons}"


def _tries(verdict: Verdict, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each fix: what it brings, and the command."""
    if verdict.applied is not None:
        yield "fixed", f"by {shlex.join(verdict.applied.options)}: {verdict.applied.brings}"
    for fix in verdict.fixes[:SHOWN]:
        yield "try", f"{fix.brings}:"
        yield "", shlex.join(["qprof", "quantize", *_without(arguments, fix), *fix.options])


def _without(arguments: Sequence[str], fix: Fix) -> Iterator[str]:
    """Yield the words of the command line without settings that a fix changes, and --fix."""
    changed = {f"--{name.replace('_', '-')}" for name, value in fix.settings.items() if value != ()}
    changed -= {"--keep-float", "--keep-16bit"}  # names are added to those that are given
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name not in (*changed, "--fix"):
            yield word
        elif not value:
            next(words, None)
