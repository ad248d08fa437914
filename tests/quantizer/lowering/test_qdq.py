"""Form qdq is fused by onnxruntime. Its values are compared in `test_forms`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Runs = Any
Net = Any
Lowering = Callable[..., Runs]

FLOAT = {"Conv", "FusedConv", "Gemm", "MatMul", "Add", "Mul", "Relu", "Softmax", "Sigmoid", "LeakyRelu"}


def integer_nets(net: Net) -> bool:
    return not set(net.how.get("kinds", {}).values()) & {"dynamic", "weight-only"}


def test_onnxruntime_fuses_uint8(lowered: Lowering, net: Net) -> None:
    found = lowered(net.text, opset=net.opset, **net.how).fused()
    assert {op: found[op] for op in net.fused} == net.fused
    assert not integer_nets(net) or not FLOAT & set(found)


def test_onnxruntime_fuses_int8_when_the_session_allows_it(lowered: Lowering, net: Net) -> None:
    if net.how.get("weight") == "uint8":
        pytest.skip("no kernel takes int8 activations and uint8 weights")
    options = {"session.qdqisint8allowed": "1"}
    found = lowered(net.text, opset=net.opset, activation="int8", options=options, **net.how).fused()
    assert {op: found[op] for op in net.fused} == net.fused
