"""Trains the example network on scikit-learn's handwritten digits and writes everything in this folder.

    python examples/digits/train.py [--out FOLDER] [--epochs N]

Writes `model.onnx`, `calibration/*.npz` (64 samples), `heldout/*.npz` (400 samples) and
`heldout/labels.txt`. Needs numpy, scikit-learn and onnx; about a minute on one core.

The seed is fixed, so the split and the samples are the same everywhere and a second run on one machine
gives the same model. Another processor or BLAS rounds matrix products differently: the weights then
differ, the accuracy hardly does. The committed model was made with numpy 2.4.6 and scikit-learn 1.9.1.

The network, with images of 8 x 8 grey levels in [0, 1]:

    stem       Conv 3x3 to 32, BatchNorm, Relu
    block      Conv 3x3, BatchNorm, Relu, Conv 3x3, BatchNorm, Add of the block's input, Relu, MaxPool 2
    gate       Tanh(Conv 3x3 to 64) * Sigmoid(Conv 3x3 to 64), MaxPool 2
    head       Flatten, Gemm to 10 logits

Inside the trainer activations are [batch, height, width, channel] and convolution weights
[3 * 3 * in, out]; `write_model` turns both into what ONNX wants. An operation returns its output and a
function `back(grad) -> grad of the input` that stores the gradients of its parameters on the way.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

Array = np.ndarray
Tensors = dict[str, Array]
Back = Callable[[Array], Array]

SEED = 7
CHANNELS, GATE = 32, 64
CALIBRATION, HELDOUT = 64, 400
BATCH, RATE, DECAY = 64, 2e-3, 1e-4
MOMENTUM, EPSILON = 0.1, 1e-5


def split() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return (images, labels) for training and for holding out; images are float32 [n, 1, 8, 8]."""
    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, np.newaxis]
    order = np.random.RandomState(SEED).permutation(len(images))
    held, rest = order[:HELDOUT], order[HELDOUT:]
    return (images[rest], data.target[rest]), (images[held], data.target[held])


def initial_parameters(rng: np.random.RandomState) -> Tensors:
    """Return the parameters before training: He's normal weights, BatchNorm as identity."""
    params: Tensors = {}
    for name, inputs, outputs in (
        ("stem.conv", 1, CHANNELS),
        ("block.conv1", CHANNELS, CHANNELS),
        ("block.conv2", CHANNELS, CHANNELS),
        ("gate.filter", CHANNELS, GATE),
        ("gate.gate", CHANNELS, GATE),
    ):
        params[f"{name}.weight"] = rng.normal(0, np.sqrt(2 / (9 * inputs)), (9 * inputs, outputs))
        params[f"{name}.bias"] = np.zeros(outputs)
    for name in ("stem.norm", "block.norm1", "block.norm2"):
        params[f"{name}.weight"], params[f"{name}.bias"] = np.ones(CHANNELS), np.zeros(CHANNELS)
    params["head.weight"] = rng.normal(0, np.sqrt(1 / (4 * GATE)), (4 * GATE, 10))
    params["head.bias"] = np.zeros(10)
    return {name: value.astype(np.float32) for name, value in params.items()}


def linear(params: Tensors, grads: Tensors, name: str, x: Array) -> tuple[Array, Back]:
    """Return x @ weight + bias over the last axis."""
    weight = params[f"{name}.weight"]

    def back(grad: Array) -> Array:
        rows = grad.reshape(-1, grad.shape[-1])
        grads[f"{name}.weight"] = x.reshape(-1, x.shape[-1]).T @ rows
        grads[f"{name}.bias"] = rows.sum(0)
        return grad @ weight.T

    return x @ weight + params[f"{name}.bias"], back


