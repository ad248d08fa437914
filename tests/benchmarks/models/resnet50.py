"""ResNet-50 as the onnx package ships it for its tests, without weights: seeded ones, for speed only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import text
from onnx import numpy_helper
from PIL import Image
from record import Feed, RealModel, package_folder, written_once


def with_weights() -> onnx.ModelProto:
    """Return the model with weights drawn so that activations keep their size through the layers.

    They stand in place of the constants that fill it.
    """
    light = onnx.load(package_folder("onnx") / "backend/test/data/light/light_resnet50.onnx")
    rng = np.random.default_rng(41)
    shapes = {
        i.name: tuple(numpy_helper.to_array(i)) for i in light.graph.initializer if i.name.endswith("__SHAPE")
    }
    role = {}
    for node in light.graph.node:
        for place, name in enumerate(node.input):
            role.setdefault(name, (node.op_type, place))
    made = onnx.ModelProto()
    made.CopyFrom(light)
    del made.graph.node[:], made.graph.initializer[:]
    for node in light.graph.node:
        if node.op_type != "ConstantOfShape":
            made.graph.node.append(node)
            continue
        name = node.output[0]
        value = _weight(rng, role[name], shapes[node.input[0]])
        made.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    kept = [i for i in light.graph.initializer if not i.name.endswith("__SHAPE")]
    made.graph.initializer.extend(kept)
    filled = {i.name for i in made.graph.initializer}
    inputs = [i for i in light.graph.input if i.name not in filled and not i.name.endswith("__SHAPE")]
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    made.ir_version = max(made.ir_version, 4)  # from here on, initializers need not be inputs
    onnx.checker.check_model(made)
    return made


def _weight(rng: np.random.Generator, role: tuple[str, int], shape: tuple[int, ...]) -> np.ndarray:
    kind, place = role
    if kind == "BatchNormalization":
        # inputs: x, scale, bias, mean, variance
        ranges = {1: (0.3, 0.9), 2: (-0.2, 0.2), 3: (-0.1, 0.1), 4: (0.6, 1.4)}
        return rng.uniform(*ranges[place], shape)
    if len(shape) < 2:
        return rng.normal(0, 0.01, shape)
    fan_in = int(np.prod(shape[1:]))
    return rng.normal(0, (2 / fan_in) ** 0.5, shape)


def _pictures(seed: int, count: int) -> Iterator[tuple[Feed, None]]:
    """Pictures of text on coloured paper, as ImageNet models take them."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        line = text.line_image(rng, text.line_text(rng, 0), text.CALIBRATION_FONTS)
        picture = np.asarray(Image.fromarray(line).resize((224, 224)), np.float32) / 255
        scaled = (picture - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        yield {"gpu_0/data_0": scaled.transpose(2, 0, 1)[None].astype(np.float32)}, None


MODEL = RealModel(
    name="resnet50",
    source="onnx (the graph; weights are random, seeded)",
    kind="classifier (random weights)",
    task="32 pictures at 224 x 224: speed and SQNR only",
    path=lambda folder: written_once(folder / "resnet50.onnx", with_weights),
    samples=_pictures,
    splits={"calibration": (42, 32), "evaluation": (43, 32)},
    count=None,
    helpers=("text",),
)
