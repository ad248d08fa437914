"""Node writers that several forms share.

Each writer changes the graph through the task's emitter, inserts nodes before the node, and returns whether
the node itself is no longer needed.

In form qdq, operators on integers, other than the two conversions, use unsigned integers
(`unsigned_equivalent`; conversions between the two types change no value). With int8, onnxruntime on x86-64
would leave neighbouring convolutions in float, and OpenVINO has no convolution for it. Both support uint8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.instrumentation.subgraphs import graph_attributes
from ..model.graph import is_constant, name_of, subgraphs
from ..numerics.affine import UINT8, QuantParams, unsigned_equivalent
from ..numerics.lookup_tables import build_table
from ..operators.functions import PointwiseChain, function_of_chain, fused_function, nodes_between
from ..operators.table import DEQUANTIZE, MICROSOFT
from ..plan.formats import PACKED
from ..plan.plan import Implementation, Kind, NodePlan, QuantPlan
from .emitter import Emitter, become, constant_shape, integer_type, new_value

NO_TABLE = "a table needs parameters of input and output; add them, or make the node float"


@dataclass(frozen=True)
class Task:
    """One node to write."""

    node: ir.Node  # the node, which has an entry in the plan
    plan: QuantPlan
    emitter: Emitter  # of the graph that the node is in
    opset: int  # of the default domain

    @property
    def entry(self) -> NodePlan:
        """The plan's entry of the node."""
        return self.plan.nodes[name_of(self.node)]

    def params(self, index: int) -> QuantParams | None:
        """Return the parameters of an input for the node, None for float."""
        value = self.node.inputs[index]
        if value is None:
            return None
        return self.plan.params_read(name_of(self.node), index, self.emitter.name(value))

    def result(self, index: int = 0) -> QuantParams | None:
        """Return the parameters of an output, None for float."""
        return self.plan.tensors.get(self.emitter.name(self.node.outputs[index]))

    def error(self, what: str) -> PlanError:
        """Return an error that names the node."""
        return PlanError(f"node '{self.node.name}' ({self.node.op_type}): {what}")


Writer = Callable[[Task], bool]
"""Writes one node, and returns whether the node itself is no longer needed."""
Writers = Mapping[tuple[Kind, str], Writer]
"""A form's writers, by kind and implementation."""


def between_conversions(task: Task, *, folded: bool = False) -> bool:
    """Write DequantizeLinear -> operator -> QuantizeLinear; `folded` computes constants at loading."""
    node, emitter = task.node, task.emitter
    if node.op_type == "AveragePool":  # dilations of 1, which QLinearAveragePool of onnxruntime does not know
        node.attributes.pop("dilations", None)
    data = data_inputs(task)
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        params = task.params(index) if index in data else None
        if params is None:
            form = emitter.floating(value, node)
        elif folded and constant_shape(value) is not None:
            form = emitter.folded(value, params, node)
        else:
            form = emitter.dequantized(value, params, node)
        node.replace_input_with(index, form)
    if folded and task.result() is not None:
        hide_from_fusion(node, emitter)
    for index, value in reversed(list(enumerate(node.outputs))):
        params = task.result(index)
        if params is not None:
            emitter.quantize_output(value, params, node)
    return False


def tanh_through_sigmoid(task: Task) -> bool:
    """Write tanh(x) = 2 sigmoid(2x) - 1, if the runtime has a table of Sigmoid only."""
    node, emitter = task.node, task.emitter
    if node.op_type == "Sigmoid":
        return between_conversions(task)
    source, result = task.params(0), task.result()
    if source is None or result is None:
        raise task.error(NO_TABLE)
    source, result = unsigned_equivalent(source), unsigned_equivalent(result)
    if node.op_type != "Tanh" or result != QuantParams((1.0 / 128.0,), (128,), UINT8):
        raise task.error(
            "the sigmoid table gives Tanh in 8 bits with scale 1/128 and zero_point 0 (int8) or 128 (uint8); "
            "change the parameters of the output, or the implementation"
        )
    value, output = node.inputs[0], node.outputs[0]
    assert value is not None
    doubled = replace(source, scale=2.0 * source.scale)
    quantized = emitter.quantized(value, source, node)
    twice = emitter.add_dequantize(quantized, f"{emitter.name(value)}_doubled", doubled, node)
    sigmoid = new_value(f"{emitter.name(output)}_sigmoid", ir.DataType.FLOAT, output)
    emitter.add("Sigmoid", [twice], sigmoid, node)
    in_256ths = QuantParams((1.0 / 256.0,), (0,), UINT8)
    emitter.store(output, emitter.add_quantize(sigmoid, emitter.name(output), in_256ths, node), result)
    return True


