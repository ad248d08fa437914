"""What the user asked for: the frozen settings of one quantization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

DATA_FREE = ("dynamic", "weight-only")
"""Modes that need no profile."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": ("static", "dynamic", "weight-only", "auto"),
    "propagation": ("stay", "return"),
    "granularity": ("tensor", "channel"),
    "tables": ("target", "runtime", "sigmoid", "portable", "off"),
    "resolution": ("auto", "global", "local"),
    "equalization": ("auto", "free", "off"),
    "bias_correction": ("auto", "off"),
    "rounding": ("nearest", "sums", "gptq"),
}
"""Field of `QuantConfig` -> the words that it may be, where these hang on nothing else."""


@dataclass(frozen=True)
class QuantConfig:
    """Settings of one quantization; every field has one name in YAML, on the command line and here.

    Attributes:
        target: name of the runtime that the result is for (a file in configs/).
        mode: which kinds of node there are: "static" (integers with parameters from the profile), "dynamic"
            (parameters of activations computed at run time, weights in codes), "weight-only" (weights in
            codes, computing in float), "auto" (the first of these that the noise allows, for each node).
            Large constant tables that are only looked up are in codes in every mode.
        form: how the plan is written in ONNX: a name of `lowering.FORMS`.
        schema: how a range of activations becomes scale and zero point: a name of `schemes.SCHEMES`.
        calibrator: how a histogram of activations becomes a range: a name of `calibrators.CALIBRATORS`.
        activation_type: integer type of activations: int8, uint8, or with 16 bits int16, uint16.
        wide: tensors that have 16 bits where the others have 8: names of tensors or nodes, operator types or
            globs; a node stands for the activations that it reads and makes.
        propagation: whether the outputs of integer nodes "stay" in codes for the integer nodes behind them,
            or "return" to float after each product whose kernel can.
        weight_schema: the same for weights; asymmetric is per tensor only.
        weight_type: integer type of weights: int8, uint8, or int7, which is int8 with codes of 7 bits; for
            mode weight-only also int4 and uint4, for the operators that the target has them for (the others'
            weights have 8 bits).
        block: elements along the axis that a product sums over that share a scale, for mode weight-only; 0
            for the `granularity`.
        granularity: one scale for a whole weight ("tensor"), or one for each output channel ("channel").
        tables: whether Sigmoid, Tanh and other curves become look-up tables, and in which spelling:
            "target" (the one the target prefers for each), "runtime", "sigmoid", "portable", "off".
        resolution: whether inputs and output of operators like Concat, which have one code space, share their
            parameters: "global" (always: no conversions, wider ranges), "local" (never: a conversion on the
            edge), "auto" (where it costs no tensor more than 1 dB).
        min_sqnr: activations whose noise, reckoned from the histogram, would leave less signal than
            this (dB) stay float, or have 16 bits where the target computes in them; so do weights of dynamic
            and weight-only nodes. 0 keeps every one in integers, except in mode auto, which has a limit of
            its own (`hybrid.AUTO_SQNR`).
        min_output_sqnr: signal over noise (dB) that each output keeps, as `noise_flow` reckons it: the nodes
            that take most of it stay float, and then what is loud and cheap (`cheap_nodes`); 0 lets outputs
            drown.
        equalization: whether channels of activations are evened out by factors that weights take back:
            "auto", "free" (only where constants of the model can divide them, no Mul is added), "off".
        bias_correction: whether biases make up for the mean error of rounded weights: "auto", "off".
        rounding: of weights: each to the "nearest" code, or so that errors of neighbours cancel in "sums", or
            with samples so that they do least to the outputs of each product ("gptq").
        keep_float: node names, operator types or glob patterns of nodes that stay float.
    """

    target: str = "onnxruntime-x86"
    mode: str = "static"
    form: str = "qdq"
    schema: str = "asymmetric"
    calibrator: str = "mse"
    activation_type: str = "uint8"
    wide: tuple[str, ...] = ()
    propagation: str = "stay"
    weight_schema: str = "symmetric"
    weight_type: str = "int8"
    block: int = 0
    granularity: str = "channel"
    tables: str = "target"
    resolution: str = "auto"
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
