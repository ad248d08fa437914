"""Networks with random weights for the kinds that no package ships with weights: speed and SQNR only.

Weights are seeded and scaled so that activations keep their size through the layers; the samples are smooth
noise. `MODELS` has the records, in the form of the real models'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from record import Feed, RealModel, written_once

OPSET = 17
Shape = Sequence[int | str]


class Net:
    """A graph that is written node by node; each method returns the name of its output.

    Attributes:
        dims: of its convolutions.
    """

    def __init__(self, seed: int, dims: int = 2) -> None:
        self.dims = dims
        self._rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Add a node with one output."""
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def constant(self, values: np.ndarray) -> str:
        """Add an initializer."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def weight(self, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """Add a weight whose outputs are as large as its inputs (He et al. 2015)."""
        return self.constant(self._rng.normal(0, (gain / fan_in) ** 0.5, shape).astype(np.float32))

    def bias(self, size: int) -> str:
        """Add a small bias."""
        return self.constant(self._rng.normal(0, 0.05, size).astype(np.float32))

    def slopes(self, channels: int) -> str:
        """Add the slopes of a PRelu, (channels, 1, 1)."""
        return self.constant(self._rng.uniform(0.05, 0.3, (channels, 1, 1)).astype(np.float32))

    def conv(
        self,
        x: str,
        into: int,
        out: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
    ) -> str:
        """Add a convolution, padded as for the same size."""
        dims = self.dims
        shape = [out, into // groups, *[kernel] * dims]
        weight = self.weight(shape, into // groups * kernel**dims)
        return self.node(
            "Conv",
            x,
            weight,
            self.bias(out),
            group=groups,
            kernel_shape=[kernel] * dims,
            pads=[kernel // 2] * 2 * dims,
            strides=[stride] * dims,
        )

    def upsampled(self, x: str, into: int, out: int, kernel: int) -> str:
        """Add a transposed convolution of stride 2 that doubles height and width."""
        weight = self.weight([into, out, kernel, kernel], into * kernel * kernel // 4)
        pads = [(kernel - 2) // 2] * 4
        return self.node(
            "ConvTranspose",
            x,
            weight,
            self.bias(out),
            kernel_shape=[kernel] * 2,
            strides=[2, 2],
            pads=pads,
        )

    def dense(self, x: str, into: int, out: int) -> str:
        """Add a matrix product with a bias."""
        return self.node("Add", self.node("MatMul", x, self.weight([into, out], into, 1.0)), self.bias(out))

    def model(self, inputs: dict[str, Shape], output: str) -> onnx.ModelProto:
        """Return the model, with the shapes of all its tensors."""
        values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
        result = helper.make_empty_tensor_value_info(output)
        graph = helper.make_graph(self.nodes, "synthetic", values, [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(inferred)
        return inferred


def mobile() -> onnx.ModelProto:
    """MobileNetV3-Large's kinds of blocks (Howard et al. 2019, table 1): HardSwish, squeeze and excite."""
    net = Net(51)
    x, channels = net.node("HardSwish", net.conv("x", 3, 16, 3, stride=2)), 16
    rows = (  # kernel, expanded, out, squeeze and excite, HardSwish, stride
        (3, 16, 16, False, False, 1),
        (3, 64, 24, False, False, 2),
        (3, 72, 24, False, False, 1),
        (5, 72, 40, True, False, 2),
        (5, 120, 40, True, False, 1),
        (3, 240, 80, False, True, 2),
        (3, 200, 80, False, True, 1),
        (3, 480, 112, True, True, 1),
        (5, 672, 160, True, True, 2),
        (5, 960, 160, True, True, 1),
    )
    for kernel, expanded, out, excite, hard, stride in rows:
        act = "HardSwish" if hard else "Relu"
        y = net.node(act, net.conv(x, channels, expanded, 1))
        y = net.node(act, net.conv(y, expanded, expanded, kernel, stride=stride, groups=expanded))
        if excite:
            squeezed = net.node(
                "Relu", net.conv(net.node("GlobalAveragePool", y), expanded, expanded // 4, 1)
            )
            gate = net.conv(squeezed, expanded // 4, expanded, 1)
            y = net.node("Mul", y, net.node("HardSigmoid", gate, alpha=1 / 6, beta=0.5))
        y = net.conv(y, expanded, out, 1)
        x = net.node("Add", x, y) if stride == 1 and out == channels else y
        channels = out
    x = net.node("HardSwish", net.conv(x, channels, 960, 1))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    x = net.node("HardSwish", net.node("Gemm", x, net.weight([960, 1280], 960), net.bias(1280)))
    x = net.node("Gemm", x, net.weight([1280, 1000], 1280), net.bias(1000))
    return net.model({"x": [1, 3, 224, 224]}, x)


def super_resolution() -> onnx.ModelProto:
    """FSRCNN's layers (Dong et al. 2016: 56, 12, four times 12, 56) with PRelu; DepthToSpace at the end."""
    net = Net(52)
    x = net.node("PRelu", net.conv("x", 1, 56, 5), net.slopes(56))
    x = net.node("PRelu", net.conv(x, 56, 12, 1), net.slopes(12))
    for _ in range(4):
        x = net.node("PRelu", net.conv(x, 12, 12, 3), net.slopes(12))
    x = net.node("PRelu", net.conv(x, 12, 56, 1), net.slopes(56))
    x = net.node("DepthToSpace", net.conv(x, 56, 4, 5), blocksize=2)
    return net.model({"x": [1, 1, 128, 128]}, x)


def u_net() -> onnx.ModelProto:
    """An encoder and a decoder with transposed convolutions of kernel 4 and of kernel 2, joined by Concat."""
    net = Net(53)

    def twice(x: str, into: int, out: int) -> str:
        x = net.node("Relu", net.conv(x, into, out, 3))
        return net.node("Relu", net.conv(x, out, out, 3))

    skips, x, channels = [], "x", 3
    for out in (16, 32, 64):
        x = twice(x, channels, out)
        skips.append((x, out))
        x, channels = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), out
    x, channels = twice(x, channels, 128), 128
    for kernel, (skip, out) in zip((4, 2, 4), reversed(skips), strict=True):
        x = net.node("Concat", net.upsampled(x, channels, out, kernel), skip, axis=1)
        x, channels = twice(x, 2 * out, out), out
    return net.model({"x": [1, 3, 128, 128]}, net.node("Sigmoid", net.conv(x, channels, 1, 1)))


def speech() -> onnx.ModelProto:
    """Convolutions over frames, two layers of GRU in both directions, scores of characters for each frame."""
    net, hidden = Net(54, dims=1), 192
    x = net.node("Relu", net.conv("x", 80, 192, 5, stride=2))
    x = net.node("Relu", net.conv(x, 192, 192, 3))
    x, size = net.node("Transpose", x, perm=[2, 0, 1]), 192
    for _ in range(2):
        w = net.weight([2, 3 * hidden, size], size, 1.0)
        r = net.weight([2, 3 * hidden, hidden], hidden, 1.0)
        b = net.constant(np.zeros((2, 6 * hidden), np.float32))
        y = net.node("GRU", x, w, r, b, hidden_size=hidden, direction="bidirectional", linear_before_reset=1)
        joined = net.node("Transpose", y, perm=[0, 2, 1, 3])
        size = 2 * hidden
        x = net.node("Reshape", joined, net.constant(np.array([0, 0, size], np.int64)))
    return net.model({"x": [1, 80, 200]}, net.node("Softmax", net.dense(x, size, 64), axis=-1))


def encoder() -> onnx.ModelProto:
    """Four layers of a transformer encoder, 128 places of 256 values, 4 heads, Gelu by Erf."""
    net, width, heads, places = Net(55), 256, 4, 128
    one, zero = net.constant(np.ones(width, np.float32)), net.constant(np.zeros(width, np.float32))

    def norm(x: str) -> str:
        return net.node("LayerNormalization", x, one, zero, axis=-1, epsilon=1e-5)

    def split(x: str, perm: list[int]) -> str:
        shape = net.constant(np.array([1, places, heads, width // heads], np.int64))
        return net.node("Transpose", net.node("Reshape", x, shape), perm=perm)

    x = "x"
    for _ in range(4):
        normed = norm(x)
        query, value = (split(net.dense(normed, width, width), [0, 2, 1, 3]) for _ in range(2))
        key = split(net.dense(normed, width, width), [0, 2, 3, 1])
        scale = net.constant(np.float32((width // heads) ** -0.5))
        weights = net.node("Softmax", net.node("Mul", net.node("MatMul", query, key), scale), axis=-1)
        mixed = net.node("Transpose", net.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        flat = net.node("Reshape", mixed, net.constant(np.array([1, places, width], np.int64)))
        x = net.node("Add", x, net.dense(flat, width, width))
        inner = net.dense(norm(x), width, 4 * width)
        root = net.constant(np.float32(2**0.5))
        erf = net.node("Erf", net.node("Div", inner, root))
        gelu = net.node("Mul", inner, net.node("Add", erf, net.constant(np.float32(1))))
        halved = net.node("Mul", gelu, net.constant(np.float32(0.5)))
        x = net.node("Add", x, net.dense(halved, 4 * width, width))
    return net.model({"x": [1, places, width]}, norm(x))


def _smooth(seed: int, count: int, shape: Sequence[int]) -> Iterator[tuple[Feed, None]]:
    """Yield noise of several lengths along the last axis, added up; another contrast in each sample."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        sample = np.zeros(shape, np.float64)
        for cells in (4, 16, shape[-1]):
            drawn = rng.normal(size=(*shape[:-1], cells))
            sample += drawn[..., np.arange(shape[-1]) * cells // shape[-1]]
        yield {"x": (rng.uniform(0.3, 0.8) * sample).astype(np.float32)}, None


def _record(
    name: str, kind: str, write: Callable[[], onnx.ModelProto], shape: Sequence[int], seed: int
) -> RealModel:
    return RealModel(
        name=name,
        source="synthetic.py (random weights)",
        kind=kind,
        task="16 samples of smooth noise: speed and SQNR only",
        path=lambda folder: written_once(folder / f"{name}.onnx", write),
        samples=_smooth,
        splits={"calibration": (seed, 16, shape), "evaluation": (seed + 1, 16, shape)},
        count=None,
    )


MODELS = {
    record.name: record
    for record in (
        _record("mobile-v3", "mobile net, HardSwish, squeeze and excite", mobile, (1, 3, 224, 224), 61),
        _record("prelu-sr", "super-resolution with PRelu", super_resolution, (1, 1, 128, 128), 63),
        _record("u-net", "decoder with ConvTranspose", u_net, (1, 3, 128, 128), 65),
        _record("gru-speech", "recurrent (GRU), speech", speech, (1, 80, 200), 67),
        _record("encoder", "transformer encoder", encoder, (1, 128, 256), 69),
    )
}
