"""Why a node stays float: a code with its figures, and the sentences for people, which are only here.

Adding a reason is adding a code and its sentence, which also tells of several nodes.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ...profiles.base.errors import PlanError
from ...profiles.base.findings import Code, Finding

Detail = str | int | float
"""A name or a figure of a reason."""

FloatReasons = Mapping[str, "FloatReason"]
"""Node name -> why it stays float."""


class ReasonCode(StrEnum):
    """Why a node stays float."""

    BY_REQUEST = "by-request"
    SHAPE_ARITHMETIC = "shape-arithmetic"
    UNSUPPORTED_OPERATOR = "unsupported-operator"
    NO_KERNEL = "no-kernel"
    UNSUPPORTED_USE = "unsupported-use"
    NO_PARAMETERS = "no-parameters"
    NO_FORM = "no-form"
    REFUSED_BY_TARGET = "refused-by-target"
    REFUSED_BY_RUNTIME = "refused-by-runtime"
    CLIPPED_FULL_RANGE = "clipped-full-range"
    ONLY_CONSTANTS = "only-constants"
    CONSTANT_TYPE = "constant-type"
    CONSTANT_VALUES = "constant-values"
    NOT_FLOAT32 = "not-float32"
    NO_PROFILE = "no-profile"
    NOT_OBSERVED = "not-observed"
    BODY_NOT_RUN = "body-not-run"
    BELOW_SQNR_LIMIT = "below-sqnr-limit"
    NOISE_BUDGET = "noise-budget"
    NOISE_LIMIT = "noise-limit"
    MEASURED_NOISE = "measured-noise"
    FITS_IN_FLOAT = "fits-in-float"
    BEFORE_STEP = "before-step"
    CHEAP_FIRST_LAYER = "cheap-first-layer"
    ROUNDED_OUTPUT = "rounded-output"
    CONVERSION_COST = "conversion-cost"
    MIXED_INPUTS = "mixed-inputs"
    NO_INT8_CONSUMER = "no-int8-consumer"
    FLOAT_PRODUCTS = "float-products"
    FLOAT_LIMIT = "float-limit"
    EQUALIZATION_MUL = "equalization-mul"
    INT8_CACHE = "int8-cache"
    DATA_FREE_MODE = "data-free-mode"
    NO_DYNAMIC_KERNEL = "no-dynamic-kernel"
    NO_DYNAMIC_FORM = "no-dynamic-form"
    SLOWER_DYNAMIC_KERNEL = "slower-dynamic-kernel"
    SMALL_RECURRENT = "small-recurrent"
    SLOWER_IN_INT8 = "slower-in-int8"
    PREDICTED_SLOWER = "predicted-slower"
    SAVES_TOO_LITTLE = "saves-too-little"
    MODEL_SAVES_TOO_LITTLE = "model-saves-too-little"
    FLOAT_IN_SOURCE = "float-in-source"
    NOT_IN_SOURCE = "not-in-source"
    NO_SOURCE_PARAMETERS = "no-source-parameters"
    PARAMETERS_NOT_TAKEN = "parameters-not-taken"
    BEYOND_FLOAT16 = "beyond-float16"
    BELOW_FLOAT16 = "below-float16"
    CONSTANT_BEYOND_FLOAT16 = "constant-beyond-float16"
    CONSTANT_BELOW_FLOAT16 = "constant-below-float16"
    LONG_SUM = "long-sum"
    LARGE_SUM = "large-sum"
    RANGE_NOT_KNOWN = "range-not-known"
    NO_FLOAT16 = "no-float16"
    LOST_IN_FLOAT16 = "lost-in-float16"
    UNKNOWN = "unknown"  # given in words alone: by hand, or in a plan of format 1


_SENTENCES: Mapping[ReasonCode, str] = {
    ReasonCode.BY_REQUEST: "kept float by request ('{pattern}')",
    ReasonCode.SHAPE_ARITHMETIC: "it computes shapes, indices or conditions, not float values",
    ReasonCode.UNSUPPORTED_OPERATOR: "operator {operator} is not supported for int8",
    ReasonCode.NO_KERNEL: "{target} has no int8 kernel for {operator}",
    ReasonCode.UNSUPPORTED_USE: "{text}",
    ReasonCode.NO_PARAMETERS: "its constants have no quantization parameters: {text}",
    ReasonCode.NO_FORM: "form {form} cannot write it: {text}",
    ReasonCode.REFUSED_BY_TARGET: "{target} would not run the quantized node: {text}",
    ReasonCode.REFUSED_BY_RUNTIME: "onnxruntime did not run the quantized node: {text}",
    ReasonCode.CLIPPED_FULL_RANGE: "the int8 kernel of {operator} needs output parameters for its "
    "whole range, and the Clip after it narrows them",
    ReasonCode.ONLY_CONSTANTS: "it reads no activation, only constants",
    ReasonCode.CONSTANT_TYPE: "constant '{tensor}' is {type}, not float32",
    ReasonCode.CONSTANT_VALUES: "constant '{tensor}' is empty or contains non-finite values",
    ReasonCode.NOT_FLOAT32: "tensor '{tensor}' is {type}; only float32 is quantized",
    ReasonCode.NO_PROFILE: "tensor '{tensor}' has no profile",
    ReasonCode.NOT_OBSERVED: "tensor '{tensor}' was not observed during calibration",
    ReasonCode.BODY_NOT_RUN: "it is in {part} of '{node}' ({operator}) that no sample took",
    ReasonCode.BELOW_SQNR_LIMIT: "quantizing '{tensor}' to {type} would leave it an SQNR of "
    "{sqnr:.1f} dB, below the limit of {limit:g} dB",
    ReasonCode.NOISE_BUDGET: "its quantization noise would leave output '{output}' an SQNR of {sqnr:.1f} dB, "
    "and that of all quantized nodes {total_sqnr:.1f} dB, below the limit of {limit:g} dB",
    ReasonCode.NOISE_LIMIT: "its quantization noise would leave '{tensor}', {what}, an SQNR of "
    "{sqnr:.1f} dB, and that of all quantized nodes {total_sqnr:.1f} dB, below the limit of {limit:g} dB",
    ReasonCode.MEASURED_NOISE: "in a run on {samples} calibration samples, its noise moves the outputs most "
    "for the time that it saves",
    ReasonCode.FITS_IN_FLOAT: "quantized weights were too noisy in a run, and {size} leave room for float",
    ReasonCode.BEFORE_STEP: "it leads to '{tensor}', the input of a step function ({operator}): small "
    "errors would become large ones",
    ReasonCode.CHEAP_FIRST_LAYER: "it adds {noise_share:.0f} % of the noise in output '{output}' "
    "(whose variance is {level:.1f} dB above all of it) and {cost_share:.1f} % of the "
    "multiplications: cheap in float",
    ReasonCode.ROUNDED_OUTPUT: "it makes output '{output}', which 8 bits would round; float costs "
    "{cost_share:.1f} % of the time",
    ReasonCode.CONVERSION_COST: "converting its float input (from {origin}) would cost more than int8 saves",
    ReasonCode.MIXED_INPUTS: "it reads int8 and float inputs, and nothing after it runs in int8",
    ReasonCode.NO_INT8_CONSUMER: "nothing after it runs in int8",
    ReasonCode.FLOAT_PRODUCTS: "{type} is for {operators}",
    ReasonCode.FLOAT_LIMIT: "{target} has no kernel of {type} for it: {text}",
    ReasonCode.INT8_CACHE: "it appends to a cache in int8, and does not compute",
    ReasonCode.EQUALIZATION_MUL: "added to balance channels; stays float by design",
    ReasonCode.DATA_FREE_MODE: "mode {mode}: only nodes with a large constant weight change",
    ReasonCode.NO_DYNAMIC_KERNEL: "{target} has no kernel of {operator} for dynamic quantization",
    ReasonCode.NO_DYNAMIC_FORM: "form {form} has no operator for a dynamic {operator}; {instead} has",
    ReasonCode.SLOWER_DYNAMIC_KERNEL: "slower in int8: the kernel of {target} for a dynamic {operator} "
    "takes {times:.2g} times as long as float; --set cost_model=off quantizes it anyway",
    ReasonCode.SMALL_RECURRENT: "its weights have {elements} elements; below {limit} float is as fast",
    ReasonCode.SLOWER_IN_INT8: "slower in int8: {int8_ms:.3g} ms against {float_ms:.3g} ms float",
    ReasonCode.PREDICTED_SLOWER: "predicted to be slower in int8: {int8_ms:.3g} ms, conversions included, "
    "against {float_ms:.3g} ms float",
    ReasonCode.SAVES_TOO_LITTLE: "predicted to save too little in int8: {int8_ms:.3g} ms, conversions "
    "included, against {float_ms:.3g} ms float",
    ReasonCode.MODEL_SAVES_TOO_LITTLE: "with int8 the whole model is predicted to take {ratio:.2f} of "
    "float's time, and to save less than 5 % or 5 us",
    ReasonCode.FLOAT_IN_SOURCE: "float in {source}",
    ReasonCode.NOT_IN_SOURCE: "{source} has no such node",
    ReasonCode.NO_SOURCE_PARAMETERS: "{source} has no parameters of '{tensor}'",
    ReasonCode.PARAMETERS_NOT_TAKEN: "{target} does not accept {text}",
    ReasonCode.BEYOND_FLOAT16: "float32: the recorded range of '{tensor}' reaches {largest}, too near "
    "float16's largest number, 65504",
    ReasonCode.BELOW_FLOAT16: "float32: '{tensor}' is never 0 and comes down to {smallest:.2g}; float16's "
    "numbers end at 6e-08",
    ReasonCode.CONSTANT_BEYOND_FLOAT16: "float32: constant '{tensor}' reaches {largest}, beyond "
    "float16's 65504",
    ReasonCode.CONSTANT_BELOW_FLOAT16: "float32: constant '{tensor}' is {smallest:.2g}; float16 would keep "
    "few of its bits or none",
    ReasonCode.LONG_SUM: "float32: {operator} adds {elements} elements; beyond 1024 float16 loses bits",
    ReasonCode.LARGE_SUM: "float32: {operator} adds up to {largest} on its way to '{tensor}', too near "
    "float16's largest number, 65504",
    ReasonCode.RANGE_NOT_KNOWN: "float32: {operator} may leave float16's range, and no range of '{tensor}' "
    "was recorded",
    ReasonCode.NO_FLOAT16: "float32: {operator} has no float16 in opset {opset}",
    ReasonCode.LOST_IN_FLOAT16: "float32: in a run on {samples} samples, '{tensor}' has {sqnr:.0f} dB in "
    "float16, and the inputs of its node {before:.0f} dB",
    ReasonCode.UNKNOWN: "{text}",
}

_NAMED = 3
"""Names that a summary tells before it says how many more there are."""


class UnfitNodesError(PlanError):
    """Nodes cannot be quantized as planned; a plan that leaves them float can be made."""

    def __init__(self, message: str, reasons: FloatReasons) -> None:
        super().__init__(message)
        self.reasons = reasons


@dataclass(frozen=True)
class FloatReason:
    """Why one node stays float; made by `because`."""

    code: ReasonCode
    details: Mapping[str, Detail] = field(default_factory=dict)  # what the sentence of the code has room for

    def __str__(self) -> str:
        return _SENTENCES[self.code].format(**self.details)


def because(code: ReasonCode, **details: Detail) -> FloatReason:
    """Return a reason with its names and figures, which are rounded to digits that people read."""
    if set(details) != set(detail_names(code)):
        raise ValueError(f"reason {code}: has {sorted(details)}, needs {sorted(detail_names(code))}")
    return FloatReason(code, {name: _rounded(details[name]) for name in detail_names(code)})


def _rounded(detail: Detail) -> Detail:
    """Return a figure with four digits, within the bounds of a file."""
    return float(f"{max(-MOST, min(detail, MOST)):.4g}") if isinstance(detail, float) else detail


MOST = 999.0
"""Stands for infinite dB."""


def detail_names(code: ReasonCode) -> tuple[str, ...]:
    """Return the names of the details of a code, in the order of its sentence."""
    return tuple(dict.fromkeys(name for _, name, _, _ in string.Formatter().parse(_SENTENCES[code]) if name))


def figure_names(code: ReasonCode) -> frozenset[str]:
    """Return which details of a code are numbers."""
    parts = string.Formatter().parse(_SENTENCES[code])
    return frozenset(name for _, name, form, _ in parts if name and (form or name in _WHOLE))


_WHOLE = ("elements", "limit", "opset", "samples")
"""Whole numbers, which need no format."""


def stays_float(node: str, reason: FloatReason) -> Finding:
    """Return the finding that a node stays float, with the code of its reason among its figures."""
    figures = {"reason": reason.code.value, **reason.details}
    return Finding(Code.STAYS_FLOAT, f"node '{node}' stays float: {reason}", node, figures)


def template(code: ReasonCode) -> str:
    """Return the sentence of a code with the names of its details in braces, for its page."""
    parts = string.Formatter().parse(_SENTENCES[code])
    return "".join(f"{literal}{f'{{{name}}}' if name else ''}" for literal, name, _, _ in parts)


def summary(reasons: Sequence[FloatReason]) -> str:
    """Return the sentence of several reasons of one code: names once each, figures with their range."""
    first = reasons[0]
    if all(reason == first for reason in reasons):
        return str(first)
    figures = figure_names(first.code)
    parts = []
    for literal, name, form, _ in string.Formatter().parse(_SENTENCES[first.code]):
        parts.append(literal)
        if name:
            values = [reason.details[name] for reason in reasons]
            parts.append(_range(values, form or "") if name in figures else _names(values))
    return "".join(parts)


def _range(values: Iterable[Detail], form: str) -> str:
    numbers = [value for value in values if not isinstance(value, str)]
    ends = list(dict.fromkeys(format(end, form) for end in (min(numbers), max(numbers))))
    return " to ".join(ends)


def _names(values: Iterable[Detail]) -> str:
    names = list(dict.fromkeys(map(str, values)))
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
