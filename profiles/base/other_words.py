"""Words of other tools, and those that mean the same here: for answers to what is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

WORDS: Mapping[str, tuple[str, ...]] = {
    # calibrators of onnxruntime, TensorRT, NNCF, Quark
    "entropy": ("kl",),
    "kld": ("kl",),
    "kldivergence": ("kl",),
    "absmax": ("minmax",),
    "max": ("minmax",),
    "nonoverflow": ("minmax",),
    "minmse": ("mse",),
    "l2": ("mse",),
    # types, as numpy, onnxruntime, PyTorch and LLVM call them
    "quint8": ("uint8",),
    "qint8": ("int8",),
    "quint16": ("uint16",),
    "qint16": ("int16",),
    "quint4": ("uint4",),
    "qint4": ("int4",),
    "u8": ("uint8",),
    "s8": ("int8",),
    "i8": ("int8",),
    "u16": ("uint16",),
    "s16": ("int16",),
    "i16": ("int16",),
    "u4": ("uint4",),
    "s4": ("int4",),
    "i4": ("int4",),
    # schemas
    "affine": ("asymmetric",),
    "sym": ("symmetric",),
    "asym": ("asymmetric",),
    "powerof2": ("symmetric-power2",),
    "poweroftwo": ("symmetric-power2",),
    "pow2": ("symmetric-power2",),
    "po2": ("symmetric-power2",),
    # precisions
    "static": ("int8",),
    "w8a8": ("int8",),
    "ptq": ("int8", "quantize"),
    "dynamic": ("int8-dynamic",),
    "w8a16": ("weight-only-8",),
    "int4": ("weight-only-4",),
    "nf4": ("weight-only-4",),
    "w4a16": ("weight-only-4",),
    "w4": ("weight-only-4",),
    # rounding
    "adaround": ("gptq",),
    "rtn": ("nearest",),
    "round": ("nearest",),
    # targets
    "ort": ("onnxruntime-x86",),
    "onnxruntime": ("onnxruntime-x86",),
    "x86": ("onnxruntime-x86",),
    "cpu": ("onnxruntime-x86",),
    "avx2": ("onnxruntime-x86-avx2",),
    "avx512": ("onnxruntime-x86",),
    "vnni": ("onnxruntime-x86",),
    "arm": ("onnxruntime-arm",),
    "arm64": ("onnxruntime-arm",),
    "aarch64": ("onnxruntime-arm",),
    "trt": ("tensorrt",),
    "gpu": ("tensorrt",),
    "cuda": ("tensorrt",),
    "nvidia": ("tensorrt",),
    "ov": ("openvino",),
    "intel": ("openvino",),
    "snpe": ("qnn",),
    "htp": ("qnn",),
    "hexagon": ("qnn",),
    "qualcomm": ("qnn",),
    "rocm": ("migraphx",),
    "amd": ("migraphx",),
    # forms
    "tensororiented": ("qdq",),
    "operatororiented": ("qoperator",),
    # commands
    "profile": ("dump-profile",),
    "calibrate": ("dump-profile",),
    "calibration": ("dump-profile",),
    "compress": ("quantize",),
    "convert": ("quantize",),
    "benchmark": ("evaluate",),
    "validate": ("evaluate",),
    "compare": ("compare-layers",),
    "debug": ("compare-layers",),
    "drift": ("diff",),
    # metrics
    "map": ("map50",),
    "map5095": ("map",),
    "acc": ("top-1",),
    "accuracy": ("top-1",),
    "ppl": ("perplexity",),
}
"""By the word of another tool, in lower case and without punctuation. The first that is known where a word is
asked for is meant."""

OPTIONS: Mapping[str, tuple[str, str | None]] = {
    "per_channel": ("granularity", "per-channel"),
    "per_tensor": ("granularity", "per-tensor"),
    "reduce_range": ("weight_type", "int7"),
    "symmetric": ("schema", "symmetric"),
    "asymmetric": ("schema", "asymmetric"),
    "activation_symmetric": ("schema", "symmetric"),
    "weight_symmetric": ("weight_schema", "symmetric"),
    "smooth_quant": ("equalization", "auto"),
    "smoothquant": ("equalization", "auto"),
    "cle": ("equalization", "auto"),
    "fast_bias_correction": ("bias_correction", "auto"),
    "gptq": ("rounding", "gptq"),
    "adaround": ("rounding", "gptq"),
    "dynamic": ("as", "int8-dynamic"),
    "weight_only": ("as", "weight-only-8"),
    "int8": ("as", "int8"),
    "int4": ("as", "weight-only-4"),
    "bits": ("as", "weight-only-8 or weight-only-4"),
    "precision": ("as", None),
    "quantize_mode": ("as", None),
    "exclude": ("keep_float", None),
    "nodes_to_exclude": ("keep_float", None),
    "op_types_to_exclude": ("keep_float", None),
    "ignored_scope": ("keep_float", None),
    "exclude_nodes": ("keep_float", None),
    "format": ("form", None),
    "quant_format": ("form", None),
    "calibrate_method": ("calibrator", None),
    "calibration_method": ("calibrator", None),
    "method": ("calibrator", None),
    "calibration_data": ("data", None),
    "calibration_dataset": ("data", None),
    "calibration_data_reader": ("data", None),
    "calibration_data_path": ("data", None),
    "data_reader": ("data", None),
    "dataset": ("data", None),
    "calib": ("data", None),
    "subset_size": ("limit", None),
    "num_samples": ("limit", None),
    "activation_dtype": ("activation_type", None),
    "weight_dtype": ("weight_type", None),
    "group_size": ("block_size", None),
    "backend": ("target", None),
    "device": ("target", None),
    "target_device": ("target", None),
    "recipe": ("preprocess", None),
    "preset": ("preprocess", None),
    "max_accuracy_drop": ("max_drop", None),
    "out": ("output", None),
}
"""By the option or keyword of another tool: that of qprof, and its value; None for the user's."""


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def same_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is meant: written otherwise, or that of another tool; None for none."""
    names, plain = list(known), _plain(word)
    written = next((name for name in names if plain and _plain(name) == plain), None)
    return written or next((name for name in WORDS.get(plain, ()) if name in names), None)
