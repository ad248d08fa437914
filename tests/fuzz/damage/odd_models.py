"""Models that no bit flip makes: built to take long, to be deep, or to point elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Odd = tuple[str, dict[str, bytes], dict[str, str]]
"""What it is, its files, its links."""

VALUE = helper.make_tensor_value_info
X = VALUE("x", TensorProto.FLOAT, ["N", 1, 6, 6])


def _model(
    nodes: list[onnx.NodeProto],
    functions: tuple[onnx.FunctionProto, ...] = (),
    x: onnx.ValueInfoProto = X,
    constants: tuple[onnx.TensorProto, ...] = (),
) -> bytes:
    """Return a model from `x` to `y`, which has the rank of `x`."""
    shape = x.type.tensor_type.shape.dim if x.type.tensor_type.HasField("shape") else [None]
    y = VALUE("y", TensorProto.FLOAT, [None] * len(shape))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "g", [x], [y], list(constants))
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)
    return model.SerializeToString()


def _calls(levels: int, times: int) -> bytes:
    """Functions that call one another."""
    functions = []
    for level in range(levels):
        callee, domain = (f"F{level + 1}", "own") if level + 1 < levels else ("Neg", "")
        names = ["a", *(f"t{i}" for i in range(times - 1)), "b"]
        nodes = [helper.make_node(callee, [names[i]], [names[i + 1]], domain=domain) for i in range(times)]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], nodes, opsets))
    return _model([helper.make_node("F0", ["x"], ["y"], domain="own")], tuple(functions))


def _recursive() -> bytes:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    one = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("G", ["a"], ["b"], domain="own")], opsets
    )
    two = helper.make_function(
        "own", "G", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], domain="own")], opsets
    )
    return _model([helper.make_node("F", ["x"], ["y"], domain="own")], (one, two))


def _nested(depth: int) -> bytes:
    """If in If."""
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["o0"])], "b0", [], [VALUE("o0", TensorProto.FLOAT, None)]
    )
    for level in range(1, depth):
        node = helper.make_node("If", ["c"], [f"o{level}"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], f"b{level}", [], [VALUE(f"o{level}", TensorProto.FLOAT, None)])
        if len(graph.SerializeToString()) > 1 << 20:
            break
    condition = numpy_helper.from_array(np.array(True), "c")
    return _model(
        [helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)], constants=(condition,)
    )


def _constant(operator: str, *values: list[int], **attributes: object) -> bytes:
    """A constant that would be huge."""
    names = [f"v{i}" for i in range(len(values))]
    constants = [
        numpy_helper.from_array(np.array(v, np.int64), n) for n, v in zip(names, values, strict=True)
    ]
    nodes = [
        helper.make_node(operator, names, ["big"], **attributes),
        helper.make_node("Cast", ["big"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["f"], ["m"], keepdims=0),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    return _model(nodes, constants=tuple(constants))


def _weights(value: float, dtype: type = np.float32) -> bytes:
    weight = numpy_helper.from_array(np.full((6, 6), value, dtype), "w")
    return _model([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], constants=(weight,))


def _input(shape: list[object] | None, dtype: int = TensorProto.FLOAT) -> bytes:
    return _model([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], x=VALUE("x", dtype, shape))


def _branch_without_value() -> bytes:
    """A Constant without a value in a branch, where the checker does not look."""
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["o"], "k")], "b", [], [VALUE("o", TensorProto.FLOAT, None)]
    )
    condition = numpy_helper.from_array(np.array(True), "c")
    nodes = [
        helper.make_node("If", ["c"], ["i"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["x", "i"], ["y"]),
    ]
    return _model(nodes, constants=(condition,))


def _names(name: str) -> bytes:
    nodes = [helper.make_node("Relu", ["x"], [name], name), helper.make_node("Neg", [name], ["y"], "n")]
    return _model(nodes)


MAKERS: dict[str, Callable[[], bytes]] = {
    "60 functions that call the next one twice": lambda: _calls(60, 2),
    "20 functions that call the next one twice": lambda: _calls(20, 2),
    "300 functions in a chain": lambda: _calls(300, 1),
    "functions that call one another for ever": _recursive,
    "If nested 30 deep": lambda: _nested(30),
    "If nested 12 deep": lambda: _nested(12),
    "ConstantOfShape of 14 GB": lambda: _constant("ConstantOfShape", [60_000, 60_000]),
    "ConstantOfShape of a negative size": lambda: _constant("ConstantOfShape", [-5, 3]),
    "Range to 10^9": lambda: _constant("Range", 0, 10**9, 1),  # type: ignore[arg-type]
    "Range with step 0": lambda: _constant("Range", 0, 10, 0),  # type: ignore[arg-type]
    "Expand to 2^60": lambda: _constant("Expand", [1], [1 << 30, 1 << 30]),
    "Tile of 10^10": lambda: _constant("Tile", [1, 2], [10**10]),
    "weights of NaN": lambda: _weights(float("nan")),
    "weights of Inf": lambda: _weights(float("inf")),
    "denormal weights": lambda: _weights(1e-42),
    "weights of zeros": lambda: _weights(0.0),
    "huge weights": lambda: _weights(3e38),
    "input dimension of 2^40": lambda: _input(["N", 1 << 40]),
    "input dimension of 2^62": lambda: _input([1 << 62]),
    "input dimension below zero": lambda: _input([-3, 4]),
    "input of dimension 0": lambda: _input([0, 4]),
    "input of 70 dimensions": lambda: _input([1] * 70),
    "input of any rank": lambda: _input(None),
    "input of strings": lambda: _input(["N"], TensorProto.STRING),
    "input of complex numbers": lambda: _input(["N"], TensorProto.COMPLEX64),
    "input of undefined type": lambda: _input(["N"], TensorProto.UNDEFINED),
    "input of float8": lambda: _input(["N"], TensorProto.FLOAT8E4M3FN),
    "input of int4": lambda: _input(["N"], TensorProto.INT4),
    "a Constant without a value in a branch": _branch_without_value,
    "a name with control characters": lambda: _names("\x1b[31mred\x07\n"),
    "a name of 100,000 characters": lambda: _names("a" * 100_000),
    "a name of YAML syntax": lambda: _names("- {a: [b]}: &c '\""),
}


def ODD() -> list[Odd]:  # noqa: N802
    """Return the models."""
    return [(what, {"odd.onnx": make()}, {}) for what, make in MAKERS.items()]


def with_external(data: bytes) -> list[Odd]:
    """Return models whose weights are to be in odd places."""
    places = (
        "../x",
        "/etc/passwd",
        "/dev/zero",
        "/proc/self/environ",
        "",
        ".",
        "link.bin",
        "cal",
        "a/../outside.bin",
        "\x00",
        "odd.onnx",
    )
    made: list[Odd] = []
    for place in places:
        made.append(
            (
                f"weights in '{place}'",
                {"odd.onnx": _entries(data, location=place)},
                {"link.bin": "/etc/passwd"} if place == "link.bin" else {},
            )
        )
    for key, value in (
        ("offset", "abc"),
        ("offset", "-4"),
        ("offset", "99999999999"),
        ("length", "1e3"),
        ("length", "-1"),
        ("length", "4"),
        ("length", "9" * 30),
    ):
        made.append((f"{key} of weights is {value}", {"odd.onnx": _entries(data, **{key: value})}, {}))
    return made


def _entries(data: bytes, **values: str) -> bytes:
    model = onnx.ModelProto.FromString(data)
    for tensor in model.graph.initializer:
        kept = {entry.key: entry.value for entry in tensor.external_data}
        del tensor.external_data[:]
        for key, value in {**kept, **values}.items():
            tensor.external_data.add(key=key, value=value)
    return model.SerializeToString()
