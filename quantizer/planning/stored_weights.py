"""Types, blocks and implementation of the weights of nodes whose activations are float. Pure.

A weight is stored in the chosen type if the target supports it, with a scale for each block of the axis that
its product sums over; else in 8 bits with a scale for each output channel. The node is written as:

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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..numerics.affine import INT7, INT8, QuantParams, QuantType
from ..numerics.array_file import ArrayFile
from ..numerics.block_scales import channel_params_and_sqnr, searched_block_params
from ..numerics.schemas import SCHEMAS, Schema
from ..operators.graph import Node
from ..operators.table import product_layout
from ..operators.weight_layout import WeightLayout
from ..plan.formats import PACKED
from ..plan.plan import ROUNDS_IN_KERNEL, RUNTIME_WEIGHTS, Implementation
from ..targets.config import FEW_BITS, FEWEST_IN_BLOCK
from ..targets.forms import FORMS
from ..targets.weight_formats import WeightFormat
from .facts import PlanningFacts

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Storage:
    """How a constant of a float node is stored."""

    format: WeightFormat
    axis: int | None  # of the blocks, or of the channels; None for one scale
    implementation: str  # of the node, as the table above says
    remark: str = ""  # why it has no blocks though they were asked for

    @property
    def key(self) -> tuple[str, int]:
        """Type and block: nodes that read the same constant can share it if these are equal."""
        return written_name(self.format.qtype), self.format.block_size

    def params_of(self, array: Floats, file: ArrayFile | None = None) -> tuple[QuantParams, float]:
        """Return the parameters of a constant, or of some of its channels, and their SQNR in dB."""
        asked = self.format
        if asked.block_size and self.axis is not None:
            block = asked.block_size
            return searched_block_params(array, self.axis, block, asked.schema, asked.qtype, file=file)
        return channel_params_and_sqnr(array, self.axis, asked.schema, asked.qtype)


def weight_storage(
    node: Node, weight: WeightLayout, shape: Sequence[int], facts: PlanningFacts, asked: WeightFormat
) -> Storage | None:
    """Return the storage of one constant in the format `asked`, or near it; None if its type is missing."""
    config, target, rule, rank = facts.config, facts.target, node.rule, len(shape)

    # The runtime's own operator, where it can compute the node.
    runtime_operator = Implementation.USUAL
    if (
        rule is not None
        and target.weight_implementations.get(node.op_type) == ROUNDS_IN_KERNEL
        and FORMS[config.form].runtime_operators
        and PACKED.is_installed
        and not (rule.is_lookup or rule.refusal(node, facts.graph))
        and rank == 2
        and weight.is_product
        and not weight.reads_transposed(node)
    ):
        runtime_operator = RUNTIME_WEIGHTS[target.weight_only_activations == "float"]
    in_float = runtime_operator == RUNTIME_WEIGHTS[1]

    # Blocks of the axis that the product sums over, a scale for each channel, or one.
    qtype, axis, block, remark = asked.qtype, weight.blocked_axis(node, rank), None, ""
    if axis is not None and product_layout(node) is weight:
        # The runtime's own operators may have a last block that is not full.
        ragged = bool(runtime_operator) and not (in_float and qtype.bits > 4)
        block = _block(shape[axis], asked.block_size, ragged=ragged)
        if qtype.scales is not None and block != qtype.scales.block_size:
            block = None
        if block is None and asked.block_size:
            remark = f"no block divides its {shape[axis]} rows, so a scale for each channel"
    has_type = written_name(qtype) in target.weight_only[node.op_type]
    if qtype.bits == 2 and runtime_operator != RUNTIME_WEIGHTS[0]:
        has_type = False  # no other spelling has 2 bits, and the kernel with float activations is slow
    schema = asked.schema
    if not has_type or block is None:
        # Signed 8 bits stand in where fewer would have to do with one scale for a channel.
        if not has_type or qtype.name in FEW_BITS or asked.block_size:
            schema, qtype = symmetric_schema(facts), signed_type(facts)
            if qtype.storage not in target.weight_only[node.op_type]:
                return None
        block, axis = None, weight.axis(node, rank) if config.granularity == "per-channel" else None
    stored = WeightFormat(qtype, block or 0, schema)
    if runtime_operator and not (in_float and qtype.bits > 4):
        return Storage(stored, axis, runtime_operator, remark)
    reads = not runtime_operator and kernel_reads_weight(node, facts)
    is_folded = target.folds == "arithmetic" and not reads
    return Storage(stored, axis, Implementation.FOLDED if is_folded else Implementation.USUAL, remark)


def written_name(qtype: QuantType) -> str:
    """Return the name of a type of weights in the lists of targets: its format, or its stored type."""
    return qtype.storage if qtype.scales is None else qtype.name


def kernel_reads_weight(node: Node, facts: PlanningFacts) -> bool:
    """Whether the target's kernel reads the weight of a product that is written with DequantizeLinear.

    Looked up in the graph that onnxruntime 1.31 executes: MatMulNBits replaces DequantizeLinear and MatMul if
    the weight is a matrix on the right that nothing else reads, in the graph of the node; for Gemm if it
    computes no more than the product and a bias for each column.
    """
    graph, name, rule = facts.graph, node.input(1), node.rule
    if node.op_type not in facts.target.weight_kernels or rule is None or rule.refusal(node, graph):
        return False
    if not graph.is_constant(name) or graph.values[name].graph is not node.ir_node.graph:
        return False
    matrix = len(graph.shape(name) or ()) == 2 and len(graph.consumers(name)) == 1
    return matrix and not node.attributes.get_int("transB", 0)


def table_storage(
    node: Node, shape: Sequence[int], facts: PlanningFacts, asked: WeightFormat
) -> Storage | None:
    """Return the storage of a table in few bits, which GatherBlockQuantized reads, or None."""
    target, name = facts.target, asked.qtype.name
    own = target.weight_implementations.get(node.op_type) == ROUNDS_IN_KERNEL
    is_written = FORMS[facts.config.form].runtime_operators and PACKED.is_installed
    if not own or name not in FEW_BITS or not is_written:
        return None
    if name not in target.weight_only.get(node.op_type, ()) or len(shape) < 2:
        return None
    first = node.attributes.get_int("axis", 0) % len(shape) == 0
    block = _block(shape[-1], asked.block_size, ragged=True)
    if not first or block is None or shape[-1] % 2:  # two elements lie in a byte, and an entry begins one
        return None
    stored = WeightFormat(asked.qtype, block, asked.schema)
    return Storage(stored, len(shape) - 1, Implementation.RUNTIME)


def _block(size: int, wanted: int, *, ragged: bool) -> int | None:
    """Return the number of elements of an axis that share a scale; None if no block fits.

    That is the largest power of two up to the wanted one that divides the axis, or fits into a `ragged` one.
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


def stand_in(facts: PlanningFacts) -> WeightFormat:
    """Return the format of weights that need more bits: 8 bits, with a scale for each channel."""
    return WeightFormat(signed_type(facts), 0, symmetric_schema(facts))


def signed_type(facts: PlanningFacts) -> QuantType:
    """Return the signed type of 8 bits, or of 7 if the settings name it."""
    return INT7 if facts.config.weight_type == "int7" else INT8


def symmetric_schema(facts: PlanningFacts) -> Schema:
    """Return the signed schema without zero points, with scales as the schema of weights has them."""
    power_of_two = SCHEMAS[facts.config.weight_schema].power_of_two
    return SCHEMAS["symmetric-power2" if power_of_two else "symmetric"]
