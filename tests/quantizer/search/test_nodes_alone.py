"""The noise of a node that is quantized alone is that of a model in which no other is."""

import math
from types import SimpleNamespace

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.planning.plan_model import PlannedModel, model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.search import ranking
from qprof_onnx.quantizer.search.attribution import Attribution, attribute, samples_to_attribute_on
from qprof_onnx.quantizer.search.submodels import (
    only_quantized,
    open_submodel,
    segment_starts,
    splittable_model,
)
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import plan_alone

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x, bool b) => (float[N, 3] y, float[N, 4] side)
{
  [first] h1 = MatMul (x, w1)
  [relu] r1 = Relu (h1)
  [second] h2 = MatMul (r1, w2)
  [branch] h3 = If (b) <
    then_branch = t () => (t_out) { t_out = Neg (h2) },
    else_branch = e () => (e_out) { e_out = Identity (h2) }>
  [side_out] side = Abs (h2)
  [third] y = MatMul (h3, w3)
}"""


@pytest.fixture(scope="module")
def subject():
    proto = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(3)
    for name, shape in (("w1", (4, 8)), ("w2", (8, 4)), ("w3", (4, 3))):
        values = rng.standard_normal(shape).astype(np.float32)
        if name == "w2":
            values[0] *= 60.0  # one scale for a wide range: the node that costs most
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    model = prepare(ir.from_proto(proto)).model
    samples = [
        Sample(str(i), {"x": rng.standard_normal((5, 4)).astype(np.float32), "b": np.array(i % 2 == 0)})
        for i in range(3)
    ]
    identity = model_id(model, "m.onnx")
    profile = calibrate(model, samples, identity)
    recipe = load_recipe("onnxruntime-x86", {"granularity": "per-tensor", "weight_schema": "symmetric"})
    plan = plan_alone(model, profile, recipe)
    return model, plan, samples


def quantized(plan) -> list[str]:
    return [name for name, entry in plan.nodes.items() if entry.kind is not Kind.FLOAT]


def run_whole(model, samples, plan=None):
    """Run the lowered model in one session: what the submodels have to reproduce."""
    source = splittable_model(model if plan is None else lower(model, plan).model)
    here = plan is None or plan.config.target == "onnxruntime-x86"
    step = open_submodel(source, 0, len(source.nodes), None, dequantized=not here)
    names = [value.name for value in model.graph.outputs]
    return [[step(sample.arrays, sample.name)[name] for name in names] for sample in samples]


def noise_by_hand(model, samples, plan, output=None) -> float:
    """Return the noise over signal of a plan's model, run as a whole, at an output; None for the worst."""
    names = [value.name for value in model.graph.outputs]
    both = [
        [dict(zip(names, arrays, strict=True)) for arrays in run_whole(model, samples, of)]
        for of in (None, plan)
    ]
    signal = {n: sum(np.square(f[n], dtype=np.float64).sum() for f in both[0]) for n in names}
    pairs = list(zip(*both, strict=True))
    noise = {n: sum(np.square(np.float64(f[n]) - q[n]).sum() for f, q in pairs) for n in names}
    return max(noise[n] / signal[n] for n in names if output in (None, n))


def ranked(model, plan, samples, folder) -> Attribution:
    save_model(model, folder / "m.onnx")
    planned = PlannedModel(plan, model, index(model))
    arrays = [sample.arrays for sample in samples]
    return attribute(planned, samples_to_attribute_on(folder / "m.onnx", planned, arrays))


def sqnr_of(node, found) -> float:
    return node.noises[found.output].sqnr


def decibels(noise: float) -> float:
    return -10.0 * math.log10(noise)


def test_the_model_of_this_file_has_quantized_nodes_around_a_branch(subject) -> None:
    _, plan, _ = subject
    assert {"first", "second", "third"} <= set(quantized(plan))
    assert plan.nodes["branch"].kind is Kind.FLOAT


def test_a_node_quantized_alone_gives_what_a_model_with_that_node_alone_gives(subject, tmp_path) -> None:
    model, plan, samples = subject
    result = ranked(model, plan, samples, tmp_path)
    assert {name for one in result.nodes for name in one.nodes} == set(quantized(plan))
    # 0.1 dB: kernels of a whole model join conversions, and may round a tie in the other direction
    assert result.whole[result.output].sqnr == pytest.approx(
        decibels(noise_by_hand(model, samples, plan, result.output)), abs=0.1
    )
    for one in result.nodes:
        expected = decibels(noise_by_hand(model, samples, only_quantized(plan, one.nodes), result.output))
        # 0.01 dB: the last bits of float sums differ between a whole session and two
        assert sqnr_of(one, result) == pytest.approx(expected, abs=0.01)


def test_the_whole_plan_has_the_figure_that_evaluate_tells_of_the_same_samples(subject, tmp_path) -> None:
    model, plan, samples = subject
    result = ranked(model, plan, samples, tmp_path)
    save_model(lower(model, plan).model, tmp_path / "q.onnx")
    evaluation = evaluate(tmp_path / "m.onnx", tmp_path / "q.onnx", [sample.arrays for sample in samples])
    told = {output.name: output.difference.sqnr for output in evaluation.outputs}
    assert result.whole[result.output].sqnr == pytest.approx(told[result.output], abs=1e-6)


