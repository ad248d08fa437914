from dataclasses import replace

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.evaluation.compare import OutputSums, class_axes
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.search.sensitivity import (
    Effect,
    NodeSensitivity,
    Sensitivities,
    effect_of,
    recovered,
    sensitivity_of,
)
from qprof_onnx.quantizer.search.submodels import (
    left_float,
    only_quantized,
    open_submodel,
    segment_ends,
    splittable_model,
)
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..int8_kernels import TARGET
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
    recipe = load_recipe(TARGET, {"granularity": "per-tensor", "weight_schema": "symmetric"})
    plan = plan_alone(model, profile, recipe)
    return model, plan, samples


def quantized(plan) -> list[str]:
    return [name for name, entry in plan.nodes.items() if entry.kind is not Kind.FLOAT]


def run_whole(model, samples, plan=None):
    """Run the lowered model in one session: what the submodels have to reproduce."""
    source = splittable_model(model if plan is None else lower(model, plan).model)
    step = open_submodel(source, 0, len(source.nodes), None)
    names = [value.name for value in model.graph.outputs]
    return [[step(sample.arrays, sample.name)[name] for name in names] for sample in samples]


def effect_by_hand(model, samples, plan) -> Effect:
    names = [value.name for value in model.graph.outputs]
    sums = [OutputSums(axis) for axis in class_axes(model).values()]
    for floats, quantized in zip(run_whole(model, samples), run_whole(model, samples, plan), strict=True):
        sums = [s.added(f, q) for s, f, q in zip(sums, floats, quantized, strict=True)]
    return effect_of([s.result(n) for s, n in zip(sums, names, strict=True)])


def test_the_model_of_this_file_has_quantized_nodes_around_a_branch(subject) -> None:
    _, plan, _ = subject
    assert {"first", "second", "third"} <= set(quantized(plan))
    assert plan.nodes["branch"].kind is Kind.FLOAT


def test_a_node_quantized_alone_gives_what_a_model_with_that_node_alone_gives(subject) -> None:
    model, plan, samples = subject
    result = {n.node: n for n in sensitivity_of(model, plan, samples, threads=1).nodes}
    assert set(result) == set(quantized(plan))
    for name, node in result.items():
        expected = effect_by_hand(model, samples, only_quantized(plan, [name]))
        # 0.01 dB: the last bits of float sums differ between a whole session and two
        assert node.only_quantized.sqnr == pytest.approx(expected.sqnr, abs=0.01)
        assert node.only_quantized.agreement == expected.agreement


def test_a_node_left_float_gives_what_the_plan_without_it_gives(subject) -> None:
    model, plan, samples = subject
    result = sensitivity_of(model, plan, samples, threads=1)
    whole = effect_by_hand(model, samples, plan)
    assert result.quantized.sqnr == pytest.approx(whole.sqnr, abs=0.01)  # as above
    for node in result.nodes:
        expected = effect_by_hand(model, samples, left_float(plan, [node.node]))
        assert node.left_float.sqnr == pytest.approx(expected.sqnr, abs=0.01)  # as above
        gained = expected.worst_sqnr - whole.worst_sqnr
        assert node.recovered == pytest.approx(gained, abs=0.02)  # a difference of two


def test_the_worst_node_comes_first(subject) -> None:
    model, plan, samples = subject
    result = sensitivity_of(model, plan, samples, threads=1)
    worst = [node.only_quantized.worst_sqnr for node in result.nodes]
    assert worst == sorted(worst)
    assert result.nodes[0].node == "second"


def test_an_estimate_that_was_too_good_is_said(subject) -> None:
    model, plan, samples = subject
    origin = replace(plan.origin, estimated_sqnr={"y": 90.0, "side": 1.0})
    result = sensitivity_of(model, replace(plan, origin=origin), samples, threads=1)
    assert [(c.output, c.measured == result.quantized.sqnr[c.output]) for c in result.estimates] == [
        ("y", True),
        ("side", True),
    ]
    (remark,) = map(str, result.findings)
    measured = result.quantized.sqnr["y"]
    assert f"output 'y': measured {measured:.1f} dB, roughly estimated 90.0" in remark
    assert remark in dict(result.presentation().facts).values()


def test_progress_counts_the_runs_of_samples(subject) -> None:
    model, plan, samples = subject
    reports = []
    sensitivity_of(model, plan, samples, progress=lambda done, total: reports.append((done, total)))
    total = 2 * len(samples) * len(quantized(plan))
    assert reports[-1] == (total, total)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


