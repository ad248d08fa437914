"""What the user asked for: the frozen settings of one quantization."""

from __future__ import annotations

from dataclasses import dataclass

GRANULARITIES = ("tensor", "channel")
RESOLUTIONS = ("auto", "global", "local")
TABLES = ("target", "runtime", "sigmoid", "portable", "off")


@dataclass(frozen=True)
class QuantConfig:
    """Settings of one quantization; every field has one name in YAML, on the command line and here.

    Attributes:
        target: name of the runtime that the result is for (a file in configs/).
        form: how the plan is written in ONNX: a name of `lowering.FORMS`.
        schema: how a range of activations becomes scale and zero point: a name of `schemes.SCHEMES`.
        calibrator: how a histogram of activations becomes a range: a name of `calibrators.CALIBRATORS`.
        activation_type: integer type of activations: int8 or uint8.
        weight_schema: the same for weights; asymmetric is per tensor only.
        weight_type: integer type of weights: int8, uint8, or int7, which is int8 with codes of 7 bits.
        granularity: one scale for a whole weight ("tensor"), or one for each output channel ("channel").
        tables: whether Sigmoid, Tanh and other curves become look-up tables, and in which spelling:
            "target" (the one the target prefers for each), "runtime", "sigmoid", "portable", "off".
        resolution: whether inputs and output of operators like Concat, which have one code space, share their
            parameters: "global" (always: no conversions, wider ranges), "local" (never: a conversion on the
            edge), "auto" (where it costs no tensor more than 1 dB).
        min_sqnr: activations whose noise, reckoned from the histogram, would leave less signal than
            this (dB) stay float; 0 keeps every one in integers.
        keep_float: node names, operator types or glob patterns of nodes that stay float.
    """

    target: str = "onnxruntime-x86"
    form: str = "qdq"
    schema: str = "asymmetric"
    calibrator: str = "mse"
    activation_type: str = "uint8"
    weight_schema: str = "symmetric"
    weight_type: str = "int8"
    granularity: str = "channel"
    tables: str = "target"
    resolution: str = "auto"
    min_sqnr: float = 0.0
    keep_float: tuple[str, ...] = ()