def test_the_worst_node_comes_first_and_the_shares_are_of_all(subject, tmp_path) -> None:
    model, plan, samples = subject
    found = ranked(model, plan, samples, tmp_path)
    assert found.nodes[0].nodes == ("second",)
    assert found.shares() == sorted(found.shares(), reverse=True)
    assert sum(found.shares()) == pytest.approx(1.0)


def test_no_samples_are_refused(subject, tmp_path) -> None:
    model, plan, _ = subject
    with pytest.raises(DataError, match="no samples"):
        ranked(model, plan, [], tmp_path)


BODIES = {
    "If": """[run] z = If (b) <
        then_branch = t () => (t_out) { [inner] t_out = MatMul (h, w2) },
        else_branch = e () => (e_out) { e_out = Neg (h) }>""",
    "Loop": """[run] z = Loop (count, b, h) <body = body (int64 i, bool go, float[N, 8] s)
        => (bool g, float[N, 8] t) { g = Identity (go)  [inner] p = MatMul (s, w2)  t = Relu (p) }>""",
    "Scan": """[run] u, z = Scan <num_scan_inputs: int = 1, body = body (float[8] s, float[8] row)
        => (float[8] t, float[8] out)
        { [inner] m = MatMul (row, w2)  t = Add (s, m)  out = Relu (t) }> (s0, h)""",
}


@pytest.mark.parametrize("runner", BODIES)
def test_a_node_inside_a_body_is_measured_as_any_other(runner: str, tmp_path) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, bool b) => (float[N, 8] y) <int64 count = {{3}}> {{
      [first] h = MatMul (x, w1)  {BODIES[runner]}  [last] y = Neg (z) }}"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(3)
    for name, shape in (("w1", (4, 8)), ("w2", (8, 8)), ("s0", (8,))):
        array = rng.standard_normal(shape).astype(np.float32) / 3.0
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = prepare(ir.from_proto(proto)).model
    samples = [
        Sample(str(i), {"x": rng.standard_normal((5, 4)).astype(np.float32), "b": np.array(True)})
        for i in range(2)
    ]
    profile = calibrate(model, samples, model_id(model, "m.onnx"))
    plan = plan_alone(model, profile, load_recipe("onnx"))
    found = ranked(model, plan, samples, tmp_path)
    ((inner, share),) = (
        pair for pair in zip(found.nodes, found.shares(), strict=True) if pair[0].nodes == ("inner",)
    )
    expected = decibels(noise_by_hand(model, samples, only_quantized(plan, ["inner"])))
    assert sqnr_of(inner, found) == pytest.approx(expected, abs=0.01)  # last bits, as above
    assert share > 0.1


def test_submodels_one_after_the_other_compute_what_the_whole_model_computes(subject) -> None:
    model, plan, samples = subject
    source = splittable_model(model)
    for cut in range(1, len(source.nodes)):
        parts = [open_submodel(source, 0, cut, plan), open_submodel(source, cut, len(source.nodes), plan)]
        for sample, expected in zip(samples, run_whole(model, samples, plan), strict=True):
            values = dict(sample.arrays)
            for part in parts:
                values |= part(values, sample.name)
            # 1e-4 of values around 100: the sums of a float branch, in another order
            np.testing.assert_allclose(values["y"], expected[0], rtol=1e-4, atol=1e-4)


def test_a_submodel_reads_what_a_subgraph_reads(subject) -> None:
    source = splittable_model(subject[0])
    at = next(i for i, node in enumerate(source.nodes) if node.op_type == "If")
    assert set(source.inputs_of(at, at + 1)) == {"b", "h2"}
    assert "h2" in source.outputs_of(0, at)


def test_no_tensor_without_a_type_goes_from_one_submodel_to_the_next(subject) -> None:
    """Operators of other domains may make such tensors; onnxruntime takes no input without a type."""
    untyped = subject[0].clone()
    for node in untyped.graph:
        if node.name in ("first", "second"):
            node.outputs[0].type = None
    source = splittable_model(untyped)
    inner = {name: i for i, node in enumerate(source.nodes) for name in (node.name,)}
    assert inner["relu"] not in source.cuts
    assert inner["second"] in source.cuts
    assert not set(source.cuts) & set(range(inner["second"] + 1, inner["side_out"] + 1))


def test_a_segment_begins_before_each_group_where_types_are_known() -> None:
    assert segment_starts([], range(4)) == [0]
    assert segment_starts([(0, 2), (3, 3), (6, 8)], range(10)) == [0, 3, 6]
    assert segment_starts([(1, 2), (3, 3), (6, 8)], [0, 2, 4, 5, 9]) == [0, 5]


