"""The verdict of `qprof quantize --data`, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....quantizer.evaluation.evaluate import Evaluation
    from ....quantizer.search.verdict import Fix, Judged, Verdict

SHOWN = 3
"""Reasons of float nodes, outputs and fixes that are printed; JSON has all."""


def verdict_text(judged: Judged, arguments: Sequence[str]) -> str:
    """Return the verdict for people: a line for each thing, its name in front.

    Args:
        judged: what was found.
        arguments: of the command line, which commands to try repeat.
    """
    from ....quantizer.search.verdict import facts
    from ..evaluation import failure_text

    verdict, evaluation = judged.verdict, judged.evaluation
    lines = [
        ("verdict", verdict.sentence),
        *(("", output.text) for output in verdict.outputs[1:SHOWN] if output.grade != "good"),
        *facts(verdict),
        *_tries(verdict, arguments),
        *(("FAILED", failure_text(failure)) for failure in evaluation.failures),
        *(("FAILED", doubt) for doubt in evaluation.doubts if evaluation.gated),
        *([("gate", "passed")] if _has_passed(evaluation) else []),
    ]
    return "\n".join(f"{name:9} {text}" for name, text in lines)


def _has_passed(evaluation: Evaluation) -> bool:
    return evaluation.passed and evaluation.gated


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
