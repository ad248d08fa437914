"""What the target's cost table predicts for a plan, beside what is measured."""

from __future__ import annotations

from pathlib import Path

from qprof_onnx.quantizer.plan.plan import QuantPlan


def predicted_ms(model: Path, plan: QuantPlan, quantized: Path) -> float | None:
    """Return the predicted milliseconds of one run of the quantized model; None without a cost table."""
    del model, plan, quantized
    return None
