"""GRU and RNN written as a Scan: which are, and what it computes in float and with dynamic products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.lowering.lower import lower, rewritten_nodes
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.numerics.affine import INT8, QuantParams
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.cost_table import read_table
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...networks import plan_alone

Array = npt.NDArray[np.float32]

GATES = {"GRU": 3, "RNN": 1}
FEATURES = 6


@dataclass(frozen=True)
class Net:
    """A recurrent node, and the sequences that it reads."""

    op_type: str = "GRU"
    direction: str = "forward"
    reset_after: bool = True
    hidden: int = 4
    steps: int = 5
    batch: int = 2
    has_bias: bool = True
    lengths: tuple[int, ...] = ()
    has_state: bool = False
    is_known: bool = True
    outputs: tuple[str, ...] = ("y", "h")
    attributes: tuple[tuple[str, object], ...] = ()

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def model(self) -> onnx.ModelProto:
        rng, rows = np.random.default_rng(self.hidden), GATES[self.op_type] * self.hidden
        shapes = {
            "w": (self.directions, rows, FEATURES),
            "r": (self.directions, rows, self.hidden),
            "b": (self.directions, 2 * rows),
            "s": (self.directions, self.batch, self.hidden),
        }
        arrays = {
            name: rng.normal(0.0, min(0.5, self.hidden**-0.5), shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        arrays["n"] = np.array(self.lengths, np.int32)
        present = ["x", "w", "r", "b" if self.has_bias else "", "n" if self.lengths else ""]
        present += ["s" if self.has_state else ""]
        attributes = dict(self.attributes)
        if self.op_type == "GRU":
            attributes["linear_before_reset"] = int(self.reset_after)
        made = ["", "h"] if self.outputs == ("h",) else self.outputs
        node = helper.make_node(
            self.op_type,
            present,
            made,
            name="cell",
            hidden_size=self.hidden,
            direction=self.direction,
            **attributes,
        )
        sizes = (self.steps, self.batch) if self.is_known else ("steps", "batch")
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (*sizes, FEATURES))
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs]
        constants = [numpy_helper.from_array(arrays[name], name) for name in present[1:] if name]
        graph = helper.make_graph([node], "g", [x], outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def sample(self) -> dict[str, Array]:
        x = np.random.default_rng(1).standard_normal((self.steps, self.batch, FEATURES))
        return {"x": x.astype(np.float32)}


def scanned(net: Net) -> onnx.ModelProto:
    """Return the model in float with a Scan in the place of its node."""
    model = ir.serde.deserialize_model(net.model())
    params = QuantParams((1 / 64,), (0,), INT8)
    nodes = {"cell": NodePlan(Kind.DYNAMIC, implementation="scan")}
    plan = QuantPlan(ModelId("", "", 17), QuantConfig(), {"w": params, "r": params}, nodes)
    written, _, _ = rewritten_nodes(model, plan)
    proto = ir.to_proto(written)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def runs(proto: onnx.ModelProto, net: Net) -> list[Array]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, net.sample())
    return found


NETS = st.builds(
    Net,
    op_type=st.sampled_from(["GRU", "RNN"]),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    reset_after=st.booleans(),
    hidden=st.integers(1, 9),
    steps=st.integers(1, 6),
    batch=st.integers(1, 4),
    has_bias=st.booleans(),
    has_state=st.booleans(),
    is_known=st.booleans(),
    outputs=st.sampled_from([("y", "h"), ("y",), ("h",)]),
)


@pytest.mark.slow
@given(NETS)
@settings(deadline=None, max_examples=60)
def test_a_scan_in_float_computes_what_the_reference_evaluator_does(net: Net) -> None:
    proto = scanned(net)
    assert {node.op_type for node in proto.graph.node}.isdisjoint(GATES)
    expected = ReferenceEvaluator(net.model()).run(None, net.sample())
    for found, wanted in zip(runs(proto, net), expected, strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)  # sums of float32 in another order


@pytest.mark.slow
@given(NETS)
@settings(deadline=None, max_examples=60)
def test_a_scan_in_float_computes_what_onnxruntime_does(net: Net) -> None:
    for found, wanted in zip(runs(scanned(net), net), runs(net.model(), net), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)  # polynomials of their own


# With dynamic products


def rounded(net: Net) -> tuple[onnx.ModelProto, QuantPlan]:
    """Return the written model with int8 weights, a scale for each gate, and its plan."""
    model = prepare(ir.serde.deserialize_model(net.model())).model
    everything = load_recipe("onnxruntime-x86", {"mode": "dynamic", "cost_model": "off"})
    plan = plan_alone(model, Profile(model_id(model, ""), DataId(), {}), everything)
    (entry,) = plan.nodes.values()
    assert (entry.kind, entry.implementation) == (Kind.DYNAMIC, "scan")
    verify_plan(plan, index(model), model_id(model, ""))
    return ir.to_proto(lower(model, plan).model), plan


def test_both_directions_of_a_scan_take_their_steps_together() -> None:
    proto, _ = rounded(Net(direction="bidirectional", hidden=24, steps=7))
    (scan,) = (node for node in proto.graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in scan.attribute if attribute.name == "body")
    operators = [node.op_type for node in body.node]
    assert (operators.count("MatMulInteger"), operators.count("Tanh")) == (2, 1)


def test_a_single_step_needs_no_scan() -> None:
    proto, _ = rounded(Net(steps=1, hidden=24))
    assert "Scan" not in [node.op_type for node in proto.graph.node]


def test_the_float_weights_are_not_written() -> None:
    proto, _ = rounded(Net(hidden=24))
    body = [a.g for node in proto.graph.node for a in node.attribute if a.name == "body"]
    large = [
        t for graph in (proto.graph, *body) for t in graph.initializer if numpy_helper.to_array(t).size > 150
    ]
    assert [t.data_type for t in large] == [TensorProto.INT8] * len(large) != []


# Which, and why


def planned(net: Net, **settings: object) -> NodePlan:
    """Return what becomes of the node of a net, planned from a profile."""
    model = prepare(ir.serde.deserialize_model(net.model())).model
    identity = model_id(model, "")
    profile = calibrate(model, [Sample("0", net.sample())], identity)
    recipe = load_recipe("onnxruntime-x86", settings)
    times = Path(__file__).parents[4] / "configs" / "costs" / "onnxruntime-x86.1.json"
    timed = replace(recipe, measured=read_table(times))
    (entry,) = plan_alone(model, profile, timed).nodes.values()
    return entry


def test_the_price_decides_whether_a_gru_becomes_a_scan() -> None:
    large = planned(Net(hidden=512, steps=16, batch=1), min_output_sqnr=20.0)
    assert (large.kind, large.implementation) == (Kind.DYNAMIC, "scan")
    small = planned(Net(hidden=64, steps=16, batch=1))
    assert (small.kind, small.float_reason.code) == (Kind.WEIGHT_ONLY, ReasonCode.PREDICTED_SLOWER)


def test_other_runtimes_leave_a_gru_float() -> None:
    model = prepare(ir.serde.deserialize_model(Net(hidden=64).model())).model
    profile = calibrate(model, [Sample("0", Net(hidden=64).sample())], model_id(model, ""))
    (entry,) = plan_alone(model, profile, load_recipe("openvino", {})).nodes.values()
    assert entry.kind is Kind.FLOAT


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (Net(hidden=64, attributes=(("activations", ("Relu", "Tanh")),)), "with activations relu, tanh"),
        (Net(hidden=64, attributes=(("clip", 0.5),)), "with clip=0.5"),
        (Net(hidden=64, lengths=(3, 5)), "with lengths of sequences"),
    ],
)
def test_other_gates_and_lengths_stay_float(net: Net, reason: str) -> None:
    assert planned(net, cost_model="off").reason == f"GRU {reason} has no integer form"
