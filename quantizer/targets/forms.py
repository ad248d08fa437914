"""The forms: what `--help` says of each, and what planning has to know. Without numpy: help is fast.

The module of the same name in `lowering.forms` writes a form, with its function `lower_model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal


@dataclass(frozen=True)
class Form:
    """The operators and types of a model of one form. Stated for each: nothing follows from the name.

    Attributes:
        summary: what stands in its models, for `--help`.
        runtime_operators: whether operators of one runtime alone may: recurrent ones with dynamic parameters,
            products and embeddings that read packed weights. Other forms are for every reader of ONNX.
        kernels_on_codes: whether the runtime's convolutions read quantized values, for whose blocks
            activations may have padded channels.
        names_kernels: whether every quantized node is an operator on quantized values by name, so that
            without onnxruntime's own domain only those of ONNX itself are there.
        conversions: whether QuantizeLinear and DequantizeLinear may stand in it.
        dynamic_as_conv: whether a dynamic ConvTranspose is a Conv with an output channel for each phase.
    """

    summary: str
    _: KW_ONLY
    runtime_operators: bool
    kernels_on_codes: bool
    names_kernels: bool
    conversions: bool
    dynamic_as_conv: bool


FormName = Literal["qdq", "qoperator", "integer", "primitives", "regions"]
"""The keys of `FORMS`: no type checker takes them from the table."""

FORMS: Mapping[FormName, Form] = {
    "qdq": Form(
        "QuantizeLinear and DequantizeLinear around float operators",
        runtime_operators=True,
        kernels_on_codes=True,
        names_kernels=False,
        conversions=True,
        dynamic_as_conv=True,
    ),
    "qoperator": Form(
        "QLinear operators",
        runtime_operators=True,
        kernels_on_codes=True,
        names_kernels=True,
        conversions=True,
        dynamic_as_conv=True,
    ),
    "integer": Form(
        "ConvInteger and MatMulInteger",
        runtime_operators=False,
        kernels_on_codes=False,
        names_kernels=False,
        conversions=True,
        dynamic_as_conv=True,
    ),
    "primitives": Form(
        "plain arithmetic without quantization operators",
        runtime_operators=False,
        kernels_on_codes=False,
        names_kernels=False,
        conversions=False,
        dynamic_as_conv=False,
    ),
    "regions": Form(
        "an ONNX function for each quantized operator",
        runtime_operators=False,
        kernels_on_codes=True,
        names_kernels=False,
        conversions=True,
        dynamic_as_conv=True,
    ),
}
"""Adding a form is adding an entry here, and its module."""

RUNTIME_FORMS = tuple(name for name, form in FORMS.items() if form.runtime_operators)
"""Forms that may hold operators of one runtime alone."""
