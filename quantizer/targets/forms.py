"""What planning knows of the forms: an entry for each, whose writer is its module of `lowering.forms`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from .config import FormName


@dataclass(frozen=True)
class Form:
    """What may stand in a model of one form. Stated for each entry: nothing of it follows from the name.

    Attributes:
        runtime_operators: whether operators of one runtime alone may: recurrent ones with dynamic parameters,
            products and embeddings that read packed weights. Other forms are for every reader of ONNX.
        kernels_on_codes: whether the runtime's convolutions read quantized values, for whose blocks
            activations may have padded channels.
        names_kernels: whether every quantized node is an operator on quantized values by name, so that
            without onnxruntime's own domain only those of ONNX itself are there.
        dynamic_as_conv: whether a dynamic ConvTranspose is a Conv with an output channel for each phase.
    """

    _: KW_ONLY
    runtime_operators: bool
    kernels_on_codes: bool
    names_kernels: bool
    dynamic_as_conv: bool


FORM_ENTRIES: Mapping[FormName, Form] = {
    "qdq": Form(runtime_operators=True, kernels_on_codes=True, names_kernels=False, dynamic_as_conv=True),
    "qoperator": Form(
        runtime_operators=True, kernels_on_codes=True, names_kernels=True, dynamic_as_conv=True
    ),
    "integer": Form(
        runtime_operators=False, kernels_on_codes=False, names_kernels=False, dynamic_as_conv=True
    ),
    "primitives": Form(
        runtime_operators=False, kernels_on_codes=False, names_kernels=False, dynamic_as_conv=False
    ),
    "regions": Form(
        runtime_operators=False, kernels_on_codes=True, names_kernels=False, dynamic_as_conv=True
    ),
}
"""Form -> its entry, in the order of `config.FORMS`."""

RUNTIME_FORMS = tuple(name for name, form in FORM_ENTRIES.items() if form.runtime_operators)
"""Forms that may hold operators of one runtime alone."""
