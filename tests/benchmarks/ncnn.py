"""Plain ncnn models (.param and .bin) as ONNX: the layers that super-resolution nets are made of.

The file formats are described in ncnn's documentation ("param and model file structure", "operators"). Only
what the nets here need is read; anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HALF = 0x01306B47  # flag in front of weights stored as float16


class _Weights:
    """The .bin file, read from front to back."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def plain(self, count: int) -> np.ndarray:
        values = np.frombuffer(self.content, "<f4", count, self.place)
        self.place += 4 * count
        return values

    def flagged(self, count: int) -> np.ndarray:
        """Return weights after their flag: float32, or float16 filled up to four bytes."""
        flag = int.from_bytes(self.content[self.place : self.place + 4], "little")
        self.place += 4
        if flag == 0:
            return self.plain(count)
        if flag != HALF:
            raise ValueError(f"weights with flag {flag:#x}: only float32 and float16 are read here")
        values = np.frombuffer(self.content, "<f2", count, self.place).astype(np.float32)
        self.place += 2 * count + 2 * count % 4
        return values


Layer = dict[int, str]


class _Graph:
    def __init__(self, weights: _Weights) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.alias: dict[str, str] = {}

    def op(self, kind: str, inputs: list[str], output: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{output}", **attributes))

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))
        return name


def _convolution(g: _Graph, fields: Layer, inputs: list[str], outputs: list[str], transposed: bool) -> None:
    """Fields 0: filters, 1: kernel, 3: stride, 4: padding, 5: has a bias, 6: weights, 9: activation."""
    filters, kernel, stride, pad = (
        int(fields.get(k, d)) for k, d in ((0, "0"), (1, "0"), (3, "1"), (4, "0"))
    )
    out = outputs[0]
    flat = g.weights.flagged(int(fields[6])).reshape(filters, -1, kernel, kernel)
    weight = flat.transpose(1, 0, 2, 3) if transposed else flat
    names = [inputs[0], g.constant(f"{out}.weight", weight)]
    if int(fields.get(5, "0")):
        names.append(g.constant(f"{out}.bias", g.weights.plain(filters)))
    activation = int(fields.get(9, "0"))
    linear = f"{out}.linear" if activation else out
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    g.op("ConvTranspose" if transposed else "Conv", names, linear, **attributes)
    if activation == 2:  # leaky relu; its slope follows the count in field 10
        slope = float(fields[-23310].split(",")[1])
        g.op("LeakyRelu", [linear], out, alpha=slope)
    elif activation:
        raise ValueError(f"layer of {out}: activation {activation} is not read here")


def _prelu(g: _Graph, fields: Layer, inputs: list[str], outputs: list[str]) -> None:
    slope = g.weights.plain(int(fields[0])).reshape(-1, 1, 1)
    g.op("PRelu", [inputs[0], g.constant(f"{outputs[0]}.slope", slope)], outputs[0])


def _shuffle(g: _Graph, fields: Layer, inputs: list[str], outputs: list[str]) -> None:
    g.op("DepthToSpace", inputs, outputs[0], blocksize=int(fields[0]), mode="CRD")


def _resize(g: _Graph, fields: Layer, inputs: list[str], outputs: list[str]) -> None:
    """Field 0: 1 nearest; 1 and 2: scales."""
    if int(fields[0]) != 1:
        raise ValueError(f"layer of {outputs[0]}: resize type {fields[0]} is not read here")
    scales = g.constant(f"{outputs[0]}.scales", np.array([1, 1, float(fields[1]), float(fields[2])]))
    g.op(
        "Resize",
        [inputs[0], "", scales],
        outputs[0],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _binary(g: _Graph, fields: Layer, inputs: list[str], outputs: list[str]) -> None:
    if int(fields.get(0, "0")) != 0:
        raise ValueError(f"layer of {outputs[0]}: binary operation {fields[0]} is not read here")
    g.op("Add", inputs, outputs[0])


def _split(g: _Graph, fields: Layer, inputs: list[str], outputs: list[str]) -> None:
    for output in outputs:
        g.alias[output] = inputs[0]


LAYERS: dict[str, Callable[[_Graph, Layer, list[str], list[str]], None]] = {
    "Convolution": lambda *given: _convolution(*given, transposed=False),
    "Deconvolution": lambda *given: _convolution(*given, transposed=True),
    "PReLU": _prelu,
    "PixelShuffle": _shuffle,
    "Interp": _resize,
    "BinaryOp": _binary,
    "Split": _split,
}


def to_onnx(param: Path) -> onnx.ModelProto:
    """Return the net of a .param file, with the weights of the .bin beside it, as ONNX of opset 17.

    Input "image" and output "picture" are float32 (batch, 3, height, width).

    Raises:
        ValueError: a layer that is not read here, or weights left over.
    """
    lines = param.read_text(encoding="ascii").splitlines()
    weights = _Weights(param.with_suffix(".bin").read_bytes())
    g = _Graph(weights)
    last = ""
    for line in lines[2:]:
        kind, _, count_in, count_out, *rest = line.split()
        ends = int(count_in), int(count_in) + int(count_out)
        inputs = [g.alias.get(name, name) for name in rest[: ends[0]]]
        outputs = rest[ends[0] : ends[1]]
        fields = {int(k): v for k, v in (pair.split("=") for pair in rest[ends[1] :])}
        if kind == "Input":
            g.alias[outputs[0]] = "image"
        elif kind in LAYERS:
            LAYERS[kind](g, fields, inputs, outputs)
            last = outputs[0]
        else:
            raise ValueError(f"{param.name}: layer {kind} is not read here")
    if weights.place != len(weights.content):
        raise ValueError(f"{param.name}: {len(weights.content) - weights.place} bytes of weights are left")
    g.nodes[-1].output[0] = "picture"
    assert g.nodes[-1].name.endswith(last)
    ends_of = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, *sides])
        for name, sides in (("image", ["height", "width"]), ("picture", ["out_height", "out_width"]))
    ]
    graph = helper.make_graph(g.nodes, param.stem, ends_of[:1], ends_of[1:], g.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
