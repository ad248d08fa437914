"""Plans without the plug-in of rewrites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.base.extras import OptionalModule
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.plan import rewrites, store
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.targets.config import QuantConfig

from ..networks import network


@pytest.fixture
def without_rewrites(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    missing = OptionalModule("the rewrites of nodes", "quantizer.plugins.nowhere")
    for module in (rewrites, store):
        monkeypatch.setattr(module, "TABLE", missing)
    tables = (rewrites.rewrites, rewrites.float_rewrites)
    for table in tables:
        table.cache_clear()
    yield
    for table in tables:
        table.cache_clear()


@pytest.mark.usefixtures("without_rewrites")
def test_a_plan_with_a_rewrite_that_is_not_installed_is_refused_by_name() -> None:
    nodes = {"cell": NodePlan(Kind.DYNAMIC, implementation="scan")}
    text = store.dumps(QuantPlan(ModelId("5a" * 32, "c3" * 32, 17), QuantConfig(), {}, nodes))
    with pytest.raises(ConfigError, match="implementation 'scan': needs the rewrites of nodes, which is not"):
        store.loads(text)


@pytest.mark.usefixtures("without_rewrites")
def test_a_node_whose_rewrite_is_not_installed_stays_float_and_says_so() -> None:
    shapes = {"w": (4, 3, 2, 2)}
    net = network("c = ConvTranspose <strides = [2, 2]> (x, w) y = Relu (c)", shapes, shape=(1, 4, 8, 8))
    plan = net.plan("onnxruntime-x86")
    assert "rewrite 'sub-pixel' is not installed" in plan.nodes["ConvTranspose_c"].reason
