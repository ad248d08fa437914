"""Builds a float ONNX graph node by node: onnxruntime computes each node when it is added.

So a graph holds only nodes that onnxruntime runs, with finite results on every sample, and shapes of
operators need not be known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
Arrays = list[Array]
"""One array for each sample."""

SAMPLES = 3
MOST_ELEMENTS = 1 << 14
LARGEST, SMALLEST = 1e12, 1e-12
"""Of the largest value of a tensor that is not all zeros."""
IR_VERSIONS = {9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10}
QUIET = 4
DOMAINS = ("com.microsoft", "ai.onnx.ml")


def quiet_session(model: onnx.ModelProto | str, *, optimized: bool = False) -> ort.InferenceSession:
    """Return a session with one thread that logs nothing."""
    levels, options = ort.GraphOptimizationLevel, ort.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    given = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def onnx_type(array: Array) -> int:
    """Return the element type of a tensor."""
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def free_names(graph: onnx.GraphProto) -> list[str]:
    """Return what a subgraph reads from outside, in order."""
    made = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        names = list(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names += free_names(attribute.g)
        found.update(dict.fromkeys(n for n in names if n and n not in made))
        made.update(node.output)
    found.update(dict.fromkeys(v.name for v in graph.output if v.name not in made))
    return list(found)


@dataclass
class Builder:
    """A graph while it grows: `values` has every tensor in each sample, `outer` is the graph around it."""

    rng: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    values: dict[str, Arrays] = field(default_factory=dict)
    inputs: dict[str, list[int | str]] = field(default_factory=dict)
    defaults: list[str] = field(default_factory=list)
    outer: Builder | None = None
    counter: list[int] = field(default_factory=lambda: [0])

    # Choices

    def pick(self, items: Sequence[Any]) -> Any:
        """Return one of several items."""
        return items[int(self.rng.integers(len(items)))]

    def chance(self, share: float) -> bool:
        """Return True as often as `share` says."""
        return bool(self.rng.random() < share)

    def number(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    # Tensors

    def fresh(self, stem: str = "t") -> str:
        """Return a name that is not taken."""
        self.counter[0] += 1
        return f"{stem}{self.counter[0]}"

    def array(self, name: str) -> Array:
        """Return a tensor of the first sample."""
        return self.values[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor in the first sample."""
        return self.array(name).shape

    def floats(self, rank: int | None = None) -> list[str]:
        """Return the activations of float32, those of one rank if asked for."""
        constants = self.all_constants()
        return [
            name
            for name, arrays in self.values.items()
            if arrays[0].dtype == np.float32
            and name not in constants
            and arrays[0].ndim >= 1
            and arrays[0].size
            and (rank is None or arrays[0].ndim == rank)
        ]

    def all_constants(self) -> set[str]:
        """Return the names of constants, those of outer graphs too."""
        outer = set() if self.outer is None else self.outer.all_constants()
        return outer | set(self.constants)

    def constant(self, array: Array, stem: str = "c", plain: bool = False) -> str:
        """Return the name of a constant: an initialiser, a Constant node, or a default of an input."""
        array = np.asarray(array)
        name = self.fresh(stem)
        self.values[name] = [array] * SAMPLES
        if not plain and (self.outer is not None or self.chance(0.12)):
            tensor = numpy_helper.from_array(array, "")
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
            self.constants[name] = tensor  # not written as an initialiser: see `graph`
            return name
        root = self
        while root.outer is not None:
            root = root.outer
        root.constants[name] = numpy_helper.from_array(array, name)
        root.values[name] = [array] * SAMPLES
        if not plain and array.dtype == np.float32 and self.chance(0.02):
            root.defaults.append(name)
        return name

    def weight(self, *shape: int, scale: float = 1.0, shared: bool = True) -> str:
        """Return a constant of random numbers; now and then with a dead channel, or one that is there."""
        same = [
            n
            for n, t in self.constants.items()
            if tuple(t.dims) == shape and t.data_type == TensorProto.FLOAT and t.name
        ]
        if shared and same and self.chance(0.25):
            return str(self.pick(same))
        values = self.rng.standard_normal(shape) * scale
        kind = self.number(0, 19)
        if kind == 0 and shape:
            values[self.number(0, shape[0] - 1)] = 0.0
        elif kind == 1:
            values *= 10.0 ** self.rng.uniform(
                -2, 2, (shape[0] if shape else 1, *([1] * max(0, len(shape) - 1)))
            )
        elif kind == 2:
            values = np.abs(values)
        elif kind == 3:
            values = np.full(shape, 0.25)
        return self.constant(values.astype(np.float32), "w")

    def integers(self, *values: int) -> str:
        """Return a constant of int64, one dimension."""
        return self.constant(np.array(values, np.int64), "i")

    # Nodes

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        outputs: int | Sequence[str] = 1,
        domain: str = "",
    ) -> list[str] | None:
        """Add a node and return its outputs; None, and nothing added, where onnxruntime cannot run it."""
        names = [self.fresh() for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        given = {k: v for k, v in (attributes or {}).items() if v is not None}
        try:
            node = helper.make_node(op_type, list(inputs), names, domain=domain, **given)
        except (TypeError, ValueError):
            return None
        if self.chance(0.8):
            node.name = self.fresh(op_type.lower())
        results = self._computed(node)
        if results is None or not all(_is_fine(arrays) for arrays in results):
            return None
        self.nodes.append(node)
        self.values.update(zip([n for n in names if n], results, strict=True))
        return names

    def one(self, op_type: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str | None:
        """Add a node with one output and return it."""
        made = self.add(op_type, inputs, attributes, domain=domain)
        return None if made is None else made[0]

    def lookup(self, name: str) -> Arrays:
        """Return a tensor of this graph or one around it."""
        if name in self.values:
            return self.values[name]
        assert self.outer is not None
        return self.outer.lookup(name)

    def _computed(self, node: onnx.NodeProto) -> list[Arrays] | None:
        """Return what a node computes in each sample; None where it cannot."""
        read = [n for n in node.input if n]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                read += free_names(attribute.g)
        read = list(dict.fromkeys(read))
        tensors = {n: self.lookup(n) for n in read}
        fixed = [n for n in read if n in self.all_constants()]
        graph = helper.make_graph(
            [node],
            "one",
            [
                helper.make_tensor_value_info(n, onnx_type(a[0]), [None] * a[0].ndim)
                for n, a in tensors.items()
                if n not in fixed
            ],
            [onnx.ValueInfoProto(name=n) for n in node.output if n],
            [numpy_helper.from_array(tensors[n][0], n) for n in fixed],
        )
        try:
            session = quiet_session(model_of(graph, self.opset))
            varying = [n for n in tensors if n not in fixed]
            runs = [session.run(None, {n: tensors[n][i] for n in varying}) for i in range(SAMPLES)]
        except Exception:
            return None
        if not all(isinstance(result, np.ndarray) for run in runs for result in run):
            return None
        return [list(arrays) for arrays in zip(*runs, strict=True)]

    def graph(self, outputs: Sequence[str], name: str = "g") -> onnx.GraphProto:
        """Return the graph with these outputs."""
        infos = [
            helper.make_tensor_value_info(n, onnx_type(self.array(n)), shape)
            for n, shape in self.inputs.items()
        ]
        infos += [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shape(n)) for n in self.defaults]
        results = [
            helper.make_tensor_value_info(n, onnx_type(self.array(n)), [None] * self.array(n).ndim)
            for n in outputs
        ]
        initializers = [t for t in self.constants.values() if t.name]
        return helper.make_graph(self.nodes, name, infos, results, initializers)


def model_of(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    """Return a model of a graph."""
    used = {node.domain for node in graph.node} & set(DOMAINS)
    versions = {"com.microsoft": 1, "ai.onnx.ml": 2}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, versions[d]) for d in sorted(used))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSIONS[opset])


def _is_fine(arrays: Arrays) -> bool:
    first = arrays[0]
    if first.size == 0 or first.size > MOST_ELEMENTS:
        return False
    if first.dtype.kind != "f":
        return True
    for array in arrays:
        if not np.isfinite(array).all():
            return False
        largest = float(np.abs(array.astype(np.float64)).max())
        if largest > LARGEST or 0.0 < largest < SMALLEST:
            return False
    return True
