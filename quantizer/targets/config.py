"""What the user asked for: the frozen settings of one quantization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

DATA_FREE = ("dynamic", "weight-only")
"""Modes that need no profile."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": ("static", "dynamic", "weight-only", "auto"),
    "inter_layer": ("quantized", "float"),
    "granularity": ("per-tensor", "per-channel"),
    "lookup_tables": ("target", "runtime", "sigmoid", "portable", "off"),
    "scale_sharing": ("auto", "unified", "separate"),
    "equalization": ("auto", "free", "off"),
    "bias_correction": ("auto", "off"),
    "rounding": ("nearest", "squant", "gptq"),
}
"""Field of `QuantConfig` -> the words that it may be, where these hang on nothing else."""


@dataclass(frozen=True)
class QuantConfig:
    """Settings of one quantization; every field has one name in YAML, on the command line and here.

    Attributes:
        target: name of the runtime that the result is for (a file in configs/).
        mode: how nodes are quantized: "static" (activations with parameters from the profile), "dynamic"
            (parameters of activations computed at run time, weights quantized), "weight-only" (quantized
            weights, float arithmetic), "auto" (for each node the first of these within the noise budget).
            Large embedding tables are quantized in every mode.
        form: output format, that is how the plan is written in ONNX: one of `FORMS`.
        schema: how a range of activations becomes scale and zero point: a name of `schemas.SCHEMAS`.
        calibrator: how a histogram of activations becomes a range: a name of `calibrators.CALIBRATORS`.
        activation_type: integer type of activations: int8, uint8, or with 16 bits int16, uint16.
        keep_16bit: activations with 16 bits where the others have 8 (mixed precision): names of tensors or
            nodes, operator types or globs; a node stands for the activations that it reads and makes.
        inter_layer: between quantized nodes activations stay "quantized", or return to "float" after each
            product whose kernel can return float.
        weight_schema: the schema of weights.
        weight_type: integer type of weights: int8, uint8, "int7" (int8 storage, values in [-64, 63], safe on
            processors whose int8 products saturate), and in mode weight-only int4 and uint4 (where the target
            has no 4-bit kernel for an operator, its weights have 8 bits).
        block_size: elements along the summed axis of a weight that share a scale, in mode weight-only; 0 for
            the `granularity`.
        granularity: one scale for a whole weight ("per-tensor"), or one for each output channel
            ("per-channel").
        lookup_tables: whether Sigmoid, Tanh and other unary functions become look-up tables, and in which
            implementation: "target" (the one that the target prefers), "runtime", "sigmoid", "portable",
                "off".
        scale_sharing: whether inputs and output of operators like Concat share their scale: "unified"
            (always: no conversions, wider ranges), "separate" (never: a conversion on the edge), "auto"
            (where sharing costs no tensor more than 1 dB).
        min_sqnr: an activation whose estimated SQNR in dB would be below stays float; -inf keeps all.
        min_output_sqnr: SQNR in dB that every output keeps, as estimated from the profile: the nodes that add
            the most noise stay float until it does; 0 keeps all.
        equalization: cross-layer equalization of activation channels: "auto" (with an added Mul where no
            weight before the activation can take the scales), "free" (without), "off".
        bias_correction: whether biases are corrected for the mean error of quantized weights: "auto", "off".
        rounding: of weights: to the "nearest" value, "squant" (SQuant: rounding errors cancel in each kernel
            and channel), or "gptq" (GPTQ: with samples, the least error at the output of each product).
        keep_float: names of nodes, operator types, or globs of names that stay float.
    """

    target: str = "onnxruntime-x86"
    mode: str = "static"
    form: str = "qdq"
    schema: str = "asymmetric"
    calibrator: str = "mse"
    activation_type: str = "uint8"
    keep_16bit: tuple[str, ...] = ()
    inter_layer: str = "quantized"
    weight_schema: str = "symmetric"
    weight_type: str = "int8"
    block_size: int = 0
    granularity: str = "per-channel"
    lookup_tables: str = "target"
    scale_sharing: str = "auto"
    min_sqnr: float = 0.0
    min_output_sqnr: float = 18.0
    equalization: str = "auto"
    bias_correction: str = "auto"
    rounding: str = "nearest"
    keep_float: tuple[str, ...] = ()


AUTO_SQNR = 20.0
"""Signal over noise (dB) of activations below which mode auto leaves static codes, if no limit is given, and
that the codes of an LSTM have in mode static."""


def with_limit(config: QuantConfig) -> QuantConfig:
    """Return the settings with the limit of noise that mode auto has when none was given."""
    if config.mode == "auto" and not config.min_sqnr:
        return replace(config, min_sqnr=AUTO_SQNR)
    return config


FORMS = ("qdq", "qoperator", "integer", "primitives", "regions")
"""Names of the forms; `lowering.forms` has a module of the same name for each."""
