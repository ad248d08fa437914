"""Lowering: a prepared float model and its plan become a quantized ONNX model, in one of several forms.

A form only rewrites; every decision is in the plan. Adding a form is adding a file with one function and an
entry to `FORMS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...profiles.base.errors import ConfigError, nearest
from ..targets.config import FORMS
from .written import Lowered

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..plan.plan import QuantPlan


def _form(name: str) -> Callable[[ir.Model, QuantPlan], Lowered]:
    """Return the form in the module `name`, which is imported when the form is first asked for."""

    def run(model: ir.Model, plan: QuantPlan) -> Lowered:
        module = importlib.import_module(f".forms.{name}", __package__)
        lowered = getattr(module, f"lower_{name}")(model, plan)
        assert isinstance(lowered, Lowered)
        return lowered

    return run


def lower(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the quantized model that `plan` describes, in the form that it asks for.

    Args:
        model: the prepared float model with the equalization of the plan applied: opset 13 or later,
            nodes named, constants as initialisers. It is left as it was.
        plan: the plan of this model, verified.

    Returns:
        A model with the same graph inputs and outputs: names, order, element types.

    Raises:
        ConfigError: the form of the plan does not exist.
        PlanError: the plan does not fit the model, or the form cannot write a part of it.
    """
    form = plan.config.form
    if form not in FORMS:
        raise ConfigError(f"form '{form}': no such form; use {', '.join(FORMS)}.{nearest(form, FORMS)}")
    return _form(form)(compensated(model, plan), plan)


def compensated(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the float model with the plan's corrected biases, and with weights rounded as it says.

    These weights are multiples of their scales, so that no form has to know how weights are rounded.
    """
    from ..equalization.apply import apply_biases
    from ..plan.plan import Kind
    from ..rounding.quantized_weights import round_weights

    integer = {name for name, entry in plan.nodes.items() if entry.kind is Kind.QUANTIZED}
    biases = {name: delta for name, delta in plan.adjustments.biases.items() if name in integer}
    return apply_biases(round_weights(model, plan), biases)
