"""The rules that every plan obeys: small predicates in `CHECKS`, each with the sentence of its breach.

They are checked after planning, and after loading a plan, because it may have been edited. `QuantParams`
itself checks scales and zero points. Forms check their own limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import ModelId, describe
from ..numerics.affine import QuantParams, dequantize, quantize
from ..operators.graph import Graph, Node
from ..operators.table import Rule
from .plan import RUNTIME_WEIGHTS, Kind, NodePlan, QuantPlan

Check = Callable[[QuantPlan, Graph], Iterator[str]]
"""Yields one sentence for each breach."""


def verify_plan(plan: QuantPlan, graph: Graph, model: ModelId, where: str = "plan") -> None:
    """Check a plan by the rules below against the prepared model with its adjustments; raise PlanError."""
    check_identity(plan, model, where)
    breaches = [sentence for check in CHECKS for sentence in check(plan, graph)]
    if breaches:
        more = f"; and {len(breaches) - 3} more" if len(breaches) > 3 else ""
        raise PlanError(
            f"{where}: {' and '.join(breaches[:3])}{more}; "
            "correct the plan, or write it again with 'qprof quantize --save-plan'"
        )


def check_identity(plan: QuantPlan, model: ModelId, where: str = "plan") -> None:
    """Refuse a plan that was made for another model: raise PlanError with both models."""
    if plan.model.structure != model.structure or plan.model.weights != model.weights:
        raise PlanError(
            f"{where}: made for another model: it belongs to {describe(plan.model)}, "
            f"this is {describe(model)}; "
            "make a new plan from a profile of this model"
        )


def _entries(plan: QuantPlan, graph: Graph, *kinds: Kind) -> Iterator[tuple[Node, Rule, NodePlan]]:
    """Yield the nodes of these kinds that have a rule, with the rule and the entry of the plan."""
    for node in graph.nodes:
        entry, rule = plan.nodes.get(node.name), node.rule
        if entry is not None and rule is not None and entry.kind in kinds:
            yield node, rule, entry


def _weights(plan: QuantPlan, graph: Graph, kind: Kind) -> Iterator[tuple[str, str, QuantParams | None]]:
    """Yield node, constant and its parameters, for each input that nodes of a kind may have quantized."""
    for node, rule, _ in _entries(plan, graph, kind):
        for weight in rule.constants:
            name = node.input(weight.index)
            if graph.is_constant(name):
                yield node.name, name, plan.params_read(node.name, weight.index, name)


def _nodes_are_those_of_the_model(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    names = dict.fromkeys(node.name for node in graph.nodes)
    for name in plan.nodes:
        if name not in names:
            yield f"node '{name}': the model has no such node"
    for name in names:
        if name not in plan.nodes:
            yield f"node '{name}': the plan has no entry for it"


def _tensors_are_those_of_the_model(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    for name in plan.tensors:
        if name not in graph.values or not graph.is_float(name):
            yield f"tensor '{name}': the model has no float tensor of this name"


def _quantized_nodes_read_quantized_values(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        entry, rule = plan.nodes.get(node.name), node.rule
        if entry is None or not entry.kind.reads_quantized:
            continue
        if rule is None:
            yield f"node '{node.name}': operator {node.op_type} is not supported for int8: it must be float"
            continue
        for index in rule.activations(node):
            name = node.input(index)
            if name in plan.tensors or index in entry.inputs:
                continue
            if entry.kind is not Kind.QUANTIZED and graph.is_constant(name):
                continue
            maker = graph.producer(name)
            if entry.kind is Kind.LOOKUP_TABLE and maker is not None and plan.is_part(maker.name, name):
                continue
            yield f"node '{node.name}': it is {entry.kind}, but its input '{name}' has no parameters"


def _tables_are_whole(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    """A table without parameters of its output is a part of the tables that read it."""
    tables = {name for name, entry in plan.nodes.items() if entry.kind is Kind.LOOKUP_TABLE}
    for node in graph.nodes:
        name = node.output if node.outputs else ""
        if not plan.is_part(node.name, name):
            continue
        readers = [reader.name for reader, _ in graph.consumers(name)]
        others = [reader for reader in readers if reader not in tables]
        if not readers or graph.is_result(name):
            yield f"node '{node.name}': it is table, but its output '{name}' has no parameters"
        elif others:
            yield (
                f"node '{node.name}': it is part of a table, but '{others[0]}' reads its output "
                f"'{name}': both are table, or neither"
            )


def _passed_values_keep_their_parameters(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        entry = plan.nodes.get(node.name)
        if entry is None or entry.kind is not Kind.PASS_THROUGH:
            continue
        source = plan.tensors.get(node.input(0))
        for output in node.results:
            if plan.tensors.get(output) != source:
                yield (
                    f"node '{node.name}': it passes values through, so '{output}' must have the parameters "
                    "of its input"
                )


def _filled_values_are_in_range(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    """A value that an operator puts beside those it passes through has a quantized value too."""
    for node, rule, _ in _entries(plan, graph, Kind.PASS_THROUGH):
        value = None if rule.fill is None else rule.fill.value(node)
        params = plan.tensors.get(node.output)
        if value is None or params is None:
            continue
        nearest = float(dequantize(quantize(np.float32(value), params), params))
        if abs(nearest - value) > 0.5001 * params.tensor_scale:
            yield f"node '{node.name}': it fills with {value:g}, which its parameters saturate to {nearest:g}"


def _bias_scales_are_products(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    for node, rule, _ in _entries(plan, graph, Kind.QUANTIZED):
        if rule.bias is None or rule.weight is None:
            continue
        indices = (0, rule.weight.index, rule.bias)
        x, w, b = (plan.params_read(node.name, index, node.input(index)) for index in indices)
        if x is None or w is None or b is None:
            continue
        if x.scale.size != 1 or not np.array_equal(b.scale, x.scale * w.scale) or b.zero_point.any():
            yield f"node '{node.name}': the bias must have scale(input) * scale(weight) and zero_point 0"


def _hybrid_nodes_have_a_quantized_weight(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    for kind in (Kind.DYNAMIC, Kind.WEIGHT_ONLY):
        stored = {node for node, _, params in _weights(plan, graph, kind) if params is not None}
        for name, entry in plan.nodes.items():
            if entry.kind is kind and name not in stored:
                yield f"node '{name}': it is {kind}, but has no constant weight with parameters"


def _blocks_divide_their_axis(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    for name, params in plan.tensors.items():
        shape = graph.shape(name) if name in graph.values else None
        if params.block_size is None or params.axis is None:
            continue
        readers = [plan.nodes.get(node.name) for node, _ in graph.consumers(name)]
        if not graph.is_constant(name):
            yield f"tensor '{name}': blocks are for constants"
        elif shape is None or params.axis >= len(shape):
            yield f"tensor '{name}': it has no axis {params.axis}"
        # The runtime's own operators may have a last block that is not full.
        elif (shape[params.axis] or 0) % params.block_size and not all(
            entry is not None and entry.implementation in RUNTIME_WEIGHTS for entry in readers
        ):
            yield f"tensor '{name}': block {params.block_size} does not divide axis {params.axis}"


def _borders_are_inputs_and_outputs(plan: QuantPlan, graph: Graph) -> Iterator[str]:
    for name, params in plan.borders.items():
        if name not in (*graph.inputs, *graph.outputs):
            yield f"border '{name}': the model has no such input or output"
        elif graph.dtype(name) is not ir.DataType.FLOAT:
            yield f"border '{name}': the input or output is not float32"
        if params.qtype.name not in ("uint8", "int8"):
            yield f"border '{name}': is uint8 or int8"
        shape = graph.shape(name) if name in graph.values else None
        if params.axis is not None and (
            params.zero_point.any() or shape is None or shape[params.axis] not in (None, params.scale.size)
        ):
            yield f"border '{name}': has a scale for each channel of axis {params.axis}, and zero_point 0"


CHECKS: tuple[Check, ...] = (
    _nodes_are_those_of_the_model,
    _tensors_are_those_of_the_model,
    _quantized_nodes_read_quantized_values,
    _tables_are_whole,
    _passed_values_keep_their_parameters,
    _filled_values_are_in_range,
    _bias_scales_are_products,
    _hybrid_nodes_have_a_quantized_weight,
    _blocks_divide_their_axis,
    _borders_are_inputs_and_outputs,
)
"""Every predicate, in the order in which breaches are reported."""