def test_no_samples_are_refused(subject) -> None:
    model, plan, _ = subject
    with pytest.raises(DataError, match="no samples"):
        sensitivity_of(model, plan, [])


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
    model, plan, samples = subject
    expected = sensitivity_of(model, plan, samples, threads=1)
    untyped = model.clone()
    for node in untyped.graph:
        if node.name in ("first", "second"):
            node.outputs[0].type = None
    source = splittable_model(untyped)
    inner = {name: i for i, node in enumerate(source.nodes) for name in (node.name,)}
    assert inner["relu"] not in source.cuts
    assert inner["second"] in source.cuts
    assert not set(source.cuts) & set(range(inner["second"] + 1, inner["side_out"] + 1))
    result = sensitivity_of(untyped, plan, samples, threads=1)
    for node, other in zip(expected.nodes, result.nodes, strict=True):
        assert node.node == other.node
        # 0.01 dB: the last bits of float sums differ between submodels
        assert node.only_quantized.sqnr == pytest.approx(other.only_quantized.sqnr, abs=0.01)
        assert node.left_float.sqnr == pytest.approx(other.left_float.sqnr, abs=0.01)


@pytest.mark.parametrize(("wanted", "count"), [([], 4), ([0], 1), ([1, 2, 5], 9), (list(range(30)), 31)])
def test_segments_have_about_as_many_nodes_as_there_are_segments(wanted, count) -> None:
    ends = segment_ends([(i,) for i in wanted], count)
    assert all(begin < end <= count for begin, end in zip(wanted, ends, strict=True))
    assert ends == sorted(ends)
    assert ends[-1:] == [count][: len(wanted)]
    assert all(ends.count(end) <= max(1, int(len(wanted) ** 0.5)) for end in ends)


def test_an_output_of_a_float_softmax_is_measured_at_its_input() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 3] p) <float[4, 3] w = {9, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0}> {
      [product] logits = MatMul (x, w)
      [end] p = Softmax (logits)
    }"""
    model = prepare(ir.from_proto(onnx.parser.parse_model(text))).model
    identity = model_id(model, "m.onnx")
    sample = Sample("0", {"x": np.array([[5.0, 0.3, 0.1, 9.7]], np.float32)})
    profile = calibrate(model, [sample], identity)
    plan = plan_alone(model, profile, load_recipe(None, {"keep_float": ["end"]}))
    result = sensitivity_of(model, plan, [sample], threads=1)
    assert result.quantized.sqnr.keys() == {"logits"}
    assert [check.output for check in result.estimates] == list(plan.origin.estimated_sqnr) == ["p"]
    assert result.quantized.worst_sqnr < 60.0  # at the output, 45 against 3, nothing would differ


def test_nothing_is_recovered_where_there_is_no_float_output() -> None:
    nothing, some = Effect({}, None, None, 0.5), Effect({"y": 20.0}, 20.0, 20.0, None)
    assert recovered(nothing, nothing) is None
    assert recovered(some, Effect({"y": 23.5}, 23.5, 23.5, None)) == 3.5


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


def test_the_nodes_of_one_look_up_table_are_measured_together(tables) -> None:
    model, plan, samples = tables
    result = {n.node: n for n in sensitivity_of(model, plan, samples, threads=1).nodes}
    assert set(result) == {"first", "other", "silu", "sum", "last"}
    assert result["silu"].op_type == "Sigmoid, Mul"
    assert result["silu"].group == ("gate", "silu")
    variants = ((result["silu"].only_quantized, only_quantized), (result["silu"].left_float, left_float))
    for effect, variant in variants:
        expected = effect_by_hand(model, samples, variant(plan, result["silu"].group))
        assert effect.sqnr == pytest.approx(expected.sqnr, abs=0.01)  # last bits, as above


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
    assert segment_ends([(0,), (3,), (4,), (8,)], 10) == [4, 4, 10, 10]
    assert segment_ends([(0,), (3, 5), (4,), (8,)], 10) == [10, 10, 10, 10]


def node(name: str, recovered: float | None, *group: str) -> NodeSensitivity:
    effect = Effect({"y": 30.0}, 30.0, 30.0, None)
    return NodeSensitivity(name, "Conv", group or (name,), "quantized", name, effect, effect, recovered)


def test_the_nodes_that_recover_most_are_suggested_to_be_kept_float() -> None:
    nodes = (node("a", 0.4), node("b", 0.6), node("c", None), node("d", 3.0, "gate", "d"), node("e", -1.0))
    result = Sensitivities("m.onnx", 1, nodes[0].only_quantized, nodes)
    assert result.keep_float == ("gate", "d", "b")


def test_at_most_five_nodes_are_suggested_to_be_kept_float() -> None:
    nodes = tuple(node(name, 1.0) for name in "abcdefg")
    assert Sensitivities("m.onnx", 1, nodes[0].only_quantized, nodes).keep_float == tuple("abcde")
