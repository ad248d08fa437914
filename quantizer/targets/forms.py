"""The forms: the words of each for `--help`, and facts for planning. Without numpy: help is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from ...profiles.base.extras import OptionalModule


@dataclass(frozen=True)
class Form:
    """The operators and types of a model of one form."""

    summary: str  # for `--help`
    writer: str  # module below `quantizer` with `lower_model`
    _: KW_ONLY
    runtime_operators: bool = False  # of one runtime alone: recurrent ones, products of packed weights
    kernels_on_codes: bool = False  # convolutions read quantized values, whose channels may be padded
    names_kernels: bool = False  # every quantized node is an operator on quantized values by name
    conversions: bool = True  # whether QuantizeLinear and DequantizeLinear may stand in it

    @property
    def module(self) -> OptionalModule:
        """The module that writes it."""
        return OptionalModule(f"form '{self.writer.rpartition('.')[2]}'", f"quantizer.{self.writer}")


FormName = Literal["qdq", "qoperator", "integer", "primitives", "regions"]
"""The keys of `FORMS`: no type checker takes them from the table."""

FORMS: Mapping[FormName, Form] = {
    "qdq": Form(
        "QuantizeLinear and DequantizeLinear around float operators",
        "lowering.forms.qdq",
        runtime_operators=True,
        kernels_on_codes=True,
    ),
    "qoperator": Form(
        "QLinear operators",
        "lowering.forms.qoperator",
        runtime_operators=True,
        kernels_on_codes=True,
        names_kernels=True,
    ),
    "integer": Form("ConvInteger and MatMulInteger", "plugins.other_forms.integer"),
    "primitives": Form(
        "plain arithmetic without quantization operators", "plugins.other_forms.primitives", conversions=False
    ),
    "regions": Form(
        "an ONNX function for each quantized operator", "plugins.other_forms.regions", kernels_on_codes=True
    ),
}
"""Adding a form is adding an entry here, and the module that it names."""

RUNTIME_FORMS = tuple(name for name, form in FORMS.items() if form.runtime_operators)
"""Forms that may contain operators of a single runtime."""
