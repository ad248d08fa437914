"""Unary functions: the function of a node, or a fused pointwise chain, with one varying input.

Planning uses the slope of a function, lowering its look-up table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.instrumentation.subgraphs import STANDARD_DOMAINS
from ..model.graph import constant_of, name_of
from ..numerics.affine import Floats, UnaryFunction

if TYPE_CHECKING:
    from .graph import Node

CHAIN, CHAIN_DOMAIN = "Chain", "qprof"
"""Operator (and key in `Node.meta`) and domain of the node that stands for a chain while a plan is made."""


@dataclass(frozen=True, eq=False)
class PointwiseChain:
    """Nodes that together compute a unary function, such as x * sigmoid(x)."""

    nodes: tuple[ir.Node, ...]  # in topological order; only they read what all but the last return
    source: ir.Value  # the tensor that they are a function of
    fused: str = ""  # kernel of the runtime's own float operator (`fused_function`)
    quantized_fused: bool = False  # whether that may stand between quantized tensors

    @property
    def name(self) -> str:
        """The name of the last node, which stands for all."""
        return name_of(self.nodes[-1])

    @property
    def result(self) -> ir.Value:
        """The tensor that the chain returns."""
        return self.nodes[-1].outputs[0]

    @property
    def operators(self) -> str:
        """The operators, for people: "Sigmoid, Mul"."""
        return ", ".join(node.op_type for node in self.nodes)


def chain_of(node: ir.Node) -> PointwiseChain:
    """Return the chain that a node represents, or the single node as a function of its first input."""
    chain = node.meta.get(CHAIN)
    if isinstance(chain, PointwiseChain):
        return chain
    source = node.inputs[0] if node.inputs else None
    if source is None:
        raise PlanError(
            f"node '{node.name}': {node.op_type} as a look-up table: it has no input; keep this node float"
        )
    return PointwiseChain((node,), source)


def chain_nodes(node: ir.Node) -> tuple[ir.Node, ...]:
    """Return the nodes that a node stands for: those of its chain, or itself."""
    chain = node.meta.get(CHAIN)
    return chain.nodes if isinstance(chain, PointwiseChain) else (node,)


def operator_of(node: Node) -> str:
    """Return the operator of a node for people."""
    if node.domain == CHAIN_DOMAIN and node.op_type == CHAIN:
        return f"{chain_of(node.ir_node).operators} in one"
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def function_of(node: ir.Node, opset: int) -> UnaryFunction:
    """Return the function that a node computes of its first input, the others being constants."""
    return function_of_chain(chain_of(node), opset)


def function_of_chain(chain: PointwiseChain, opset: int) -> UnaryFunction:
    """Return the function that a chain computes of its source, by onnx's reference implementation."""
    evaluate = _evaluator(chain, opset, ())
    return lambda values: evaluate(values, ())


STEP = 1e-4
"""Change of a tensor inside a chain, to test its effect on the result."""


def slopes_inside(chain: PointwiseChain, inner: Sequence[str], opset: int) -> UnaryFunction:
    """Return the slopes of a chain's result by inner tensors: n values to (inner tensors, n)."""
    evaluate = _evaluator(chain, opset, inner)

    def slopes(values: Floats) -> Floats:
        # The chain is evaluated once, on copies of the values: in two of them a tensor is moved up and down.
        moves = np.kron(np.eye(len(inner)), [STEP, -STEP])
        results = evaluate(np.tile(values, moves.shape[1]), np.repeat(moves, values.size, axis=1))
        up_and_down = results.reshape(len(inner), 2, values.size)
        return np.asarray((up_and_down[:, 0] - up_and_down[:, 1]) / (2.0 * STEP))

    return slopes


Evaluator = Callable[[Floats, Iterable[Floats]], Floats]
"""A function of a chain's source, and of numbers to add to each of some tensors inside the chain."""


