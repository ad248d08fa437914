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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..numerics.affine import INT7, INT8, TYPES, QuantParams, QuantType
from ..numerics.array_file import ArrayFile
from ..numerics.block_scales import channel_params_and_sqnr, searched_block_params
from ..numerics.schemas import SCHEMAS, Schema
from ..operators.graph import Graph, Node
from ..operators.table import product_layout
from ..operators.weight_layout import WeightLayout
from ..plan.plan import RUNTIME_WEIGHTS
from ..targets.config import FEWEST_IN_BLOCK, QuantConfig
from ..targets.forms import FORMS
from ..targets.target import FEW_BITS, Target

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class StoredWeight:
    """What becomes of the weight of a float node.

    Attributes:
        params: of the constant.
        sqnr: what they leave of it, in dB.
        implementation: of the node, as the table above says.
        remark: why it has no blocks though they were asked for; "" where it has, or they were not.
    """

    params: QuantParams
    sqnr: float
    implementation: str = ""
    remark: str = ""


@dataclass(frozen=True)
class WeightStorage:
    """Decides how the weights of float nodes are stored.

    Attributes:
        graph: the model.
        target: the runtime.
        config: the settings.
        room: where the scales of blocks are kept.
    """

    graph: Graph
    target: Target
    config: QuantConfig
    room: ArrayFile

    def of(self, node: Node, weight: WeightLayout, array: Floats, bits: int = 0) -> StoredWeight:
        """Return parameters and implementation for one constant.

        Args:
            node: reads the constant.
            weight: its layout.
            array: its elements.
            bits: the fewest of its type, if those of the type that was asked for are fewer.
        """
        config, own = self.config, self._own_operator(node, weight, array)
        in_float = own == RUNTIME_WEIGHTS[1]
        # The runtime's own operators may have a last block that is not full.
        ragged = bool(own) and not (in_float and max(bits, TYPES[config.weight_type].bits) > 4)
        axis = weight.blocked_axis(node, array.ndim) if product_layout(node) is weight else None
        block = None if axis is None else _block(array.shape[axis], config.block_size, ragged=ragged)
        params, sqnr = self._params(node, weight, array, bits, block)
        remark = ""
        if axis is not None and block is None and config.block_size:
            remark = f"no block divides its {array.shape[axis]} rows, so a scale for each channel"
        if own and not (in_float and params.qtype.bits > 4):
            return StoredWeight(params, sqnr, own, remark)
        reads = not own and self.kernel_reads_weight(node)
        folded = self.target.folds == "arithmetic" and not reads
        return StoredWeight(params, sqnr, "folded" if folded else "", remark)

    def kernel_reads_weight(self, node: Node) -> bool:
        """Whether the target's kernel reads the weight of a product that is written with DequantizeLinear.

        Looked up in the graph that onnxruntime 1.31 executes: MatMulNBits stands for DequantizeLinear and
        MatMul where the weight is a matrix on the right that nothing else reads, in the graph of the node;
        for Gemm where it computes no more than the product and a bias for each column.
        """
        graph, name, rule = self.graph, node.input(1), node.rule
        if node.op_type not in self.target.weight_kernels or rule is None or rule.refusal(node, graph):
            return False
        if not graph.is_constant(name) or graph.values[name].graph is not node.ir_node.graph:
            return False
        matrix = len(graph.shape(name) or ()) == 2 and len(graph.consumers(name)) == 1
        return matrix and not node.attributes.get_int("transB", 0)

    def _own_operator(self, node: Node, weight: WeightLayout, array: Floats) -> str:
        """Return the implementation with the runtime's own operator, "" where it cannot compute the node."""
        rule, summed = node.rule, weight.summed_axis(node, array.ndim)
        if self.target.weight_implementations.get(node.op_type) != RUNTIME_WEIGHTS[0] or rule is None:
            return ""
        if not FORMS[self.config.form].runtime_operators or rule.is_lookup or rule.refusal(node, self.graph):
            return ""
        if array.ndim != 2 or summed is None or weight.reads_transposed(node):
            return ""
        return RUNTIME_WEIGHTS[self.config.weight_only_activations == "float"]

    def _params(
        self, node: Node, weight: WeightLayout, array: Floats, bits: int, block: int | None
    ) -> tuple[QuantParams, float]:
        """Return the parameters of a constant and the SQNR (dB) that they leave.

        They are for blocks where one fits, else there is a scale for each channel or one. A signed type of 8
        bits stands in where the target has not the type that was asked for, and where 4 bits would have to do
        with one scale for a channel.
        """
        config, types = self.config, self.target.weight_only[node.op_type]
        schema, qtype = SCHEMAS[config.weight_schema], TYPES[config.weight_type]
        wide, summed = bits > qtype.bits, weight.blocked_axis(node, array.ndim)
        if qtype.storage in types and not wide and block is not None and summed is not None:
            return searched_block_params(array, summed, block, schema, qtype, room=self.room)
        if wide or qtype.storage not in types or config.weight_type in FEW_BITS or config.block_size:
            schema, qtype = symmetric_schema(config), signed_type(self.target, config)
        axis = weight.axis(node, array.ndim) if config.granularity == "per-channel" else None
        return channel_params_and_sqnr(array, axis, schema, qtype)


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
    return next((block for block in _halves(wanted) if size % block == 0), None)


def _halves(block: int) -> Iterator[int]:
    while block >= FEWEST_IN_BLOCK:
        yield block
        block //= 2


def signed_type(target: Target, config: QuantConfig) -> QuantType:
    """Return the signed type of 8 bits, or of 7 where 7 were asked for or a target's products sum no more."""
    return INT7 if config.weight_type == "int7" or "int8" not in target.weight_types else INT8


def symmetric_schema(config: QuantConfig) -> Schema:
    """Return the signed schema without zero points, with scales as the schema of weights has them."""
    return SCHEMAS["symmetric-power2" if SCHEMAS[config.weight_schema].power_of_two else "symmetric"]


def table_params(
    node: Node, table: Floats, target: Target, config: QuantConfig, room: ArrayFile
) -> tuple[QuantParams, float] | None:
    """Return the parameters of an embedding table in 4 bits, and its SQNR (dB) with them.

    None where it cannot have them. It has a scale for each block of an entry, and GatherBlockQuantized reads
    it: DequantizeLinear before a Gather would dequantize the whole table in every run.
    """
    own = target.weight_implementations.get(node.op_type) == RUNTIME_WEIGHTS[0]
    few = config.weight_type in FEW_BITS and config.mode == "weight-only"
    if not own or not few or not FORMS[config.form].runtime_operators or not config.block_size:
        return None
    if config.weight_type not in target.weight_only.get(node.op_type, ()) or table.ndim < 2:
        return None
    first = node.attributes.get_int("axis", 0) % table.ndim == 0
    entry = table.shape[-1]
    size = _block(entry, config.block_size, ragged=True)
    if not first or size is None or entry % 2:  # two elements lie in a byte, and an entry begins with one
        return None
    schema, qtype = SCHEMAS[config.weight_schema], TYPES[config.weight_type]
    return searched_block_params(table, table.ndim - 1, size, schema, qtype, room=room)
