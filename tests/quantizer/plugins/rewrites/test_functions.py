"""Functions written out are those of the operators, within the errors that the module states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.plugins.rewrites.functions import written_out

from ...networks import network

Doubles = npt.NDArray[np.float64]
ROUNDING = 2.0**-24
EDGES = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1e-38,
    1e-7,
    -1e-7,
    1.0,
    -1.0,
    19.99,
    20.01,
    -20.0,
    59.9,
    60.1,
    -59.9,
    -60.1,
]
EDGES += [87.0, -87.0, 89.0, -89.0, 104.0, -104.0, 1e4, -1e4, 3e38, -3e38]


def softplus(x: Doubles) -> Doubles:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def mish(x: Doubles) -> Doubles:
    return x * np.tanh(softplus(x))


def elu(alpha: float) -> Callable[[Doubles], Doubles]:
    return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


# Nodes, the function in double precision, error relative to the result, error beside it.
FUNCTIONS: dict[str, tuple[str, Callable[[Doubles], Doubles], float, float]] = {
    "square": ("y = Pow (x, two)", np.square, ROUNDING, 2.0**-149),
    "root": ("y = Pow (x, half)", np.sqrt, ROUNDING, 2.0**-149),
    "quotient": ("y = Div (x, three)", lambda x: x / 3.0, 3 * ROUNDING, 2.0**-149),
    "power of two": ("y = Div (x, four)", lambda x: x / 4.0, 0.0, 2.0**-149),
    "Elu": ("y = Elu (x)", elu(1.0), 0.0, 2.0**-23),
    "Elu, scaled": ("y = Elu <alpha = 0.3> (x)", elu(float(np.float32(0.3))), ROUNDING, 2.0**-23),
    "Softplus": ("y = Softplus (x)", softplus, 2.0**-21, 2.0**-21),
}
CONSTANTS = {name: np.float32(n) for name, n in (("two", 2), ("half", 0.5), ("three", 3), ("four", 4))}


def rewritten(text: str) -> onnx.ModelProto:
    """A network with everything written out that can be."""
    read = {name: number for name, number in CONSTANTS.items() if name in text}
    net = network(text, read, (1, 8), opset=18, dims=(1, "length"))
    plan = net.plan("onnxruntime-x86", keep_float=["*"], cost_model="off")
    for_all = {
        node.name: replace(plan.nodes[node.name], implementation="written-out") for node in net.graph.nodes
    }
    made = ir.to_proto(lower(net.model, replace(plan, nodes=for_all)).model)
    onnx.checker.check_model(made, full_check=True)
    return made


def outputs(model: onnx.ModelProto, x: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """Of onnx's reference, and of onnxruntime with its optimisations."""
    with np.errstate(all="ignore"):
        by_onnx = np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])
    return [by_onnx, np.asarray(ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_written_out_is_within_its_stated_error(name: str) -> None:
    text, function, relative, absolute = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([np.array(EDGES), rng.uniform(-30, 30, 2030), rng.normal(0, 1e-3, 64)])[None]
    x = x.astype(np.float32)
    if name == "root":
        x = np.abs(x)
    if name == "square":
        x = np.clip(x, -1e19, 1e19)
    made = rewritten(text)
    wanted = function(x.astype(np.float64))
    for found in outputs(made, x):
        assert (np.abs(found - wanted) <= relative * np.abs(wanted) + absolute).all()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "root"])
def test_infinities_and_what_is_no_number_come_out_as_of_the_operator(name: str) -> None:
    text, function, _, _ = FUNCTIONS[name]
    x = np.array([[np.inf, -np.inf, np.nan, 0, 0, 0, 0, 0]], np.float32)
    with np.errstate(all="ignore"):
        wanted = function(x.astype(np.float64)).astype(np.float32)
    for found in outputs(rewritten(text), x):
        assert np.allclose(found[0, :3], wanted[0, :3], atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    "text",
    [
        "y = Pow (x, three)",
        "s = Pow (x, two) y = ReduceMean (s)",
        "y = Div (x, x)",
        "y = Div (x, zero)",
        "y = Div (x, tiny)",
        "y = Div (x, large)",
        "y = Tanh (x)",
    ],
)
def test_what_is_another_function_stays(text: str) -> None:
    numbers = {"three": 3, "two": 2, "zero": 0, "tiny": 1e-39, "large": 3e38}
    read = {name: np.float32(number) for name, number in numbers.items() if f"{name})" in text}
    net = network(text, read, (1, 8), opset=17)
    last = {node.op_type: node.ir_node for node in net.graph.nodes}
    assert not written_out(last[next(op for op in ("Tanh", "Pow", "Div") if op in last)])
