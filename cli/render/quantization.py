"""What `qprof quantize` says at its end, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...profiles.base.presentation import size_text
from .json_document import document

if TYPE_CHECKING:
    from ...quantizer.api.quantization import QuantizeResult
    from ...quantizer.search.float_fallback import SpeedCheck


SHOWN_OUTPUTS = 4
"""Outputs whose expected SQNR is printed; JSON has all."""

SHOWN = 3
"""Nodes executed otherwise than planned that are printed; JSON has all."""


def findings(result: QuantizeResult) -> dict[str, Any]:
    """Return what the next command depends on; of a result that was not judged nothing is known.

    Besides those of its evaluation: "grade" of the verdict, "kept" the file of the profile, "fixed" the
    options that were applied, and "rounded" whether weights were rounded with samples.
    """
    from ...quantizer.targets.config import WITH_SAMPLES
    from .endings.findings import evaluation_findings

    judged = result.judged
    if judged is None:
        return {}
    verdict, facts = judged.verdict, None if result.made is None else result.made.facts
    fix = () if verdict.applied is None else verdict.applied.options
    return {
        **evaluation_findings(judged.evaluation),
        "grade": verdict.grade,
        "kept": judged.profile,
        "fixed": tuple(word for word in fix if word != "--check-speed"),
        "rounded": facts is not None and facts.config.rounding in WITH_SAMPLES,
    }


def summary_text(result: QuantizeResult, arguments: Sequence[str] = ()) -> str:
    """Return the sizes, the number of nodes of each kind, the reasons of those that stay float, and notes; of
    a result that was judged the verdict, where `arguments` are those of the command line."""
    if result.judged is not None:
        from .endings.verdict import verdict_text

        notes = [f"note: {note}" for note in result.notes]
        return "\n".join([f"{result.model_path}: written", *notes, verdict_text(result.judged, arguments)])
    ratio = result.float_bytes / max(result.quantized_bytes, 1)
    counts, floats = result.summary.counts, result.summary.floats
    width = len(str(max(counts.values(), default=0)))
    return "\n".join(
        [
            f"{result.model_path}: {size_text(result.quantized_bytes)}, {ratio:.2f} times smaller than "
            f"the float model's {size_text(result.float_bytes)}",
            f"{sum(counts.values())} nodes:",
            *(f"  {count:>{width}}  {kind}" for kind, count in counts.items()),
            *(["why float:"] if floats else []),
            *(f"  {group.nodes:>{width}}  {group.reason}" for group in floats),
            *_expected_lines(result),
            *(f"note: {note}" for note in result.notes),
            *([] if result.speed is None else _speed_lines(result.speed)),
        ]
    )


def _expected_lines(result: QuantizeResult) -> Iterator[str]:
    """Yield what is expected of the outputs, those with the least SQNR first."""
    outputs = sorted(result.expected, key=lambda output: output.estimated)
    yield from (output.text for output in outputs[:SHOWN_OUTPUTS])
    if len(outputs) > SHOWN_OUTPUTS:
        yield f"{len(outputs) - SHOWN_OUTPUTS} more outputs are expected to keep more"


def summary_json(result: QuantizeResult) -> str:
    """Return the same as `summary_text` as one JSON object, see `qprof schema quantization`."""
    from .schemas.results import Quantization

    return document("quantization", 1, Quantization.of(result))


def _speed_lines(speed: SpeedCheck) -> Iterator[str]:
    """Yield the latencies, what fell back to float, and whether float is faster or a gate failed."""
    now, made_up = speed.after, ", made up from the profile" if speed.demand.data is None else ""
    yield (
        f"speed: float {now.float_ms:.3g} ms, quantized {now.quantized_ms:.3g} ms: "
        f"{now.speedup:.2f} times as fast ({now.speedup_low:.2f} to {now.speedup_high:.2f}; "
        f"threads: {now.threads}, samples: {now.samples}{made_up})"
    )
    if speed.fallback:
        yield f"back to float ({speed.before.speedup:.2f} times as fast before):"
        for region in speed.fallback:
            more = f" and {len(region.nodes) - 1} more" if len(region.nodes) > 1 else ""
            times = f"{region.integer_ms:.3g} ms in int8, {region.float_ms:.3g} ms float"
            yield f"  {times}: {region.nodes[0]}{more}"
    yield from (f"faster: {change}" for change in speed.changes if not speed.left_float)
    yield from (f"executed otherwise than planned: {sentence}" for sentence in speed.undone[:SHOWN])
    if speed.left_float:
        yield speed.left_float
    if speed.slower:
        yield f"FLOAT IS FASTER: {'; '.join(speed.reasons)}"
    if not speed.passed:
        yield (
            f"FAILED: --min-speedup {speed.demand.min_speedup:g}: {now.speedup_low:.2f} "
            f"(lower quartile of the rounds; median {now.speedup:.2f})"
        )
