"""What `qprof quantize` says at its end, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..quantizer.pipeline import QuantizeResult


def summary_text(result: QuantizeResult) -> str:
    """Return the sizes, the number of nodes of each kind, the reasons of those that stay float, and notes."""
    ratio = result.float_bytes / max(result.quantized_bytes, 1)
    counts, reasons = result.summary.counts, result.summary.float_reasons
    width = len(str(max([*counts.values(), *reasons.values()], default=0)))
    return "\n".join(
        [
            f"{result.model_path}: {_kilobytes(result.quantized_bytes)}, {ratio:.2f} times smaller than "
            f"the float model's {_kilobytes(result.float_bytes)}",
            f"{sum(counts.values())} nodes:",
            *(f"  {count:>{width}}  {kind}" for kind, count in counts.items()),
            *(["why float:"] if reasons else []),
            *(f"  {count:>{width}}  {reason}" for reason, count in reasons.items()),
            *(f"note: {note}" for note in result.notes),
        ]
    )


def summary_json(result: QuantizeResult) -> str:
    """Return the same as `summary_text` as one JSON object."""
    return json.dumps(
        {
            "model": str(result.model_path),
            "float_bytes": result.float_bytes,
            "quantized_bytes": result.quantized_bytes,
            "nodes": dict(result.summary.counts),
            "float_reasons": dict(result.summary.float_reasons),
            "notes": list(result.notes),
        },
        indent=2,
    )


def _kilobytes(size: int) -> str:
    return f"{size / 1000:.1f} kB"
