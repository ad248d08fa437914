"""A small network that is being built: a chain of nodes, some of which are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21


@dataclass
class Net:
    """A network that is being built, whose nodes follow each other.

    Attributes:
        kernel: what is measured, for messages.
        shape: of the graph input x.
        context: ":blocked" or "" : what layout the measured nodes find.
        floats: operators that stay float in the quantized form though they need not.
        dynamic: whether products are quantized dynamically.
    """

    kernel: str
    shape: tuple[int, ...]
    context: str = ""
    floats: tuple[str, ...] = ()
    dynamic: bool = False
    here: str = "x"
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)

    def add(self, op: str, *more: str, measure: bool = True, **attributes: Any) -> Net:
        """Append a node that reads the output of the one before it, and the names in `more`."""
        name = f"n{len(self.nodes)}"
        outputs = [f"t{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, [self.here, *more], outputs, name, **attributes))
        self.here = outputs[0]
        if measure:
            self.measured.add(name)
        return self

    def weight(self, *shape: int) -> str:
        """Return the name of a new random constant."""
        fan_in = max(1.0, float(np.prod(shape[1:])))
        values = np.random.default_rng(len(self.constants)).standard_normal(shape) / np.sqrt(fan_in)
        return self.constant(values.astype(np.float32))

    def number(self, value: float) -> str:
        """Return the name of a new constant, a single number."""
        return self.constant(np.asarray(value, np.float32))

    def integers(self, *values: int) -> str:
        """Return the name of a new constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def constant(self, array: npt.NDArray[Any]) -> str:
        """Return the name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def input(self, *shape: int) -> str:
        """Return the name of a further graph input."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: Sequence[int],
        *,
        group: int = 1,
        stride: int = 1,
        measure: bool = True,
    ) -> Net:
        """Append a convolution that keeps the size of the picture, with a bias."""
        pads = [k // 2 for k in kernel]
        weight, bias = self.weight(outputs, inputs // group, *kernel), self.weight(outputs)
        strides = [stride] * len(kernel)
        return self.add(
            "Conv",
            weight,
            bias,
            measure=measure,
            group=group,
            pads=[*pads, *pads],
            strides=strides,
            kernel_shape=kernel,
        )

    def model(self) -> onnx.ModelProto:
        """Return the network as a model with the result of its last node as output."""
        graph_inputs = {"x": self.shape, **self.inputs}
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in graph_inputs.items()],
            [helper.make_tensor_value_info(self.here, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    def sample(self) -> Mapping[str, npt.NDArray[np.float32]]:
        """Return random inputs between 0 and 1."""
        rng = np.random.default_rng(0)
        return {n: rng.random(s, np.float32) for n, s in {"x": self.shape, **self.inputs}.items()}