def conv(params: Tensors, grads: Tensors, name: str, x: Array) -> tuple[Array, Back]:
    """Return the 3x3 convolution of x with one pixel of zero padding."""
    batch, height, width, channels = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = sliding_window_view(padded, (3, 3), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    y, linear_back = linear(params, grads, name, windows.reshape(batch, height, width, 9 * channels))

    def back(grad: Array) -> Array:
        patches = linear_back(grad).reshape(batch, height, width, 3, 3, channels)
        total = np.zeros_like(padded)
        for row in range(3):
            for column in range(3):
                total[:, row : row + height, column : column + width] += patches[:, :, :, row, column]
        return total[:, 1:-1, 1:-1]

    return y, back


def norm(params: Tensors, grads: Tensors, running: Tensors, name: str, x: Array) -> tuple[Array, Back]:
    """Return batch normalisation of x by the batch's own statistics; `running` takes the averages."""
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    for key, value in ((f"{name}.mean", mean), (f"{name}.variance", variance)):
        running[key] = value if key not in running else running[key] * (1 - MOMENTUM) + value * MOMENTUM
    inverse = 1 / np.sqrt(variance + EPSILON)
    unit = (x - mean) * inverse
    weight = params[f"{name}.weight"]

    def back(grad: Array) -> Array:
        grads[f"{name}.weight"] = (grad * unit).sum((0, 1, 2))
        grads[f"{name}.bias"] = grad.sum((0, 1, 2))
        centred = grad - grad.mean((0, 1, 2)) - unit * (grad * unit).mean((0, 1, 2))
        return centred * (weight * inverse)

    return unit * weight + params[f"{name}.bias"], back


def relu(x: Array) -> tuple[Array, Back]:
    """Return max(x, 0)."""
    return np.maximum(x, 0), lambda grad: grad * (x > 0)


def max_pool(x: Array) -> tuple[Array, Back]:
    """Return the maximum of each 2 x 2 square; a tie shares the gradient."""
    batch, height, width, channels = x.shape
    squares = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    y = squares.max((2, 4), keepdims=True)
    hits = squares == y
    share = hits / hits.sum((2, 4), keepdims=True, dtype=np.float32)
    return y[:, :, 0, :, 0], lambda grad: (share * grad[:, :, None, :, None]).reshape(x.shape)


def forward(params: Tensors, grads: Tensors, running: Tensors, x: Array) -> tuple[Array, Back]:
    """Return the logits of images x [batch, 8, 8, 1] in training, and the way back through all layers."""
    x, stem_conv = conv(params, grads, "stem.conv", x)
    x, stem_norm = norm(params, grads, running, "stem.norm", x)
    shortcut, stem_relu = relu(x)
    x, conv1 = conv(params, grads, "block.conv1", shortcut)
    x, norm1 = norm(params, grads, running, "block.norm1", x)
    x, relu1 = relu(x)
    x, conv2 = conv(params, grads, "block.conv2", x)
    x, norm2 = norm(params, grads, running, "block.norm2", x)
    x, relu2 = relu(x + shortcut)
    x, pool1 = max_pool(x)
    content, content_conv = conv(params, grads, "gate.filter", x)
    opening, opening_conv = conv(params, grads, "gate.gate", x)
    content, opening = np.tanh(content), 1 / (1 + np.exp(-opening))
    x, pool2 = max_pool(content * opening)
    logits, head = linear(params, grads, "head", x.transpose(0, 3, 1, 2).reshape(len(x), -1))

    def back(grad: Array) -> Array:
        gated = head(grad).reshape(len(x), GATE, 2, 2).transpose(0, 2, 3, 1)
        gated = pool2(gated)
        joined = content_conv(gated * opening * (1 - content**2))
        joined += opening_conv(gated * content * opening * (1 - opening))
        summed = relu2(pool1(joined))
        inner = conv1(norm1(relu1(conv2(norm2(summed)))))
        return stem_conv(stem_norm(stem_relu(inner + summed)))

    return logits, back


def loss_gradient(logits: Array, labels: Array) -> tuple[float, Array]:
    """Return the mean softmax cross entropy and its gradient with respect to the logits."""
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    chances = exponents / exponents.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(chances[rows, labels]).mean())
    chances[rows, labels] -= 1
    return loss, chances / np.float32(len(labels))


