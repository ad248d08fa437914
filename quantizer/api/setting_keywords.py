"""The settings as keywords, and names of tables, for type checkers: printed from both (CONTRIBUTING.md)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypedDict

SchemaName = Literal["asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"]
FormName = Literal["qdq", "qoperator", "integer", "primitives", "regions"]
MetricName = Literal[
    "top-1",
    "top-5",
    "f1",
    "map",
    "map50",
    "miou",
    "recall@1",
    "recall@5",
    "recall@10",
    "mrr",
    "cosine",
    "wer",
    "cer",
    "perplexity",
    "psnr",
    "ssim",
    "rmse",
    "mae",
    "r2",
]


class Settings(TypedDict, total=False):
    """Settings of a quantization, see `QuantConfig`; what is not given comes from the target."""

    mode: Literal["static", "dynamic", "weight-only", "auto"]
    form: Literal["qdq", "qoperator", "integer", "primitives", "regions"]
    schema: Literal["asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"]
    calibrator: Literal[
        "minmax",
        "percentile",
        "kl",
        "mse",
        "percentile:99",
        "percentile:99.9",
        "percentile:99.95",
        "percentile:99.99",
        "percentile:99.999",
    ]
    activation_type: Literal["uint8", "int8", "uint16", "int16"]
    keep_16bit: Collection[str]
    weight_schema: Literal["asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"]
    weight_type: Literal["int8", "uint8", "int7", "int4", "uint4"]
    block_size: int
    fit_size: str
    prompt: int
    answer: int
    kv_cache: Literal["float", "int8", "int8-per-channel"]
    io: Literal["float", "uint8", "int8"]
    granularity: Literal["per-tensor", "per-channel"]
    min_tensor_sqnr: float
    min_output_sqnr: float | None
    tolerance: float | None
    output_kind: Collection[str]
    equalization: Literal["auto", "free", "off"]
    bias_correction: Literal["auto", "off"]
    rounding: Literal["nearest", "gptq", "gptaq"]
    cost_model: Literal["auto", "off"]
    keep_float: Collection[str]
    fix_shapes: Collection[str]
