"""The whole plan is held against float: what saves too little time has int8 weights alone, and says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.json_values import to_jsonable
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.plan.plan import Kind, PredictedTime, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.planning import plan_model
from qprof_onnx.quantizer.planning.plan_model import (
    NOT_HERE,
    PlannedModel,
    model_facts,
    plan_from,
    predicted_on,
    timed_as_run,
)
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.cost_table import Conditions, CostTable
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.machine import Processor

from ..networks import Network, network

CONDITIONS = Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 1)


@pytest.fixture(scope="module")
def net() -> Network:
    text = "a = MatMul (x, w) b = Erf (a) c = Cos (b) y = Sin (c)"
    weight = np.random.default_rng(1).integers(-127, 128, (64, 64)).astype(np.float32) / 1024
    weight[0] = 127 / 1024  # int8 loses nothing of it
    return network(text, {"w": weight}, (1, 64))


def table(product: float, others: float = 10.0) -> CostTable:
    """Return times of kernels: a product takes 20 microseconds in float, each other node `others`."""
    same = dict.fromkeys(("Erf:float", "Cos:float", "Sin:float"), ((1.0, others), (1000000.0, others)))
    sizes = [(64.0, 64.0, rows) for rows in (1.0, 2.0)]
    kernels = {
        "MatMul:float": tuple((*size, 20.0) for size in sizes),
        "MatMul:to-float": tuple((*size, product) for size in sizes),
        "QuantizeLinear:integer": ((1.0, 1.0), (1e6, 1.0)),
    }
    return CostTable(CONDITIONS, {**same, **kernels})


def planned_model(net: Network, times: CostTable, **settings: object) -> PlannedModel:
    recipe = replace(load_recipe(None, settings), measured=times)
    return plan_from(model_facts(net.prepared, net.profile, recipe))


def planned(net: Network, times: CostTable, **settings: object) -> QuantPlan:
    return planned_model(net, times, **settings).plan


def test_a_model_that_int8_makes_much_faster_is_quantized_and_has_its_predicted_time(net: Network) -> None:
    plan = planned(net, replace(table(4.0), held=("a model",), error=0.15))
    assert plan.nodes["MatMul_a"].kind is Kind.QUANTIZED
    time = plan.origin.time
    assert time is not None
    assert (time.float_us, time.planned_us, time.error) == (50.0, 35.0, 0.15)
    assert to_jsonable(time)["error"] == 0.15
    assert (
        time.text
        == "0.70 of float's time, within 15 % for nine of ten models (onnxruntime 1.0, 1 thread, a processor)"
    )
    assert loads(dumps(plan)).origin == plan.origin


HERE = Processor("x86_64", "", ())
"""A processor with the instruction sets of `CONDITIONS`: none."""


def test_a_prediction_is_printed_on_the_processor_whose_times_it_is_of(net: Network) -> None:
    made = planned_model(net, table(4.0))
    printed = predicted_on(HERE, made)
    assert printed == made.plan.origin.time
    assert isinstance(printed, PredictedTime)
    assert printed.error_text == ""  # the table was held against no models
    assert predicted_on(replace(HERE, features=("avx2",)), made) == f"{NOT_HERE}; --check-speed measures it"
    read = replace(made, facts=None, cost_model=None)
    assert (predicted_on(HERE, read), predicted_on(replace(HERE, features=("avx2",)), read)) == (
        printed,
        f"{NOT_HERE}; --check-speed measures it",
    )


def test_a_model_for_another_machine_is_to_be_measured_there(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planned_model(net, table(4.0))
    monkeypatch.setattr(plan_model, "runs_here", lambda target: False)
    text = predicted_on(replace(HERE, features=("avx2",)), made)
    assert str(text).startswith(f"{NOT_HERE}; measure it on a machine of ")


def test_a_prediction_is_of_a_run_as_the_data_have_it() -> None:
    weight = np.random.default_rng(1).integers(-127, 128, (64, 64)).astype(np.float32) / 1024
    text = "a = MatMul (x, w) b = Erf (a) c = Cos (b) y = Sin (c)"
    batches = network(text, {"w": weight}, (2, 64), dims=("n", 64))
    products = tuple((64.0, 64.0, rows, 10.0 + 10.0 * rows) for rows in (1.0, 2.0))
    times = table(4.0)
    made = planned_model(batches, replace(times, kernels={**times.kernels, "MatMul:float": products}))
    of_plan, printed = made.plan.origin.time, predicted_on(HERE, made)
    assert isinstance(of_plan, PredictedTime)
    assert isinstance(printed, PredictedTime)
    assert (of_plan.float_us, printed.float_us) == (50.0, 60.0)  # of one row, and of two
    written = timed_as_run(made)
    read = replace(written, facts=None, cost_model=None)
    assert predicted_on(HERE, written) == predicted_on(HERE, read) == printed


@pytest.mark.parametrize("error", [0.0, 0.15])
def test_a_speed_that_rests_on_kernels_that_were_not_measured_is_not_predicted(
    net: Network, error: float
) -> None:
    times = replace(table(4.0), held=("a model",), error=error)
    sizes = [(4.0, 64.0, rows, 20.0) for rows in (1.0, 2.0)]
    far = planned_model(net, replace(times, kernels={**times.kernels, "MatMul:float": tuple(sizes)}))
    said = predicted_on(HERE, far)
    assert isinstance(said, str)
    assert said.startswith("not predicted: ")
    assert "kernels that were not measured; --check-speed" in said


def test_a_model_that_saves_a_few_percent_has_int8_weights_alone_and_one_line_that_says_so(
    net: Network,
) -> None:
    plan = planned(net, table(4.0, others=200.0))
    assert plan.nodes["MatMul_a"].kind is Kind.WEIGHT_ONLY
    assert plan.nodes["MatMul_a"].float_reason.code is ReasonCode.MODEL_SAVES_TOO_LITTLE
    said = [note for note in map(str, plan.findings) if "--set cost_model=off" in note]
    assert said == [
        "weights only, of 1 node: int8 is predicted to save too little time; --set cost_model=off quantizes "
        "it anyway"
    ]
    assert plan.origin.time is not None
    assert plan.origin.time.planned_us == plan.origin.time.float_us


def test_a_plan_is_compared_with_the_file_and_pays_beside_what_is_prepared_in_float(tmp_path: Path) -> None:
    """Two passes of 1,000 microseconds go into the weights of the Conv: a gain that needs no integers."""
    text = "a = Abs (x) p = Mul (a, t) q = Add (p, t) y = Conv (q, w)"
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1,16,8,8] x) => (float[1,16,8,8] y) {{ {text} }}'
    )
    weight = np.random.default_rng(1).standard_normal((16, 16, 1, 1)).astype(np.float32)
    for name, array in {"t": np.full(1, 0.5, np.float32), "w": weight}.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, tmp_path / "file.onnx")
    prepared = open_prepared(tmp_path / "file.onnx")
    ir.save(prepared.model, tmp_path / "prepared.onnx")
    passes = dict.fromkeys(("Abs:float", "Mul:scalar:float", "Add:scalar:float"), ((1.0, 1e3), (1e6, 1e3)))
    times = CostTable(CONDITIONS, {**passes, "QuantizeLinear:integer": ((1.0, 1e3), (1e6, 1e3))})
    samples = [Sample("0", {"x": np.random.default_rng(2).random((1, 16, 8, 8), np.float32)})]
    profile = calibrate(prepared.model, samples, prepared.identity, RunSettings(channels="off"))
    found = []
    for file in ("file.onnx", "prepared.onnx"):
        recipe = replace(load_recipe(), measured=times)
        opened = open_prepared(tmp_path / file)
        found.append(plan_from(model_facts(opened, profile, recipe)).plan)
    given, ready = (plan.origin.time for plan in found)
    assert given is not None
    assert ready is not None
    assert given.float_us - ready.float_us == pytest.approx(2000.0)
    assert given.planned_us == ready.planned_us == ready.float_us
    assert found[0].nodes == found[1].nodes
    assert not any(entry.kind.counts_as_quantized for entry in found[0].nodes.values())


def test_who_asks_for_sixteen_bits_has_them_whatever_they_are_predicted_to_save(net: Network) -> None:
    plan = planned(net, table(4.0, others=200.0), activation_type="uint16")
    assert plan.nodes["MatMul_a"].kind is Kind.QUANTIZED


def test_a_model_whose_regions_all_save_too_little_says_so_too(net: Network) -> None:
    plan = planned(net, table(18.5))
    assert plan.nodes["MatMul_a"].float_reason.code is ReasonCode.SAVES_TOO_LITTLE
    assert any(note.startswith("weights only, of 1 node:") for note in map(str, plan.findings))


def test_a_prediction_from_the_times_of_another_target_says_so(net: Network) -> None:
    recipe = replace(load_recipe("onnxruntime-arm"), measured=table(4.0))
    time = plan_from(model_facts(net.prepared, net.profile, recipe)).plan.origin.time
    assert time is not None
    assert time.text.endswith("a processor; not measured on onnxruntime-arm)")


def test_without_the_cost_model_everything_is_quantized_and_nothing_predicted(net: Network) -> None:
    plan = planned(net, table(18.5), cost_model="off")
    assert plan.nodes["MatMul_a"].kind is Kind.QUANTIZED
    assert plan.origin.time is None
    assert not any("--set cost_model" in note for note in map(str, plan.findings))
