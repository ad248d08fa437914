"""Float16 for float nodes (setting `float_type`), with scales in float16."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...lowering.lower import raised
from ...lowering.lowered import LoweredModel, opset_raised
from ...numerics.affine import INT32, QuantParams
from ...numerics.schemas import bias_params
from ...plan.formats import Format, Part
from ...plan.plan import Kind, QuantPlan
from ...plan.provenance import FLOAT_TYPE, write_metadata
from ...planning.facts import PlanningFacts
from .float16_check import with_float32_nodes_on_samples
from .float16_nodes import with_float32_nodes
from .float16_scales import in_float16
from .float16_writer import emulated, has_conversions, narrow_floats
from .float_types import FLOAT16_OPSET

__all__ = ["FORMAT", "emulated", "with_float32_nodes_on_samples"]


def _with_float16_scales(facts: PlanningFacts, plan: QuantPlan) -> QuantPlan:
    """Return a plan whose scales are float16 numbers if that costs next to nothing (`in_float16`).

    Scales of int32 biases stay products, and are float32.
    """
    tensors = {name: _narrow(params) for name, params in plan.tensors.items()}
    nodes = {
        name: replace(entry, inputs={i: _narrow(p) for i, p in entry.inputs.items()})
        for name, entry in plan.nodes.items()
    }
    borders = {name: _narrow(params) for name, params in plan.borders.items()}
    narrowed = replace(plan, tensors=tensors, nodes=nodes, borders=borders)
    for node in facts.graph.nodes:
        rule, entry = node.rule, nodes[node.name]
        if entry.kind is not Kind.QUANTIZED or rule is None or rule.bias is None or rule.weight is None:
            continue
        name = node.input(rule.bias)
        bias = narrowed.params_read(node.name, rule.bias, name)
        x, w = (narrowed.params_read(node.name, i, node.input(i)) for i in (0, rule.weight.index))
        if bias is None or bias.qtype is not INT32 or x is None or w is None:
            continue
        product = bias_params(x, w)
        if rule.bias in entry.inputs:
            nodes[node.name] = replace(entry, inputs={**entry.inputs, rule.bias: product})
        else:
            tensors[name] = product
    return narrowed


def _narrow(params: QuantParams) -> QuantParams:
    is_stored_otherwise = params.qtype is INT32 or params.qtype.scales is not None
    return params if is_stored_otherwise else in_float16(params)


def _in_float16(lowered: LoweredModel, plan: QuantPlan) -> LoweredModel:
    """Return a written model with float16 instead of float32, except the plan's float32 nodes."""
    model, opset = lowered.model, lowered.model.opset_imports.get("", 0)
    if opset < FLOAT16_OPSET and has_conversions(model):
        model = raised(model, plan.config.form, FLOAT16_OPSET)
        raising = opset_raised(opset, FLOAT16_OPSET)
        lowered = replace(lowered, model=model, findings=(*lowered.findings, raising))
    write_metadata(model, {FLOAT_TYPE: plan.config.float_type})
    wide = {name for name, entry in plan.nodes.items() if entry.float32}
    narrow_floats(model, {written for name in wide for written in (name, *lowered.names.nodes.get(name, ()))})
    return lowered


FORMAT = Format(
    part=lambda facts, *_: Part(finish=partial(_with_float16_scales, facts)),
    adjusted=with_float32_nodes,
    write=_in_float16,
)
