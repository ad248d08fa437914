"""Which products compute with data and weights in floating-point numbers of few bits, and their parameters.

For the rest of a plan, a float8 product is a float node that rounds its inputs: it reads and returns float,
and its bias stays float. So it is chosen before integers spread, and everything about integers (look-up
tables, shared scales, kernels on integers) is independent of it.

With a floating-point `activation_type` all that the target can run so is computed so, and nothing in
integers. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ...model.editing import is_standard
from ...numerics.affine import TYPES, QuantParams, QuantType
from ...numerics.schemas import HEADROOM, SCHEMAS, choose_params
from ...operators.conditions import attribute_value
from ...operators.graph import Graph, Node
from ...operators.table import Constraint
from ...plan.formats import Format, Part
from ...plan.plan import Implementation, Kind, NodePlan, QuantPlan
from ...plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ...planning.facts import PlanningFacts
from ...planning.known import Known
from ...planning.selection import shape_arithmetic, unfit_tensor
from ...targets.target import ProductLimits, Target

InputParams = dict[int, QuantParams]
"""Index of an input -> its parameters."""


def float_products(facts: PlanningFacts, floats: FloatReasons, known: Known) -> Part:
    """Return the products of a model that compute with floating-point data and weights."""
    qtype = TYPES[facts.config.activation_type]
    chosen, others = dict[str, InputParams](), dict[str, FloatReason]()
    for node in facts.graph.nodes:
        reason = facts.requested_float.get(node.name) or floats.get(node.name) or _refusal(node, facts, qtype)
        if reason is None:
            chosen[node.name] = {
                index: _weight_params(node, facts, qtype)
                if facts.graph.is_constant(node.input(index))
                else _activation_params(node.input(index), facts, qtype)
                for index in _factors(node)
            }
        else:
            others[node.name] = reason
    return Part(chosen.keys(), others, partial(_with_float_products, facts, chosen))


def _with_float_products(
    facts: PlanningFacts, products: Mapping[str, InputParams], plan: QuantPlan
) -> QuantPlan:
    """Return a plan with float products.

    Tensors that are made in float and read in one floating-point type are added; other ones are converted for
    each product by itself.
    """
    nodes, tensors, graph = dict(plan.nodes), dict(plan.tensors), facts.graph
    nodes |= dict.fromkeys(products, NodePlan(Kind.QUANTIZED))
    for name, params in products.items():
        own: InputParams = {}
        for index, read in params.items():
            tensor = graph.node(name).input(index)
            maker = graph.producer(tensor)
            is_float = maker is None or not nodes[maker.name].kind.reads_quantized
            _write_clips_as_max(graph, facts.target, nodes, tensor)
            if not is_float or tensors.setdefault(tensor, read) != read:
                own[index] = read
        nodes[name] = replace(nodes[name], inputs=own)
    return replace(plan, nodes=nodes, tensors=tensors)


def _write_clips_as_max(graph: Graph, target: Target, nodes: dict[str, NodePlan], tensor: str) -> None:
    """Write the float clip of a tensor as Max, in place, if the target requires it.

    The runtime would remove a clip before the tensor is rounded to floating-point numbers of few bits.
    """
    maker = graph.producer(tensor)
    while maker is not None and nodes[maker.name].kind is Kind.FLOAT:
        if target.float_implementations.get(maker.op_type) == Implementation.MAX.value:
            nodes[maker.name] = replace(nodes[maker.name], implementation=Implementation.MAX)
        moves = maker.rule is not None and maker.rule.constraint is Constraint.SAME
        maker = graph.producer(maker.input(0)) if moves else None


# What cannot be --------------------------------------------------------------------------------------------


def _refusal(node: Node, facts: PlanningFacts, qtype: QuantType) -> FloatReason | None:
    """Return why a node cannot compute with floating-point data and weights, or None."""
    graph, target, rule = facts.graph, facts.target, node.rule
    if reason := shape_arithmetic(node, graph):
        return reason
    if rule is None or node.op_type not in target.float_products or rule.weight is None:
        operators = ", ".join(target.float_products)
        return because(ReasonCode.FLOAT_PRODUCTS, type=qtype.name, operators=operators)
    if refusal := rule.refusal(node, graph):
        return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
    if reason := unfit_tensor(node, facts):
        return reason
    text = _beyond_limits(node, graph, target.float_products[node.op_type])
    return because(ReasonCode.FLOAT_LIMIT, target=target.name, type=qtype.name, text=text) if text else None


def _beyond_limits(node: Node, graph: Graph, limits: ProductLimits) -> str:
    """Return a phrase on the limit that leaves a product without a kernel, or ""."""
    assert node.rule is not None
    assert node.rule.weight is not None
    weight = graph.shape(node.input(node.rule.weight.index))
    if weight is None or len(weight) < 2:
        return "the shape of its second factor is not known"
    if is_standard(node.ir_node, "Conv"):
        out, into, *kernel = weight
        if limits.kernel_elements and math.prod(size or 0 for size in kernel) > limits.kernel_elements:
            return f"a kernel of {'x'.join(map(str, kernel))} has more than {limits.kernel_elements} elements"
        sizes = {"input channels": into, "output channels": out}
    elif graph.is_constant(node.input(node.rule.weight.index)) or limits.head_sizes is None:
        across, columns = weight[-2:]
        if attribute_value(node, "transB", 0):
            across, columns = columns, across
        sizes = {"rows of its weight": across, "columns": columns}
    else:
        # Of attention: queries times keys sum over a head, probabilities times values make one.
        maker = graph.producer(node.input(0))
        sums = maker is None or maker.rule is None or not maker.rule.makes_probabilities
        size, (least, most) = weight[-2 if sums else -1], limits.head_sizes
        if size is not None and not least <= size <= most:
            return f"a head of {size} is not within {least} to {most}"
        return ""
    small = [f"{size} {what}" for what, size in sizes.items() if size is not None and size < limits.sizes]
    return f"{' and '.join(small)}, fewer than {limits.sizes}" if small else ""


# With which parameters -------------------------------------------------------------------------------------


def _factors(node: Node) -> tuple[int, ...]:
    """Return the indices of the two inputs that a product multiplies."""
    assert node.rule is not None
    assert node.rule.weight is not None
    return tuple(dict.fromkeys((*node.rule.activations(node), node.rule.weight.index)))


def _activation_params(name: str, facts: PlanningFacts, qtype: QuantType) -> QuantParams:
    """Return the parameters of an activation, of its largest magnitude or the bound of its operator."""
    tensor, producer = facts.profile[name], facts.graph.producer(name)
    largest = HEADROOM * max(-tensor.minimum, tensor.maximum)
    rule = None if producer is None else producer.rule
    if rule is not None and rule.bounds is not None:
        end = max(map(abs, rule.bounds))
        largest = end if rule.makes_probabilities else min(largest, end)
    return choose_params(-largest, largest, SCHEMAS[facts.config.schema], qtype)


def _weight_params(node: Node, facts: PlanningFacts, qtype: QuantType) -> QuantParams:
    """Return the parameters of a product's constant factor, for each output channel if it is the weight."""
    assert node.rule is not None
    assert node.rule.weight is not None
    layout, config = node.rule.weight, facts.config
    index = next(i for i in _factors(node) if facts.graph.is_constant(node.input(i)))
    constant = node.constant(index)
    assert constant is not None
    one_scale = config.granularity != "per-channel" or index != layout.index or layout.is_stack(constant.ndim)
    axis = None if one_scale else layout.axis(node, constant.ndim)
    return facts.on.channel_params(node.input(index), axis, SCHEMAS[config.weight_schema], qtype)


FORMAT = Format(part=float_products)
