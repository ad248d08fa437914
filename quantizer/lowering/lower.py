"""Lowering: a prepared float model and its plan become a quantized ONNX model, in one of several forms.

A form only rewrites; every decision is in the plan. The module of `forms` that is called after a form has the
function `lower_model`; what else is known of the form is its entry of `targets.forms`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, nearest
from ..adjustments.bias_correction import apply_biases
from ..adjustments.rounded_weights import round_weights
from ..model.graph import check_scopes
from ..plan.plan import BIAS_CORRECTED, QuantPlan
from ..plan.provenance import provenance_of, write_provenance
from ..prepare.constant_folding import unfold_constants
from ..targets.forms import FORMS
from .borders import write_borders
from .caches import write_caches
from .padded_channels import padded_channels
from .sub_pixel import write_as_convolutions
from .written import Lowered, write_equalization


def lower(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the quantized model that `plan` describes, in the form that it asks for, with its provenance.

    Args:
        model: the prepared float model with the equalization of the plan applied: opset 13 or later,
            nodes named, constants as initialisers. It is left as it was.
        plan: the plan of this model, verified.

    Returns:
        A model with the same graph inputs and outputs: names, order, element types but those of a cache of
        keys and values that the plan has in int8, and of its borders. Its metadata say where it comes from
        (`Provenance`), and which channels are equalized.

    Raises:
        ConfigError: the form of the plan does not exist.
        PlanError: the plan does not fit the model, or the form cannot write a part of it.
    """
    lowered = _lowered(model, plan, whole=True)
    unfold_constants(lowered.model)
    write_borders(lowered.model, plan)
    write_provenance(lowered.model, provenance_of(plan))
    write_equalization(lowered.model, plan.adjustments.equalization)
    return lowered


def lower_part(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the quantized form of a part of a model without provenance, which is that of a whole.

    Args:
        model: nodes of the prepared model.
        plan: with entries for these nodes and perhaps more.

    Raises:
        ConfigError, PlanError: see `lower`.
    """
    return _lowered(model, plan, whole=False)


def _lowered(model: ir.Model, plan: QuantPlan, *, whole: bool) -> Lowered:
    form = plan.config.form
    if form not in FORMS:
        raise ConfigError(f"form '{form}': no such form; use {', '.join(FORMS)}.{nearest(form, FORMS)}")
    lower_model: Callable[[ir.Model, QuantPlan], Lowered]
    lower_model = import_module(f".forms.{form}", __package__).lower_model
    padded, padded_plan = padded_channels(compensated(model, plan), plan, whole=whole)
    rewritten = write_as_convolutions(padded, padded_plan)
    lowered = rewritten.in_original_names(lower_model(rewritten.model, rewritten.plan))
    write_caches(lowered.model, plan)
    check_scopes(lowered.model, f"form {form}")
    return lowered


def compensated(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the float model with the plan's corrected biases, and with weights rounded as it says.

    These weights are multiples of their scales, so that no form has to know how weights are rounded.
    """
    rounded = {name for name, entry in plan.nodes.items() if entry.kind in BIAS_CORRECTED}
    biases = {name: delta for name, delta in plan.adjustments.biases.items() if name in rounded}
    return apply_biases(round_weights(model, plan), biases)
