"""A quantized model without its quantization: the float model inside, and what a tool chose for it.

Conversions are taken out one by one, in graph order. What they said is kept: in which parameters each tensor
is stored, in which parameters each node reads each of its inputs, and the integers of each constant. What is
left is a float model with the dequantized weights, which can be prepared as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from ....profiles.base.errors import QprofError
from ...model.editing import free_name, sole_user, value_names
from ...model.graph import constant_of, name_of
from ...numerics.affine import QuantParams, quantize
from ...operators.table import CONVERSIONS, DEQUANTIZE, QUANTIZE, Constraint, rule_of
from ...prepare.passes.cleanup import remove_dead
from ...prepare.passes.constant_folding import lift_constants
from ...prepare.passes.float16 import widen
from ...prepare.passes.inlining import inline_functions, unlist_initializers
from ...prepare.passes.names import name_nodes, name_values
from ...prepare.passes.noops import drop_noops
from ...prepare.passes.shapes import infer_shapes
from .conversions import params_of
from .expansions import expand_operators
from .integer_products import folded_constant, integer_product, packed_product, packed_table
from .walk import MOVES, Form, Read, StoredConstant, Walk, digest_of


@dataclass(frozen=True)
class DequantizedModel:
    """A float model, and what its quantized form said.

    Attributes:
        model: the float model: weights have the float values of their integers.
        stored: activation -> the parameters that it is quantized in, in graph order; several where readers
            want several.
        reads: (node, tensor) -> the parameters in which the node reads it; None for dynamic ones. A node that
            reads the float tensor has no entry.
        mixed: activations that are quantized for some readers, while others, or an output of the model, have
            the float tensor.
        constants: digest of the float values of a constant (`digest_of`) -> how the source stores it.
        names: name of a tensor of the source -> name of the tensor here that it is a form of.
        implementations: node -> implementation, where the source has an operator of a runtime's own.
        operators: how many nodes of the source were on quantized tensors, by operator.
        unread: operator -> how many conversions of the source could not be read.
    """

    model: ir.Model
    stored: Mapping[str, tuple[QuantParams, ...]]
    reads: Mapping[tuple[str, str], Read]
    mixed: frozenset[str]
    constants: Mapping[str, StoredConstant]
    names: Mapping[str, str]
    implementations: Mapping[str, str]
    operators: int
    unread: Mapping[str, int]


STEPS: tuple[Callable[[ir.Model], object], ...] = (
    *(unlist_initializers, name_nodes, inline_functions, name_nodes, name_values),
    *(lift_constants, infer_shapes, widen, drop_noops),
)
"""What is done before conversions are taken out, as in `prepare`."""


def dequantized(model: ir.Model) -> DequantizedModel:
    """Return the float model inside a quantized one, and what the quantized one says.

    Args:
        model: as it was read; it stays as it is.
    """
    work = model.clone()
    for step in STEPS:
        step(work)
    taken = value_names(work)
    operators = expand_operators(work, taken)
    walk = Walk(work, taken)
    for node in list(work.graph.all_nodes()):
        _visit(node, walk)
    raw = _take_outputs(walk)
    result = _result(walk, operators, raw)
    remove_dead(work)
    return result


def _visit(node: ir.Node, walk: Walk) -> None:
    if node.op_type == QUANTIZE:
        _quantize(node, walk)
    elif node.op_type == DEQUANTIZE:
        _dequantize(node, walk)
    elif node.op_type == "DynamicQuantizeLinear" and node.inputs[0] is not None:
        walk.integers[node.outputs[0]] = Form(walk.source(node.inputs[0]), None)
        walk.scales.add(node.outputs[1])
    elif node.op_type in ("MatMulInteger", "ConvInteger"):
        integer_product(node, walk)
    elif node.op_type == "Cast" and folded_constant(node, walk):
        pass
    elif node.op_type == "MatMulNBits":
        packed_product(node, walk)
    elif node.op_type == "GatherBlockQuantized":
        packed_table(node, walk)
    elif any(value in walk.integers for value in node.inputs if value is not None):
        _on_integers(node, walk)
    else:
        walk.read_floats(node)


def _quantize(node: ir.Node, walk: Walk) -> None:
    params, given = params_of(node), node.inputs[0]
    if given is None or params is None:
        walk.unread[node.op_type] += 1
        return
    if node in walk.tanhs:
        params = replace(params, scale=(1.0 / 128.0,), zero_point=(params.qtype.low + 128,))
    value = walk.source(given)
    constant = constant_of(value)
    if constant is not None:
        try:
            walk.constants.setdefault(digest_of(constant), StoredConstant(quantize(constant, params), params))
        except QprofError:
            walk.unread[node.op_type] += 1
            return
    else:
        walk.store(value, params)
    walk.integers[node.outputs[0]] = Form(value, params)
    walk.names.append((name_of(node.outputs[0]), value))


def _dequantize(node: ir.Node, walk: Walk) -> None:
    params, given, output = params_of(node), node.inputs[0], node.outputs[0]
    if given is None or params is None:
        walk.unread[node.op_type] += 1
        return
    integers = constant_of(given)
    if integers is not None:
        try:
            value = walk.constant(name_of(output), integers, params)
        except QprofError:
            walk.unread[node.op_type] += 1
            return
        walk.floats[output] = Form(value, params)
        return
    form = walk.integers.get(given)
    if form is None and given.is_graph_input():
        given.type, form = ir.TensorType(ir.DataType.FLOAT), Form(given, params)
        walk.store(given, params)
        walk.integers[given] = form
    form = form or _looked_up(given, params, walk)
    if form is not None and _is_tanh(node, form, params, walk):
        walk.floats[output] = form
        return
    if form is None or form.params is None or _differ(form.params, params):
        walk.unread[node.op_type] += 1
        return
    walk.floats[output] = form
    walk.names.append((name_of(output), form.value))


def _looked_up(given: ir.Value, params: QuantParams, walk: Walk) -> Form | None:
    """Return what an operator that moves values makes of a constant of integers: Gather of a table."""
    maker = given.producer()
    rule = None if maker is None else rule_of(maker)
    integers = None if maker is None or not maker.inputs else constant_of(maker.inputs[0])
    if maker is None or rule is None or integers is None or params.axis is not None:
        return None
    if rule.constraint is not Constraint.SAME or integers.dtype != params.qtype.numpy_dtype:
        return None
    value = walk.constant(name_of(maker.inputs[0]), integers, params)
    maker.replace_input_with(0, value)
    given.type, form = ir.TensorType(ir.DataType.FLOAT), Form(given, params)
    walk.reads.append((maker, value, params))
    walk.store(given, params)
    walk.integers[given] = form
    return form


def _is_tanh(node: ir.Node, form: Form, params: QuantParams, walk: Walk) -> bool:
    """Whether a tensor is read with twice its scale for tanh(x) = 2 sigmoid(2x) - 1, and make it a Tanh.

    The integers of the sigmoid in 256ths are those of tanh in 128ths, 128 less.
    """
    own, sigmoid = form.params, sole_user(node.outputs[0])
    if own is None or sigmoid is None or sigmoid.op_type != "Sigmoid":
        return False
    after = sole_user(sigmoid.outputs[0])
    result = params_of(after) if after is not None and after.op_type == QUANTIZE else None
    doubled = own.axis is None and params == replace(own, scale=(2.0 * own.scale[0],))
    if after is None or result is None or not doubled:
        return False
    if result.scale != (1.0 / 256.0,) or result.qtype.bits != 8 or result.zero_point[0] != result.qtype.low:
        return False
    sigmoid.op_type = "Tanh"
    walk.tanhs.add(after)
    return True


def _differ(own: QuantParams, other: QuantParams) -> bool:
    return (own.scale, own.zero_point, own.axis) != (other.scale, other.zero_point, other.axis)


def _on_integers(node: ir.Node, walk: Walk) -> None:
    """Let an operator on integers be one on float values; its result has the parameters of its input."""
    forms = [walk.integers[v] for v in node.inputs if v is not None and v in walk.integers]
    rule, form = rule_of(node), forms[0]
    if node.op_type in ("Shape", "Size"):
        node.replace_input_with(0, form.value)
        return
    same = all(other.params == form.params for other in forms)
    if rule is None or rule.constraint not in MOVES or form.params is None or not same:
        walk.unread[node.op_type] += 1
        walk.read_floats(node)
        return
    stored_as = ir.DataType[form.params.qtype.storage.upper()]
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        constant = constant_of(value)
        if value in walk.integers:
            walk.reads.append((node, walk.integers[value].value, form.params))
            node.replace_input_with(index, walk.integers[value].value)
        elif constant is not None and value.dtype == stored_as:
            node.replace_input_with(index, walk.constant(name_of(value), constant, form.params))
    for output in node.outputs:
        if output.dtype in (None, stored_as, ir.DataType.FLOAT):
            output.type = ir.TensorType(ir.DataType.FLOAT)
            walk.integers[output] = Form(output, form.params)
            walk.store(output, form.params)


def _take_outputs(walk: Walk) -> frozenset[ir.Value]:
    """Let the outputs of the model be the float tensors themselves, under their names.

    Returns:
        Those that are quantized for other readers, but float as outputs.
    """
    graph = walk.model.graph
    raw = frozenset(value for value in graph.outputs if value in walk.stored)
    for index, value in enumerate(graph.outputs):
        form = walk.floats.get(value)
        if form is None:
            continue
        source = form.value
        if source.is_graph_input() or source.is_initializer() or source.is_graph_output():
            continue
        name = value.name
        value.name = free_name(f"{name}_quantized", walk.taken)
        walk.names.append((name_of(source), source))
        graph.outputs[index] = source
        source.name = name
        source.shape = value.shape if source.shape is None else source.shape
        source.type = source.type or value.type
    return raw


def _result(walk: Walk, operators: int, raw: frozenset[ir.Value]) -> DequantizedModel:
    quantized = Counter(value for _, value, _ in walk.reads)
    mixed = {value for value in walk.stored if _uses(value) > quantized[value]}
    return DequantizedModel(
        model=walk.model,
        stored={name_of(value): tuple(params) for value, params in walk.stored.items()},
        reads={(name_of(node), name_of(value)): params for node, value, params in walk.reads},
        mixed=frozenset(name_of(value) for value in raw | mixed),
        constants=walk.constants,
        names={alias: name_of(value) for alias, value in walk.names},
        implementations={name_of(node): text for node, text in walk.implementations.items()},
        operators=operators,
        unread=dict(walk.unread),
    )


def _uses(value: ir.Value) -> int:
    """Return how many inputs read a tensor; asking for its shape is no reading."""
    return sum(use.node.op_type not in (*CONVERSIONS, "Shape", "Size") for use in value.uses())
