"""`quantization_overrides.json` of Qualcomm's converters: AIMET's format 0.6, often with less in it.

Tensors may have a bit width alone, or a range without scale and offset, which then follow from it; offsets in
Qualcomm's own examples are positive; the dumps of its tools have no `dtype`. Scales for each channel must be
symmetric. Source: Qualcomm's documentation of `--quantization_overrides`. The converters read AIMET's 1.0
too, newer ones 2.0: see there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..numerics.affine import QuantParams
from .aimet_0_6 import is_legacy, legacy_params, legacy_text
from .encodings import read_with, top_of
from .values import ForeignParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..plan.plan import QuantPlan


def recognises(data: bytes) -> bool:
    """Tell whether a file is of this format: AIMET's without a version."""
    top = top_of(data)
    return top is not None and is_legacy(top) and "version" not in top


def read(data: bytes, where: str) -> ForeignParams:
    """Return the parameters of a file.

    Raises:
        ConfigError: the file is malformed.
    """
    return read_with(lambda top: legacy_params(top, "QNN (quantization overrides)"), data, where)


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's parameters, for the option `--quantization_overrides`."""
    tensors = {name: params for name, params in plan.tensors.items() if _is_allowed(params)}
    return legacy_text(replace(plan, tensors=tensors), model, {})


def _is_allowed(params: QuantParams) -> bool:
    """Tell whether a converter takes the parameters: of channels, symmetric ones alone."""
    return params.axis is None or not any(params.zero_point)
