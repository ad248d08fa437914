"""Types, blocks and implementation of the weights of nodes whose activations are float. Pure.

A weight is stored in the type that was asked for where the target has it, with a scale for each block of the
axis that its product sums over; else in 8 bits with a scale for each output channel. How the node is written:

==================  ==========================================================================================
runtime             an operator of the runtime's own that reads packed weights (MatMulNBits and
                    GatherBlockQuantized of onnxruntime). Its kernel rounds the activations to 8 bits, with a
                    scale for each block: 43 to 46 dB, as much as the weights have in 8 bits
runtime-float       the same operator with float activations; for weights of 4 bits: with 8 it took 1.8 to 17
                    times as long as float
""                  DequantizeLinear and the float operator, which a runtime may join
folded              Cast and arithmetic, done when the model is loaded; the float operator
==================  ==========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..numerics.affine import INT7, INT8, TYPES, QuantParams, QuantType
from ..numerics.block_scales import channel_params_and_sqnr, searched_block_params
from ..numerics.schemas import SCHEMAS, Schema
from ..operators.graph import Node
from ..operators.table import product_layout
from ..operators.weight_layout import WeightLayout
from ..plan.plan import ROUNDS_IN_KERNEL, RUNTIME_WEIGHTS, Implementation
from ..targets.config import FEW_BITS, FEWEST_IN_BLOCK
from ..targets.forms import FORMS
from .facts import PlanningFacts

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class StoredWeight:
    """The parameters of the stored weight of a float node.

    Attributes:
        params: of the constant.
        sqnr: what they leave of it, in dB.
        implementation: of the node, as the table above says.
        remark: why it has no blocks though they were asked for; "" where it has, or they were not.
    """

    params: QuantParams
    sqnr: float
    implementation: Implementation
    remark: str = ""


def stored_weight(
    node: Node, weight: WeightLayout, array: Floats, facts: PlanningFacts, bits: int = 0
) -> StoredWeight | None:
    """Return parameters and implementation for one constant; None where the target has no type for it.

    Args:
        node: reads the constant.
        weight: its layout.
        array: its elements.
        facts: of the model.
        bits: the fewest of its type, if those of the type that was asked for are fewer.
    """
    config, target, rule = facts.config, facts.target, node.rule
    asked, schema = TYPES[config.weight_type], SCHEMAS[config.weight_schema]

    # The runtime's own operator, where it can compute the node.
    runtime_operator = Implementation.USUAL
    if (
        rule is not None
        and target.weight_implementations.get(node.op_type) == ROUNDS_IN_KERNEL
        and FORMS[config.form].runtime_operators
        and not (rule.is_lookup or rule.refusal(node, facts.graph))
        and array.ndim == 2
        and weight.is_product
        and not weight.reads_transposed(node)
    ):
        runtime_operator = RUNTIME_WEIGHTS[target.weight_only_activations == "float"]
    in_float = runtime_operator == RUNTIME_WEIGHTS[1]

    # Blocks of the axis that the product sums over, a scale for each channel, or one.
    blocked_axis, block, remark = weight.blocked_axis(node, array.ndim), None, ""
    if blocked_axis is not None and product_layout(node) is weight:
        # The runtime's own operators may have a last block that is not full.
        ragged = bool(runtime_operator) and not (in_float and max(bits, asked.bits) > 4)
        block = _block(array.shape[blocked_axis], config.block_size, ragged=ragged)
        if asked.scales is not None and block != asked.scales.block_size:
            block = None
        if block is None and config.block_size:
            remark = f"no block divides its {array.shape[blocked_axis]} rows, so a scale for each channel"
    has_type = _written_name(asked) in target.weight_only[node.op_type] and bits <= asked.bits
    if asked.bits == 2 and runtime_operator != RUNTIME_WEIGHTS[0]:
        has_type = False  # no other spelling has 2 bits, and the kernel with float activations is slow
    if has_type and block is not None and blocked_axis is not None:
        params, sqnr = searched_block_params(array, blocked_axis, block, schema, asked, file=facts.array_file)
    else:
        # Signed 8 bits stand in where 4 would have to do with one scale for a channel.
        if not has_type or config.weight_type in FEW_BITS or config.block_size:
            schema, asked = symmetric_schema(facts), signed_type(facts)
            if asked.storage not in target.weight_only[node.op_type]:
                return None
        axis = weight.axis(node, array.ndim) if config.granularity == "per-channel" else None
        params, sqnr = channel_params_and_sqnr(array, axis, schema, asked)

    if runtime_operator and not (in_float and params.qtype.bits > 4):
        return StoredWeight(params, sqnr, runtime_operator, remark)
    reads = not runtime_operator and kernel_reads_weight(node, facts)
    is_folded = target.folds == "arithmetic" and not reads
    how = Implementation.FOLDED if is_folded else Implementation.USUAL
    return StoredWeight(params, sqnr, how, remark)


def _written_name(qtype: QuantType) -> str:
    """Return the name of a type of weights in the lists of targets: a format, or what is stored."""
    return qtype.storage if qtype.scales is None else qtype.name


def kernel_reads_weight(node: Node, facts: PlanningFacts) -> bool:
    """Whether the target's kernel reads the weight of a product that is written with DequantizeLinear.

    Looked up in the graph that onnxruntime 1.31 executes: MatMulNBits stands for DequantizeLinear and
    MatMul where the weight is a matrix on the right that nothing else reads, in the graph of the node;
    for Gemm where it computes no more than the product and a bias for each column.
    """
    graph, name, rule = facts.graph, node.input(1), node.rule
    if node.op_type not in facts.target.weight_kernels or rule is None or rule.refusal(node, graph):
        return False
    if not graph.is_constant(name) or graph.values[name].graph is not node.ir_node.graph:
        return False
    matrix = len(graph.shape(name) or ()) == 2 and len(graph.consumers(name)) == 1
    return matrix and not node.attributes.get_int("transB", 0)


def table_params(node: Node, table: Floats, facts: PlanningFacts) -> tuple[QuantParams, float] | None:
    """Return the parameters of an embedding table in 4 bits, and its SQNR (dB) with them.

    None where it cannot have them. It has a scale for each block of an entry, and GatherBlockQuantized reads
    it: DequantizeLinear before a Gather would dequantize the whole table in every run.
    """
    config, target = facts.config, facts.target
    own = target.weight_implementations.get(node.op_type) == ROUNDS_IN_KERNEL
    if (
        not own
        or not config.has_few_bits
        or not FORMS[config.form].runtime_operators
        or not config.block_size
    ):
        return None
    if config.weight_type not in target.weight_only.get(node.op_type, ()) or table.ndim < 2:
        return None
    first = node.attributes.get_int("axis", 0) % table.ndim == 0
    entry = table.shape[-1]
    block = _block(entry, config.block_size, ragged=True)
    if not first or block is None or entry % 2:  # two elements lie in a byte, and an entry begins with one
        return None
    schema, qtype = SCHEMAS[config.weight_schema], TYPES[config.weight_type]
    return searched_block_params(table, table.ndim - 1, block, schema, qtype, file=facts.array_file)


def _block(size: int, wanted: int, *, ragged: bool) -> int | None:
    """Return how many elements of an axis share a scale; None where no block fits.

    That is what was asked for, or the largest power of two below it that divides the axis; a `ragged` one may
    have a last block that is not full, as long as one is.
    """
    if not wanted:
        return None
    if ragged and size >= FEWEST_IN_BLOCK:
        while wanted > FEWEST_IN_BLOCK and wanted > size:
            wanted //= 2
        return wanted
    while wanted >= FEWEST_IN_BLOCK:
        if size % wanted == 0:
            return wanted
        wanted //= 2
    return None


def signed_type(facts: PlanningFacts) -> QuantType:
    """Return the signed type of 8 bits, or of 7 where 7 were asked for or a target's products sum no more."""
    fewer = facts.config.weight_type == "int7" or "int8" not in facts.target.weight_types
    return INT7 if fewer else INT8


def symmetric_schema(facts: PlanningFacts) -> Schema:
    """Return the signed schema without zero points, with scales as the schema of weights has them."""
    power_of_two = SCHEMAS[facts.config.weight_schema].power_of_two
    return SCHEMAS["symmetric-power2" if power_of_two else "symmetric"]
