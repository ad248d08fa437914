"""Int8 weights of nodes that stay float by default: which have them, and which not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import plan_alone

TEXT = "y = GRU <hidden_size = 32> (x, w, r)"
SIZES: dict[str, tuple[int, ...]] = {"w": (1, 96, 32), "r": (1, 96, 32)}


def plan_of(
    text: str = TEXT, sizes: dict[str, tuple[int, ...]] | None = None, **settings: object
) -> QuantPlan:
    """Return the verified plan of a model from a sequence x to y."""
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[6, 4, 32] x) => (float[] y) {{ {text} }}'
    )
    rng = np.random.default_rng(5)
    for name, size in (SIZES if sizes is None else sizes).items():
        array = (0.2 * rng.standard_normal(size)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    identity = model_id(model, "net.onnx")
    samples = [Sample(str(i), {"x": rng.standard_normal((6, 4, 32)).astype(np.float32)}) for i in range(4)]
    profile = calibrate(model, samples, identity)
    plan = plan_alone(model, profile, load_recipe(None, settings))
    verify_plan(plan, index(model), identity)
    return plan


@pytest.mark.parametrize("mode", ["static", "auto"])
def test_a_node_without_a_kernel_has_int8_weights_and_says_why_it_is_float(mode: str) -> None:
    plan = plan_of(mode=mode)
    entry = plan.nodes["GRU_y"]
    assert (entry.kind, entry.implementation) == (Kind.WEIGHT_ONLY, "folded")
    assert entry.float_reason.code is ReasonCode.NO_KERNEL
    assert plan.tensors["w"].qtype.name == plan.tensors["r"].qtype.name == "int8"
    assert plan.origin.estimated_sqnr["y"] > 30.0


def test_a_node_kept_float_by_request_is_left_as_it_is() -> None:
    assert plan_of(keep_float=("GRU",)).nodes["GRU_y"].kind is Kind.FLOAT


def test_weights_stay_float_where_their_noise_would_be_noticed() -> None:
    assert plan_of(min_output_sqnr=60.0).nodes["GRU_y"].kind is Kind.FLOAT


def test_a_weight_that_is_read_in_float_too_is_not_stored_twice() -> None:
    text = (
        "a = GRU <hidden_size = 32> (x, w, r) m = ReduceMax <keepdims = 0> (x) p = Mod <fmod = 1> (w, m) "
        "t = ReduceSum <keepdims = 0> (p) y = Add (a, t)"
    )
    plan = plan_of(text)
    assert "w" not in plan.tensors
    assert "r" in plan.tensors


def test_small_weights_stay_float() -> None:
    plan = plan_of("y = GRU <hidden_size = 4> (x, w, r)", {"w": (1, 12, 32), "r": (1, 12, 4)})
    assert plan.nodes["GRU_y"].kind is Kind.FLOAT


def test_a_weight_of_two_float_nodes_is_stored_once() -> None:
    text = (
        "a = GRU <hidden_size = 32> (x, w, r) b = Neg (x) c = GRU <hidden_size = 32> (b, w, r) y = Add (a, c)"
    )
    plan = plan_of(text)
    assert [plan.nodes[name].kind for name in ("GRU_a", "GRU_c")] == [Kind.WEIGHT_ONLY, Kind.WEIGHT_ONLY]
    assert not plan.nodes["GRU_c"].inputs
