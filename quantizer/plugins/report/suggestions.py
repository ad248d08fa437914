"""Other settings that were tried and make a better model, with the options of each. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ...search.verdict import Verdict
from .content import WhatIf

MUCH_FASTER = 1.1
"""Times as fast from which a change is worth a line although it costs quality."""


def tried_changes(verdict: Verdict) -> Iterator[WhatIf]:
    """Yield the fixes of a verdict, which were tried on samples."""
    worst = verdict.worst
    for fix in verdict.fixes:
        gained = None if fix.sqnr is None or verdict.sqnr is None else round(fix.sqnr - verdict.sqnr, 2)
        is_much_faster = (
            fix.speedup is not None
            and verdict.latency is not None
            and fix.speedup >= MUCH_FASTER * verdict.latency.speedup
        )
        if gained is not None and gained < 0.0 and not is_much_faster:
            continue
        kept = fix.settings.get("keep_float", ())
        nodes = kept if isinstance(kept, tuple) else ()
        if nodes:
            title = _kept_words(nodes)
        else:
            title = "; ".join(_setting_words(name, value) for name, value in fix.settings.items())
        yield WhatIf(
            title=title,
            output="" if worst is None else worst.output,
            sqnr=fix.sqnr,
            gained=gained,
            speedup=fix.speedup,
            nodes=nodes,
            options=shlex.join(fix.options),
        )


def _kept_words(nodes: tuple[str, ...]) -> str:
    return "Keep one node float" if len(nodes) == 1 else f"Keep {len(nodes)} nodes float"


def _setting_words(name: str, value: str | float | tuple[str, ...]) -> str:
    """Return a setting in words."""
    if name == "calibrator":
        return f"Calibrate with {value}"
    return f"Setting {name}: {value}"
