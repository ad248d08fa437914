"""Files with Quark's own operators, made by hand as Quark's specification and source say that it writes them.

Its wheel needs PyTorch. Attributes, names and order are those of `ExtendedQDQQuantizer` (0.13): a weight is
stored and dequantized, or rounded in blocks from float32; activations are rounded where they are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plugins.exchange.exchanging import import_plan

QUARK = "com.amd.quark"
RNG = np.random.default_rng(7)
W, V = (RNG.standard_normal(size).astype(np.float32) / 8 for size in ((96, 64), (64, 40)))


@pytest.fixture
def original(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[M, 96] x) => (float[M, 40] y) '
        "{ a = MatMul(x, w) r = Relu(a) y = MatMul(r, v) }"
    )
    model.graph.initializer.extend([numpy_helper.from_array(W, "w"), numpy_helper.from_array(V, "v")])
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def written(folder: Path, nodes: list[onnx.NodeProto], constants: dict[str, npt.NDArray[Any]]) -> Path:
    """Return the file of a model with these nodes, the float weights w and v among its constants."""
    kinds = {np.dtype(ml_dtypes.bfloat16): TensorProto.BFLOAT16}
    tensors = [
        helper.make_tensor(name, kinds[array.dtype], array.shape, array.tobytes(), raw=True)
        if array.dtype in kinds
        else numpy_helper.from_array(array, name)
        for name, array in {"w": W, "v": V, **constants}.items()
    ]
    read = {name for node in nodes for name in node.input}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 96])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 40])
    graph = helper.make_graph(nodes, "g", [x], [y], [t for t in tensors if t.name in read])
    domains = ("com.microsoft", QUARK)
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="quark.onnx")
    onnx.save(model, folder / "q.onnx")
    return folder / "q.onnx"


def pair(name: str, scale: str, point: str, extended: bool = True) -> list[onnx.NodeProto]:
    """Return the conversions of an activation."""
    prefix, domain = ("Extended", QUARK) if extended else ("", "com.microsoft")
    q, dq = f"{name}_QuantizeLinear_Output", f"{name}_DequantizeLinear_Output"
    return [
        helper.make_node(f"{prefix}QuantizeLinear", [name, scale, point], [q], domain=domain),
        helper.make_node(f"{prefix}DequantizeLinear", [q, scale, point], [dq], domain=domain),
    ]


def stored(name: str, extended: bool = True, **attributes: int) -> onnx.NodeProto:
    """Return the conversion of a weight that is stored quantized."""
    prefix, domain = ("Extended", QUARK) if extended else ("", "com.microsoft")
    inputs = [f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"]
    output = f"{name}_DequantizeLinear_Output"
    return helper.make_node(f"{prefix}DequantizeLinear", inputs, [output], domain=domain, **attributes)


def blocks(name: str, operator: str) -> onnx.NodeProto:
    return helper.make_node(operator, [name], [f"{name}_DequantizeLinear_Output"], domain=QUARK)


def products() -> list[onnx.NodeProto]:
    suffix = "_DequantizeLinear_Output"
    return [
        helper.make_node("MatMul", [f"x{suffix}", f"w{suffix}"], ["a"], name="MatMul_a"),
        helper.make_node("Relu", ["a"], ["r"], name="Relu_r"),
        helper.make_node("MatMul", [f"r{suffix}", f"v{suffix}"], ["y"], name="MatMul_y"),
    ]


def of_weight(name: str, array: npt.NDArray[np.float32], dtype: type) -> dict[str, npt.NDArray[Any]]:
    """Return the constants of a weight in symmetric integers with one scale."""
    scale = np.float32(np.abs(array).max() / np.iinfo(dtype).max)
    values = {"quantized": np.rint(array / scale).astype(dtype), "scale": scale, "zero_point": dtype(0)}
    return {f"{name}_{part}": np.asarray(value) for part, value in values.items()}


def kinds(plan: QuantPlan) -> list[Kind]:
    return [entry.kind for entry in plan.nodes.values()]


@pytest.mark.parametrize("extended", [True, False], ids=["quark", "microsoft"])
def test_conversions_of_integers_are_those_of_onnx(original: Path, tmp_path: Path, extended: bool) -> None:
    activations = {"s": np.float32(2**-12), "z": np.int16(0)}
    first, relu, last = products()
    nodes = [
        *(stored(name, extended) for name in "wv"),
        *(*pair("x", "s", "z", extended), first, relu),
        *(*pair("r", "s", "z", extended), last),
    ]
    constants = {name: np.asarray(value) for name, value in activations.items()}
    constants |= of_weight("w", W, np.int8) | of_weight("v", V, np.int8)
    plan = import_plan(written(tmp_path, nodes, constants), original, target="onnx")
    assert kinds(plan) == [Kind.QUANTIZED, Kind.PASS_THROUGH, Kind.QUANTIZED]
    assert plan.tensors["x"].qtype.name == "int16"
    assert plan.tensors["x"].scale.tolist() == [2**-12]
    assert plan.nodes["MatMul_a"].inputs.keys() <= {1}


def in_bfloat16(weights: str, activations: str) -> tuple[list[onnx.NodeProto], dict[str, npt.NDArray[Any]]]:
    """Return nodes with conversions to bfloat16, and their constants."""
    first, relu, last = products()
    nodes = [stored(name) for name in weights]
    nodes += [*pair("x", "s", "z")] if "x" in activations else []
    nodes += [first, relu, *(pair("r", "s", "z") if "r" in activations else []), last]
    constants = {"s": np.asarray(np.float32(1)), "z": np.zeros((), ml_dtypes.bfloat16)}
    for name in weights:
        array = {"w": W, "v": V}[name]
        constants |= {f"{name}_quantized": array.astype(ml_dtypes.bfloat16)}
        constants |= {f"{name}_scale": constants["s"], f"{name}_zero_point": constants["z"]}
    return nodes, constants


def test_bfloat16_beside_integers_is_float32_and_told(original: Path, tmp_path: Path) -> None:
    nodes, constants = in_bfloat16("v", "r")
    constants |= {"p": np.asarray(np.float32(2**-5)), "q": np.asarray(np.int8(0))}
    nodes = [stored("w", extended=False), *pair("x", "p", "q", extended=False), *nodes]
    plan = import_plan(
        written(tmp_path, nodes, constants | of_weight("w", W, np.int8)), original, target="tensorrt"
    )
    assert kinds(plan) == [Kind.QUANTIZED, Kind.FLOAT, Kind.FLOAT]
    assert plan.config.float_type == "float32"
    (told,) = (found.text for found in plan.findings if "bfloat16" in found.text)
    assert told.startswith("floats of q.onnx are bfloat16, and float32 here; set float_type: float16")


@pytest.mark.parametrize("operator", ["MXQuantizeDequantize", "BFPQuantizeDequantize"])
def test_blocks_are_refused_in_one_line(operator: str, original: Path, tmp_path: Path) -> None:
    first, relu, last = products()
    nodes = [*(blocks(name, operator) for name in "wvx"), first, relu, blocks("r", operator), last]
    with pytest.raises(ModelError) as error:
        import_plan(written(tmp_path, nodes, {}), original, target="onnx")
    assert f"q.onnx: what it says of quantization cannot be read: 4 {operator}" in str(error.value)
    assert "MX and BFP blocks are not read" in str(error.value)
    assert "\n" not in str(error.value)
