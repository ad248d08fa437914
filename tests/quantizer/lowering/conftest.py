"""Fixtures of the lowering's tests: every net of nets.yaml, and a function that lowers a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import UINT8, QuantParams
from qprof_onnx.quantizer.plan.plan import QuantPlan

from ..lowered import NETS, Lowering, Runs, feed_of, oracle, parse, plan_of, same_interface


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "net" in metafunc.fixturenames:
        metafunc.parametrize("net", NETS, ids=[net.name for net in NETS])


@pytest.fixture
def lowered(tmp_path: Path) -> Lowering:
    """Lower the ONNX text of a graph with a plan for all of it; keyword arguments as for `plan_of`."""

    def run(text: str, *, opset: int = 17, options: Mapping[str, str] | None = None, **how: Any) -> Runs:
        model = parse(text, opset)
        before = ir.to_proto(model).SerializeToString(deterministic=True)
        plan, feed = plan_of(model, **how), feed_of(model)
        result = lower(model, plan)
        assert ir.to_proto(model).SerializeToString(deterministic=True) == before, "the argument was changed"
        same_interface(model, result.model)
        return Runs(result, feed, tmp_path, options or {}, lambda: oracle(model, plan, feed))

    return run


@pytest.fixture
def uint8_params() -> QuantParams:
    return QuantParams((0.0625,), (120,), UINT8)


@pytest.fixture
def make_model() -> Callable[..., ir.Model]:
    return parse


@pytest.fixture
def make_plan() -> Callable[..., QuantPlan]:
    return plan_of