def shifted(images: Array, rng: np.random.RandomState) -> Array:
    """Return each image [8, 8, 1] moved by up to one pixel in each direction."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corners = rng.randint(0, 3, (len(images), 2))
    return np.stack([padded[i, r : r + 8, c : c + 8] for i, (r, c) in enumerate(corners)])


def batches(count: int, rng: np.random.RandomState) -> Iterator[Array]:
    """Yield the indices of one epoch, shuffled, in full batches."""
    order = rng.permutation(count)
    yield from (order[start : start + BATCH] for start in range(0, count - BATCH + 1, BATCH))


def train(images: Array, labels: Array, epochs: int) -> tuple[Tensors, Tensors]:
    """Return parameters and running statistics after training with Adam and a cosine learning rate."""
    rng = np.random.RandomState(SEED)
    params, running = initial_parameters(rng), Tensors()
    first = {name: np.zeros_like(value) for name, value in params.items()}
    second = {name: np.zeros_like(value) for name, value in params.items()}
    step, steps = 0, epochs * (len(images) // BATCH)
    for epoch in range(epochs):
        losses = []
        for rows in batches(len(images), rng):
            grads: Tensors = {}
            logits, back = forward(params, grads, running, shifted(images[rows], rng))
            loss, grad = loss_gradient(logits, labels[rows])
            back(grad)
            losses.append(loss)
            rate = RATE * (0.5 + 0.5 * np.cos(np.pi * step / steps))
            step += 1
            for name, value in params.items():
                first[name] = 0.9 * first[name] + 0.1 * grads[name]
                second[name] = 0.99 * second[name] + 0.01 * grads[name] ** 2
                size = np.sqrt(second[name] / (1 - 0.99**step)) + 1e-8
                update = rate * (first[name] / (1 - 0.9**step) / size + DECAY * value)
                params[name] = (value - update).astype(np.float32)
        print(f"epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.4f}", flush=True)
    return params, running


def build_model(params: Tensors, running: Tensors) -> onnx.ModelProto:
    """Return the ONNX model: opset 17, a free batch dimension, BatchNorm left for a tool to fold."""
    constants: Tensors = {}
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, name: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    def add_conv(name: str, x: str) -> str:
        weight = params[f"{name}.weight"]
        constants[f"{name}.weight"] = weight.reshape(3, 3, -1, weight.shape[1]).transpose(3, 2, 0, 1)
        constants[f"{name}.bias"] = params[f"{name}.bias"]
        return add("Conv", name, x, f"{name}.weight", f"{name}.bias", kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def add_norm(name: str, x: str) -> str:
        constants.update({f"{name}.{key}": params[f"{name}.{key}"] for key in ("weight", "bias")})
        constants.update({f"{name}.{key}": running[f"{name}.{key}"] for key in ("mean", "variance")})
        parts = [f"{name}.{key}" for key in ("weight", "bias", "mean", "variance")]
        return add("BatchNormalization", name, x, *parts, epsilon=EPSILON)

    def add_pool(name: str, x: str) -> str:
        return add("MaxPool", name, x, kernel_shape=[2, 2], strides=[2, 2])

    shortcut = add("Relu", "stem.relu", add_norm("stem.norm", add_conv("stem.conv", "image")))
    x = add("Relu", "block.relu1", add_norm("block.norm1", add_conv("block.conv1", shortcut)))
    x = add("Add", "block.add", add_norm("block.norm2", add_conv("block.conv2", x)), shortcut)
    x = add_pool("block.pool", add("Relu", "block.relu2", x))
    content = add("Tanh", "gate.tanh", add_conv("gate.filter", x))
    opening = add("Sigmoid", "gate.sigmoid", add_conv("gate.gate", x))
    x = add_pool("gate.pool", add("Mul", "gate.mul", content, opening))
    x = add("Flatten", "head.flatten", x)
    constants.update({"head.weight": params["head.weight"], "head.bias": params["head.bias"]})
    nodes.append(helper.make_node("Gemm", [x, "head.weight", "head.bias"], ["logits"], name="head"))

    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.ascontiguousarray(v, np.float32), k) for k, v in constants.items()],
    )
    # IR version 8 came with opset 17: any onnxruntime since 1.12 loads the file.
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="examples/digits"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def write_samples(folder: Path, images: Array, batch: int) -> None:
    """Write images [n, 1, 8, 8] as one .npz for each feed of `batch` images."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(0, len(images), batch):
        np.savez_compressed(folder / f"{index // batch:02d}.npz", image=images[index : index + batch])


def main() -> None:
    """Train, write, and print the accuracy on the held-out samples."""
    parser = argparse.ArgumentParser(description="Train the digits example and write its model and samples.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write into")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images")
    options = parser.parse_args()
    (images, labels), (held_images, held_labels) = split()
    params, running = train(images.transpose(0, 2, 3, 1), labels, options.epochs)
    write_samples(options.out / "calibration", images[:CALIBRATION], batch=8)
    write_samples(options.out / "heldout", held_images, batch=50)
    (options.out / "heldout" / "labels.txt").write_text("".join(f"{label}\n" for label in held_labels))
    onnx.save(build_model(params, running), options.out / "model.onnx")

    import onnxruntime

    session = onnxruntime.InferenceSession(options.out / "model.onnx", providers=["CPUExecutionProvider"])
    logits = session.run(None, {"image": held_images})[0]
    print(f"accuracy on {HELDOUT} held-out samples: {(logits.argmax(1) == held_labels).mean():.4f}")


if __name__ == "__main__":
    main()