def lookup_table(task: Task, *, unsigned: bool = False) -> bool:
    """Write a look-up table in standard ONNX, of `unsigned` codes; nothing for a part of a later table."""
    result = task.result()
    if result is None and _is_part(task):
        return True
    if result is None:
        raise task.error(NO_TABLE)
    node, emitter = task.node, task.emitter
    chain, source = table_of(task)
    if unsigned:
        source, result = unsigned_equivalent(source), unsigned_equivalent(result)
    output, name = node.outputs[0], emitter.name(node.outputs[0])
    entries = build_table(function_of_chain(chain, task.opset), source, result)
    entry_values = emitter.constant(f"{name}_table", entries)
    index = new_value(f"{name}_index", ir.DataType.INT32, output)
    quantized = emitter.quantized(chain.source, source, node)
    emitter.add("Cast", [quantized], index, node, {"to": int(ir.DataType.INT32)})
    if source.qtype.low:
        lowest = emitter.constant("lowest_code", np.array(source.qtype.low, np.int32))
        place = new_value(f"{name}_place", ir.DataType.INT32, output)
        index = emitter.add("Sub", [index, lowest], place, node)
    looked_up = new_value(f"{name}_quantized", integer_type(result), output)
    emitter.add("Gather", [entry_values, index], looked_up, node, {"axis": 0})
    emitter.store(output, looked_up, result)
    return True


def fused(task: Task) -> bool:
    """Write a chain as onnxruntime's own float operator, at its last node; with conversions if quantized."""
    node, emitter, result = task.node, task.emitter, task.result()
    if result is None and _is_part(task):
        return True
    chain, params = table_of(task)
    function = fused_function(chain, task.opset)
    if function is None:
        raise task.error(f"no operator computes {chain.operators}; choose another implementation")
    quantized = task.entry.kind is Kind.LOOKUP_TABLE
    value = (
        emitter.dequantized(chain.source, params, node) if quantized else emitter.floating(chain.source, node)
    )
    op_type, attributes = function
    numbers = {name: ir.AttrFloat32(name, number) for name, number in attributes.items()}
    become(node, op_type, [value], {**node.attributes, **numbers}, MICROSOFT)
    if result is not None:
        emitter.quantize_output(node.outputs[0], result, node)
    return False


def weight_only(task: Task, *, folded: bool = False) -> bool:
    """Store constants with parameters quantized, and compute in float; `folded` dequantizes at loading."""
    node, emitter = task.node, task.emitter
    for index, value in enumerate(node.inputs):
        params = task.params(index)
        if value is None or params is None:
            continue
        is_constant = constant_shape(value) is not None
        if is_constant and folded:
            node.replace_input_with(index, emitter.folded(value, params, node))
        elif is_constant:
            node.replace_input_with(index, emitter.dequantized_at_home(value, params, node))
        elif emitter.stored_params(value) == params and not folded:
            node.replace_input_with(index, emitter.dequantized(value, params, node))
    return float_node(task)


def float_node(task: Task) -> bool:
    """Let a node read float values, and its inner graphs too, but for subgraphs, which are written apart."""
    opaque = () if subgraphs(task.node) else graph_attributes(task.node)
    for node in (task.node, *(node for graph in opaque for node in graph.all_nodes())):
        for index, value in enumerate(node.inputs):
            params = None if value is None else task.emitter.stored_params(value)
            if value is None or params is None:
                continue
            if node is task.node and node.op_type in ("Shape", "Size"):  # the same of the quantized tensor
                form = task.emitter.quantized(value, params, node)
            else:
                form = task.emitter.floating(value, task.node)
            node.replace_input_with(index, form)
    if any(_leads_to_quantized(output, task.plan) for output in task.node.outputs):
        hide_from_fusion(task.node, task.emitter)
    return False


REPLACED = ("Conv", "ConvTranspose", "Gemm", "Softmax", "AveragePool")
"""Operators between conversions that onnxruntime replaces by a kernel of integers, see `hide_from_fusion`."""

_MOVED = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "MaxPool")
"""Operators past which onnxruntime moves conversions."""


