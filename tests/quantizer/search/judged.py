"""An evaluation to give a verdict on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from qprof_onnx.profiles.base.conversion import OutputKind
from qprof_onnx.quantizer.evaluation.compare import Difference, OutputResult
from qprof_onnx.quantizer.evaluation.evaluate import Evaluation
from qprof_onnx.quantizer.evaluation.grades import output_grades
from qprof_onnx.quantizer.evaluation.options import Gate
from qprof_onnx.quantizer.evaluation.output_shift import Measure, OutputShift
from qprof_onnx.quantizer.noise.output_limits import NoiseLimits
from qprof_onnx.quantizer.search.verdict import HeldOut

LIMITS = NoiseLimits(cast("Any", None), cast("Any", None), {"y": "signal"}, 20.0, ())
HELD_OUT = HeldOut(samples=40, rows=40, of_samples=160, seen=False, source="data")


def evaluation(sqnr: float = 30.0, **changes: Any) -> Evaluation:
    """Return one of a model with 30 dB, of which 20 are wanted, that is half as large as float."""
    output = OutputResult("y", "float32", Difference(sqnr, 1.0, 0), None, 0)
    shift = OutputShift("y", Measure.NOISE, 0.1 * 10.0 ** (1.0 - sqnr / 20.0), 0.1, sqnr)
    return evaluation_of(output, shift, **changes)


def evaluation_of(
    output: OutputResult, *shifts: OutputShift, kind: OutputKind = "signal", **changes: Any
) -> Evaluation:
    """Return one of a model with one output, of which 20 dB are wanted."""
    given = {
        "latency": None,
        "gate": Gate(),
        "failures": (),
        "quantized_bytes": 50,
        **changes,
    }
    grades = output_grades([output], replace(LIMITS, kinds={"y": kind}), shifts)
    return Evaluation("m.onnx", "q.onnx", 40, (output,), float_bytes=100, grades=grades, **given)