TABLE = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 3] y)
{
  [first] h = MatMul (x, w1)
  [gate] g = Sigmoid (h)
  [other] o = Slice (h, zero, one, one)
  [silu] s = Mul (h, g)
  [sum] t = Add (s, o)
  [last] y = MatMul (t, w2)
}"""


@pytest.fixture(scope="module")
def tables():
    """A look-up table of two nodes, on a target that has them, with another node between the two."""
    proto = onnx.parser.parse_model(TABLE)
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array([i]), name) for i, name in enumerate(("zero", "one"))
    )
    rng = np.random.default_rng(5)
    for name, shape in (("w1", (4, 8)), ("w2", (8, 3))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = prepare(ir.from_proto(proto)).model
    samples = [Sample(str(i), {"x": rng.standard_normal((6, 4)).astype(np.float32)}) for i in range(2)]
    identity = model_id(model, "m.onnx")
    settings = {"equalization": "off", "bias_correction": "off"}
    prepared = PreparedModel(model, index(model), identity, ())
    profile = calibrate(model, samples, identity)
    planned = plan_from(model_facts(prepared, profile, load_recipe("glow", settings)))
    return model, planned.plan, samples


def test_the_nodes_of_one_look_up_table_are_measured_together(tables, tmp_path) -> None:
    model, plan, samples = tables
    found = ranked(model, plan, samples, tmp_path)
    result = {one.nodes[-1]: one for one in found.nodes}
    assert set(result) == {"first", "other", "silu", "sum", "last"}
    assert result["silu"].nodes == ("gate", "silu")
    expected = decibels(noise_by_hand(model, samples, only_quantized(plan, result["silu"].nodes)))
    assert sqnr_of(result["silu"], found) == pytest.approx(expected, abs=0.01)  # last bits, as above


def test_a_look_up_table_that_a_submodel_splits_is_float_in_it(tables) -> None:
    model, plan, samples = tables
    source = splittable_model(model)
    cut = next(i for i, node in enumerate(source.nodes) if node.name == "silu")
    first, second = (open_submodel(source, *ends, plan) for ends in ((0, cut), (cut, len(source.nodes))))
    values = dict(samples[0].arrays)
    values |= first(values, "0")
    # 1e-6: a sigmoid of onnxruntime against numpy's; a step of g would be a hundred times as wide
    assert np.allclose(values["g"], 1 / (1 + np.exp(-values["h"])), atol=1e-6)
    whole = open_submodel(source, 0, len(source.nodes), plan)(samples[0].arrays, "0")["y"]
    # a table made in float64 and a product in float32 may round a tie apart: a step of s is worth less
    assert np.allclose(second(values, "0")["y"], whole, atol=float(np.abs(whole).max()) / 100)


def test_segments_do_not_split_look_up_tables() -> None:
    assert segment_starts([(0, 0), (3, 5), (4, 4), (8, 8)], range(10)) == [0, 3, 8]


def test_outputs_that_are_states_alone_are_judged(tmp_path) -> None:
    """Where the next step reads every output there is nothing else to rank by."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 8] x, float[2, 8] h) => (float[2, 8] hn, float[2, 8] cn) {
      a = MatMul (x, w)  cn = Add (a, h)  hn = Tanh (cn) }"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((8, 8)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model = prepare(ir.from_proto(proto)).model
    samples = [Sample(str(i), {n: rng.random((2, 8), np.float32) for n in ("x", "h")}) for i in range(4)]
    profile = calibrate(model, samples, model_id(model, "m.onnx"))
    recipe = load_recipe("onnx", {"output_kind": ("hn=state", "cn=state")})
    planned = plan_from(model_facts(PreparedModel(model, index(model), profile.model, ()), profile, recipe))
    save_model(model, tmp_path / "m.onnx")
    arrays = [sample.arrays for sample in samples]
    found = attribute(planned, samples_to_attribute_on(tmp_path / "m.onnx", planned, arrays))
    assert found.whole[found.output].sqnr is not None


@pytest.mark.parametrize(("seconds", "expected"), [(20.0, 0), (50.0, 1), (90.0, 2), (1e6, 3)])
def test_nodes_are_run_on_as_many_samples_as_fit_into_the_time(
    seconds, expected, subject, tmp_path, monkeypatch
) -> None:
    model, plan, samples = subject
    spent = [0.0]

    def taking_a_second_each(samples, state, run):
        for sample in samples:
            spent[0] += 1.0
            yield run(sample)

    monkeypatch.setattr(ranking, "time", SimpleNamespace(process_time=lambda: spent[0]))
    monkeypatch.setattr(ranking, "runs_with_own_state", taking_a_second_each)
    save_model(model, tmp_path / "m.onnx")
    planned = PlannedModel(plan, model, index(model))
    run = samples_to_attribute_on(tmp_path / "m.onnx", planned, [sample.arrays for sample in samples])
    found = attribute(planned, run, seconds=seconds)
    assert spent[0] <= seconds
    assert (bool(found.nodes), bool(found.cause)) == (expected > 0, expected > 0)
    assert found.samples == f"{max(1, expected)} sample{'s'[: expected > 1]}"