def hide_from_fusion(node: ir.Node, emitter: Emitter) -> None:
    """Put a Max of one tensor, which changes nothing, before a node that is float between conversions.

    onnxruntime replaces DequantizeLinear, operator, QuantizeLinear by a kernel of integers. Most of
    its kernels compute the same as the three nodes; these, in 1.31, do not:

    * Conv, ConvTranspose and Gemm with float weights: it quantizes them to int8 with one scale for the whole
      tensor, and the bias to int32 with scale(x) * scale(w), which saturates (WeightBiasQuantization).
    * Softmax: QLinearSoftmax returns 0 for the probability of a single element.
    * AveragePool: QLinearAveragePool divides by the whole window if `ceil_mode` and `count_include_pad`
      let it reach beyond the padding, and ignores dilations.
    """
    value = node.inputs[0] if node.inputs else None
    if node.op_type not in REPLACED or value is None:
        return
    maker = value.producer()
    while maker is not None and maker.op_type in _MOVED and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    if maker is not None and maker.op_type == DEQUANTIZE:
        hidden = new_value(f"{name_of(value)}_float", ir.DataType.FLOAT, value)
        node.replace_input_with(0, emitter.add("Max", [value], hidden, node))


def _leads_to_quantized(value: ir.Value, plan: QuantPlan) -> bool:
    """Whether a node reads a float tensor quantized, directly or behind nodes that conversions move past."""
    for reader in {use.node for use in value.uses()}:
        entry = plan.nodes.get(name_of(reader))
        if entry is not None and entry.kind.reads_quantized:
            return True
        if reader.op_type in (*_MOVED, "Relu", "Clip") and any(
            _leads_to_quantized(output, plan) for output in reader.outputs
        ):
            return True
    return False


def as_max(task: Task) -> bool:
    """Write a float Relu as Max with 0, and a Clip as Max and Min with its ends, which is the same."""
    node, emitter, value = task.node, task.emitter, task.node.inputs[0]
    assert value is not None
    source, ends = emitter.floating(value, node), list(node.inputs[1:])
    if node.op_type == "Relu":
        ends = [emitter.constant("zero", np.zeros((), np.float32))]
    operators = [(name, end) for name, end in zip(("Max", "Min"), ends, strict=False) if end is not None]
    for op_type, end in operators[:-1]:
        limited = new_value(
            f"{emitter.name(node.outputs[0])}_limited", source.dtype or ir.DataType.FLOAT, value
        )
        source = emitter.add(op_type, [source, end], limited, node)
    for op_type, end in operators[-1:]:
        become(node, op_type, [source, end])
    return float_node(task)


def table_of(task: Task) -> tuple[PointwiseChain, QuantParams]:
    """Return the chain that a node's table replaces and ends, and the parameters of the chain's input."""

    def is_part(value: ir.Value) -> bool:
        maker = value.producer()
        is_float = task.emitter.name(value) not in task.plan.tensors
        return maker is not None and is_float and _may_be_one_with(task, maker)

    nodes, sources = nodes_between(task.node.outputs[0], is_part, is_constant)
    reads = {
        replace(task, node=node).params(index)
        for node in nodes
        for index, value in enumerate(node.inputs)
        if value in sources
    }
    params = next(iter(reads), None)
    if len(sources) != 1 or len(reads) != 1 or params is None:
        raise task.error(NO_TABLE)
    return PointwiseChain(nodes, sources[0]), params


def _is_part(task: Task) -> bool:
    """Return whether all readers of a node's output may be one with it."""
    readers = [use.node for use in task.node.outputs[0].uses()]
    return bool(readers) and all(_may_be_one_with(task, reader) for reader in readers)


def _may_be_one_with(task: Task, other: ir.Node) -> bool:
    """Return whether another node may be written as one with that of a task: as a table, or fused."""
    entry = task.plan.nodes.get(name_of(other))
    if entry is None or entry.kind is not task.entry.kind:
        return False
    return entry.kind is Kind.LOOKUP_TABLE or entry.implementation == Implementation.FUSED


def data_inputs(task: Task) -> Sequence[int]:
    """Return the inputs that may be read quantized: no bounds and padding values of pass-through nodes."""
    if task.entry.kind is Kind.LOOKUP_TABLE:
        values = enumerate(task.node.inputs)
        return [index for index, v in values if v is not None and not is_constant(v)]
    one = task.entry.kind is Kind.PASS_THROUGH or task.node.op_type in ("Relu", "Clip")
    return range(1 if one else len(task.node.inputs))


def packed_weight(task: Task) -> bool:
    """Write a node with a packed constant that an operator of the runtime's own reads."""
    is_removed: bool = PACKED.load(f"implementation {task.entry.implementation}").packed_weight(task)
    return is_removed