def _evaluator(chain: PointwiseChain, opset: int, inner: Sequence[str]) -> Evaluator:
    """Return the function of a chain's source with numbers added to each of some tensors inside it."""
    import onnx
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    where = f"node '{chain.name}': {chain.operators} as a look-up table"
    names: dict[ir.Value, str] = {chain.source: "x"}
    added_to = {name: f"added{place}" for place, name in enumerate(inner)}
    constants: list[onnx.TensorProto] = []
    protos: list[onnx.NodeProto] = []
    for node in chain.nodes:
        for value in node.inputs:
            if value is None or value in names:
                continue
            if value.const_value is None:
                raise PlanError(f"{where}: input '{value.name}' is not a constant; keep this node float")
            names[value] = f"c{len(constants)}"
            array = value.const_value.numpy()
            if array.size != 1:  # the function of an element would depend on its place
                raise PlanError(f"{where}: input '{value.name}' is not one number; keep this node float")
            array = array.reshape(())  # onnx adds in place in Mean and Sum: the first one gets no dimensions
            widened = array.astype(np.float64) if array.dtype.kind == "f" else array
            constants.append(numpy_helper.from_array(widened, names[value]))
        result = node.outputs[0]
        names[result] = "y" if node is chain.nodes[-1] else f"inner{len(protos)}"
        proto = ir.serde.serialize_node(node)
        del proto.input[:], proto.output[:]
        proto.input.extend("" if value is None else names[value] for value in node.inputs)
        proto.output.append(names[result])
        protos.append(proto)
        if result.name in added_to:
            moved = f"{names[result]}_moved"
            protos.append(helper.make_node("Add", [names[result], added_to[result.name]], [moved]))
            names[result] = moved
    x, y, *added_inputs = (
        helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [None])
        for name in ("x", "y", *added_to.values())
    )
    graph = helper.make_graph(protos, "curve", [x, *added_inputs], [y], constants)
    domains = dict.fromkeys(node.domain for node in chain.nodes if node.domain not in STANDARD_DOMAINS)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    try:
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
    except (NotImplementedError, KeyError, RuntimeError) as error:
        raise PlanError(f"{where}: onnx has no definition of it ({error}); keep this node float") from error

    def evaluate(values: Floats, added: Iterable[Floats]) -> Floats:
        feeds = {"x": values, **dict(zip(added_to.values(), added, strict=True))}
        with np.errstate(all="ignore"):  # an exp that overflows is infinite, as in a runtime
            (computed,) = evaluator.run(None, feeds)
        return np.asarray(computed, np.float64)

    return evaluate


FLOAT_ROUNDING = 2.0**-20
"""By how much of its argument a function may differ from the operator's: constants such as the root of 2 are
rounded to float32."""

ARGUMENTS = np.linspace(-32.0, 32.0, 513)
"""Where the two are compared; beyond, both are 0 or x."""


FUSED_KERNELS = {"QuickGelu": "Silu", "Gelu": "Gelu"}
"""Operators of onnxruntime's own, in domain com.microsoft, and their names in a table of kernel times."""


def fused_function(chain: PointwiseChain, opset: int) -> tuple[str, dict[str, float]] | None:
    """Return the operator of `FUSED_KERNELS` that computes a chain up to float rounding, and its attributes.

    onnxruntime makes it of the nodes itself, but not behind a DequantizeLinear. QuickGelu(x) is x *
    sigmoid(alpha x), Gelu(x) is x / 2 * (1 + erf(x / sqrt(2))).
    """
    operators = sorted(node.op_type for node in chain.nodes)
    if operators in (["Mul", "Sigmoid"], ["Mul", "Mul", "Sigmoid"]):
        alpha = _slope_of_gate(chain)
        if alpha is None:
            return None
        op_type, attributes = "QuickGelu", {"alpha": alpha}
        with np.errstate(over="ignore"):
            expected = ARGUMENTS / (1.0 + np.exp(-alpha * ARGUMENTS))
    elif "Erf" in operators and len(operators) == 5:
        op_type, attributes = "Gelu", {}
        expected = ARGUMENTS / 2.0 * (1.0 + np.array([math.erf(x / math.sqrt(2.0)) for x in ARGUMENTS]))
    else:
        return None
    difference = np.abs(function_of_chain(chain, opset)(ARGUMENTS) - expected)
    return (op_type, attributes) if (difference <= FLOAT_ROUNDING * np.abs(ARGUMENTS)).all() else None


def _slope_of_gate(chain: PointwiseChain) -> float | None:
    """Return the factor of x before its sigmoid, or None if it is no constant number."""
    gate = next(node for node in chain.nodes if node.op_type == "Sigmoid")
    if gate.inputs[0] is chain.source:
        return 1.0
    scaled = gate.inputs[0].producer() if gate.inputs[0] is not None else None
    factors = [] if scaled is None or scaled.op_type != "Mul" else map(constant_of, scaled.inputs)
    numbers = [float(array.reshape(())) for array in factors if array is not None and array.size == 1]
    return numbers[0] if len(numbers) == 1 else None


def nodes_between(
    result: ir.Value, is_inner: Callable[[ir.Value], bool], is_constant: Callable[[ir.Value], bool]
) -> tuple[tuple[ir.Node, ...], tuple[ir.Value, ...]]:
    """Return a chain's nodes in topological order, and the varying tensors that they read from outside."""
    order: list[ir.Node] = []
    sources: dict[ir.Value, None] = {}
    seen: set[ir.Node] = set()
    waiting: list[tuple[ir.Node, bool]] = []
    maker = result.producer()
    if maker is not None:
        waiting.append((maker, False))
    while waiting:
        node, done = waiting.pop()
        if done:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        waiting.append((node, True))
        for value in reversed(node.inputs):
            if value is None or is_constant(value):
                continue
            inner = value.producer()
            if inner is not None and is_inner(value):
                waiting.append((inner, False))
            else:
                sources[value] = None
    return tuple(order), tuple(sources)
