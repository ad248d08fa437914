"""The int8 variants that more than one stage builds: onnxruntime's settings, and what of them is best."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from frame import HERE
from record import Judged
from workbench import Variant, Workbench

DYNAMIC = "ort-dynamic"
_SCRIPT = HERE / "ort_static.py"
# Pre-processing fails on some models, or spoils them: then without symbolic shapes, then without all of it.
_FALLBACKS = ((), ("--skip-symbolic-shape",), ("--no-pre-process",))


def _peer(label: str, *choices: tuple[str, ...]) -> Variant:
    command = (sys.executable, str(_SCRIPT), "{model}", "--data", "{data}", "-o", "{out}")
    attempts = [[(*command, *options, *more)] for options in choices for more in _FALLBACKS]
    return Variant(label, attempts, [_SCRIPT])


PEERS: Mapping[str, Variant] = {
    # Opset 13 is the first with scales for each channel.
    **{
        f"ort-{method}-{grain}": _peer(
            f"ort-{method}-{grain}", ("--method", method, "--opset", "13", *options)
        )
        for method in ("minmax", "entropy", "percentile")
        for grain, options in (("tensor", ()), ("channel", ("--per-channel",)))
    },
    # onnxruntime has no integer convolution with signed weights: unsigned ones are its advice.
    DYNAMIC: _peer(DYNAMIC, ("--dynamic",), ("--dynamic", "--weights", "QUInt8")),
}
"""Label -> a setting of onnxruntime's quantizer; the first list of options that gives a model which runs is
taken.
"""


def best_peer(bench: Workbench) -> str | None:
    """Return the label of onnxruntime's static setting with the best score on evaluation data, by SQNR among
    equals.
    """
    judged = {label: bench.judged(label, bench.data.evaluation) for label in PEERS if label != DYNAMIC}

    def merit(label: str) -> tuple[float, float]:
        found = judged[label]
        assert isinstance(found, Judged)
        return (found.scores.value if found.scores else 0.0, found.worst_sqnr)

    return max(
        (label for label, found in judged.items() if isinstance(found, Judged)), key=merit, default=None
    )
