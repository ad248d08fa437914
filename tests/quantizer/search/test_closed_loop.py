"""Plans that are run on calibration samples before they are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
import qprof_onnx as qprof
from onnx import helper, numpy_helper, parser, save
from onnxruntime import InferenceSession
from qprof_onnx.profiles.base.findings import Code, Severity, of_severity
from qprof_onnx.profiles.records.check_samples import CheckSample, samples_content
from qprof_onnx.quantizer.evaluation import output_shift
from qprof_onnx.quantizer.evaluation.output_shift import Measure, OutputShift
from qprof_onnx.quantizer.plan import plan as plan_module
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.planning import noise_budget
from qprof_onnx.quantizer.planning.facts import PlanningFacts
from qprof_onnx.quantizer.planning.known import NOTHING, Known
from qprof_onnx.quantizer.planning.plan_model import PlannedModel, model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.search import closed_loop, worth
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def quantized(out: Path, **keywords: object) -> qprof.QuantizeResult:
    """Return the example's model, quantized with a calibrator that is not careful enough for it."""
    given = {"latency": False, "budget": 0.0, "calibrator": "kl", **keywords}
    return qprof.quantize(DIGITS / "model.onnx", None, out, data=DIGITS / "calibration", **given)  # type: ignore[arg-type]


def floats(result: qprof.QuantizeResult) -> int:
    return sum(entry.kind == "float" for entry in result.plan.nodes.values())


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return how much probability moves in the first plan."""
    return quantized(tmp_path_factory.mktemp("first") / "q.onnx").plan.origin.checks[0].value


@pytest.fixture
def demanding(moved: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let half as much move, whatever time that costs, of a plan whose noise no estimate tells."""
    monkeypatch.setattr(noise_budget, "too_noisy", lambda allowed, decision: {})
    monkeypatch.setattr(output_shift, "MOST_MOVED", moved / 2.0)
    monkeypatch.setattr(closed_loop, "MIN_NOISE_PER_TIME", 0.01)


@pytest.mark.slow
def test_the_plan_says_how_far_the_outputs_moved(tmp_path: Path) -> None:
    result = quantized(tmp_path / "q.onnx")
    (check,) = result.plan.origin.checks
    assert (check.output, check.measure) == ("logits", "moved probability")
    assert 0.0 < check.value < check.limit
    assert qprof.load_plan(tmp_path / "q.qprof" / "plan.yaml").origin.checks == result.plan.origin.checks


@pytest.mark.usefixtures("demanding")
def test_where_an_output_moves_too_far_more_nodes_stay_float_until_it_holds(tmp_path: Path) -> None:
    before = quantized(tmp_path / "before.onnx", check_outputs="off", bias_correction="off")
    after = quantized(tmp_path / "after.onnx", bias_correction="off")
    (check,) = after.plan.origin.checks
    assert check.value <= check.limit
    assert floats(after) > floats(before)
    assert any("the first plan was too noisy" in note for note in map(str, after.plan.findings))


def test_where_the_estimate_was_too_careful_more_nodes_are_quantized(tmp_path: Path) -> None:
    """A plan with far less noise than it may have stands for an estimate that was too careful."""
    path = DIGITS / "model.onnx"
    profile = qprof.profile(path, DIGITS / "calibration")
    recipe = load_recipe()
    asked = replace(recipe, config=replace(recipe.config, cost_model="off"))
    facts = model_facts(open_prepared(path), profile, asked)
    planned = plan_from(facts, Known(looser={"logits": -30.0}))
    _, bolder, _ = closed_loop.plan_held_on_samples(facts, planned, path, DIGITS / "calibration")
    assert bolder.plan.origin.checks[0].value <= closed_loop.BOLD_LIMIT * bolder.plan.origin.checks[0].limit
    kinds = [[entry.kind for entry in p.plan.nodes.values()].count(Kind.FLOAT) for p in (planned, bolder)]
    assert kinds[1] < kinds[0]
    assert any(
        "less noise than estimated: more nodes are quantized" in note
        for note in map(str, bolder.plan.findings)
    )


def drawing(path: Path) -> list[dict[str, npt.NDArray[np.float32]]]:
    """Write a model whose output is drawn at random around what it computes, and return samples of it."""
    rng = np.random.default_rng(0)
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[1, 16] x) => (float[1, 8] y)
        { g = MatMul(x, v) h = Relu(g) z = MatMul(h, w) noise = RandomNormalLike(z) y = Add(z, noise) }"""
    model = parser.parse_model(text)
    for name, width in (("v", 16), ("w", 8)):
        weight = rng.normal(size=(16, width)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    save(model, path)
    return [{"x": rng.normal(size=(1, 16)).astype(np.float32)} for _ in range(32)]


def test_where_no_output_can_be_compared_nothing_is_to_spare_for_a_bolder_plan(tmp_path: Path) -> None:
    samples = drawing(tmp_path / "m.onnx")
    prepared, profile = open_prepared(tmp_path / "m.onnx"), qprof.profile(tmp_path / "m.onnx", samples)
    recipe = load_recipe()
    asked = replace(recipe, config=replace(recipe.config, cost_model="off"))
    facts = model_facts(prepared, profile, asked)
    planned = plan_from(facts, Known(looser={"y": -30.0}))
    assert {str(entry.float_reason.code) for entry in planned.plan.nodes.values() if entry.stays_float} & {
        str(ReasonCode.NOISE_BUDGET),
        str(ReasonCode.NOISE_LIMIT),
    }
    _, held, _ = closed_loop.plan_held_on_samples(facts, planned, tmp_path / "m.onnx", samples)
    assert held.plan.nodes == planned.plan.nodes
    assert held.plan.origin.checks[0].samples == closed_loop.INCOMPARABLE_SAMPLES


def test_no_verdict_is_run_for_where_none_can_be_given(tmp_path: Path) -> None:
    samples = drawing(tmp_path / "m.onnx")
    result = qprof.quantize(tmp_path / "m.onnx", None, data=samples, latency=False)
    assert result.judged is not None
    assert result.judged.verdict.grade == "none"
    assert result.judged.evaluation.samples == closed_loop.INCOMPARABLE_SAMPLES
    assert not [one for one in result.findings if one.code is Code.FEW_HELD_OUT]


@pytest.mark.slow
@pytest.mark.usefixtures("demanding")
def test_the_same_samples_give_the_same_plan_and_it_repeats_without_them(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    first, again = (quantized(tmp_path / name / "q.onnx") for name in "ab")
    assert first.plan == again.plan
    without = qprof.quantize(
        DIGITS / "model.onnx", None, tmp_path / "c.onnx", plan=tmp_path / "a" / "q.qprof" / "plan.yaml"
    )
    assert without.model_path is not None
    assert without.model_path.read_bytes() == (tmp_path / "b" / "q.onnx").read_bytes()


def test_fewer_samples_are_run_where_outputs_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    per_sample = quantized(tmp_path / "q.onnx").plan.origin.checks[0].samples
    assert per_sample > 2
    profile = qprof.load_profile(tmp_path / "q.qprof" / "profile.yaml")
    elements = profile["logits"].count // profile.data.samples
    for room, samples in ((2, 2), (1, 0)):
        monkeypatch.setattr(closed_loop, "MAX_OUTPUT_ELEMENTS", room * elements)
        checks = quantized(tmp_path / "q.onnx").plan.origin.checks
        assert [check.samples for check in checks] == [samples] * bool(samples)


def test_what_no_plan_can_hold_at_its_price_is_said(
    tmp_path: Path, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_shift, "MOST_MOVED", 1.25 * moved)
    monkeypatch.setattr(closed_loop, "MIN_NOISE_PER_TIME", 1e3)
    result = quantized(tmp_path / "q.onnx", bias_correction="off")
    assert any("no plan that was tried meets the limit" in note for note in map(str, result.plan.findings))


def test_a_plan_whose_noise_is_not_worth_the_time_of_float_is_not_tried_with_weights_alone(
    tmp_path: Path, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Known] = []
    monkeypatch.setattr(output_shift, "MOST_MOVED", 0.75 * moved)
    monkeypatch.setattr(closed_loop, "MIN_NOISE_PER_TIME", 1e3)
    monkeypatch.setattr(closed_loop, "plan_from", lambda facts, known: tried.append(known))
    monkeypatch.setattr(closed_loop, "_is_assumed", lambda facts: False)
    monkeypatch.setattr(closed_loop._CheckedPlans, "_without_noisy_nodes", lambda self, best: ())
    quantized(tmp_path / "q.onnx", bias_correction="off")
    assert not tried


def test_a_poor_plan_gives_way_to_one_that_holds_whatever_that_costs(
    tmp_path: Path, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_budget, "too_noisy", lambda allowed, decision: {})
    monkeypatch.setattr(output_shift, "MOST_MOVED", moved / 4.0)
    monkeypatch.setattr(closed_loop, "MIN_NOISE_PER_TIME", 1e3)
    (check,) = quantized(tmp_path / "q.onnx", bias_correction="off").plan.origin.checks
    assert check.value <= check.limit


def test_a_poor_plan_has_quantized_weights_alone_where_nothing_faster_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights lie on the grid of 8 bits, so that all noise is that of activations."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-126, 127, (256, 64)).astype(np.float32) / 127.0
    weight[0] = 1.0
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> sure (float[N, 256] x) => (float[N, 64] y)
        { z = MatMul (x, w) y = Softmax (z) }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    save(model, tmp_path / "m.onnx")
    samples = [{"x": rng.normal(size=(1, 256)).astype(np.float32)} for _ in range(48)]
    given = {"data": samples, "latency": False, "budget": 0.0, "cost_model": "off"}
    poor = qprof.quantize(tmp_path / "m.onnx", None, tmp_path / "p.onnx", **given)  # type: ignore[arg-type]
    (check,) = poor.plan.origin.checks
    assert Kind.QUANTIZED in {entry.kind for entry in poor.plan.nodes.values()}
    monkeypatch.setattr(output_shift, "MOST_MOVED", check.value / 5.0)
    good = qprof.quantize(tmp_path / "m.onnx", None, tmp_path / "g.onnx", **given)  # type: ignore[arg-type]
    (check,) = good.plan.origin.checks
    assert check.value <= check.limit
    assert {entry.kind for entry in good.plan.nodes.values()} == {Kind.WEIGHT_ONLY, Kind.FLOAT}


def test_where_every_plan_that_ran_is_poor_one_sentence_says_so(
    tmp_path: Path, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_shift, "MOST_MOVED", moved / 5.0)
    monkeypatch.setattr(closed_loop, "FAIR", 1e-12)  # all that is not float is poor
    monkeypatch.setattr(closed_loop._Checked, "holds", property(lambda plan: plan.excess < 1e-9))
    result = quantized(tmp_path / "q.onnx", bias_correction="off")
    (told,) = [str(one) for one in result.plan.findings if one.code is Code.LIMIT_EXCEEDED]
    assert "that is poor, and no plan that was tried meets the limit" in told


@pytest.mark.parametrize(("costs", "taken"), [("a table", False), (None, True)])
def test_where_times_are_assumed_a_plan_that_holds_is_taken_at_any_price_that_is_tried(
    costs: str | None, taken: bool
) -> None:
    facts = cast(PlanningFacts, SimpleNamespace(recipe=SimpleNamespace(costs=costs)))
    planned, change = cast(PlannedModel, None), closed_loop.Change(facts, NOTHING)
    first, second = (
        closed_loop._Checked(planned, change, (shift,), time)
        for time, value in ((0.54, 0.048), (0.64, 0.046))
        for shift in (OutputShift("y", Measure.MOVED, value, 0.047, 40.0),)
    )
    assert second.improves(first) is taken


@pytest.mark.slow
def test_a_limit_of_the_users_own_is_measured_in_its_unit(tmp_path: Path) -> None:
    (low,) = quantized(tmp_path / "low.onnx", min_output_sqnr=10.0).plan.origin.checks
    (high,) = quantized(tmp_path / "high.onnx", min_output_sqnr=25.0).plan.origin.checks
    assert (low.measure, high.measure) == ("noise", "noise")
    assert low.sqnr is not None
    assert high.sqnr is not None
    assert low.sqnr >= 10.0
    assert high.sqnr >= 25.0


def test_a_profile_brings_the_samples_that_a_plan_is_run_on(tmp_path: Path) -> None:
    path, file = DIGITS / "model.onnx", tmp_path / "p.yaml"
    profile = qprof.profile(path, DIGITS / "calibration", file)
    results = [
        qprof.quantize(path, source, tmp_path / f"{name}.onnx")
        for name, source in (("object", profile), ("file", file))
    ]
    for result in results:
        (check,) = result.plan.origin.checks
        assert (check.samples, check.fault) == (len(profile.held_samples), "")
        assert result.passed
    assert results[0].plan == results[1].plan


@pytest.mark.parametrize("change", ["missing", "cut", "values", "other"])
def test_without_its_samples_a_profile_gives_estimates_and_says_why(tmp_path: Path, change: str) -> None:
    path, file = DIGITS / "model.onnx", tmp_path / "p.yaml"
    profile = qprof.profile(path, DIGITS / "calibration", file)
    beside = tmp_path / "p.samples.npz"
    if change == "missing":
        beside.unlink()
    elif change == "cut":
        beside.write_bytes(beside.read_bytes()[:-900])
    else:
        kept = [CheckSample(s.digest, {k: v + 1 for k, v in s.arrays.items()}) for s in profile.held_samples]
        beside.write_bytes(samples_content(kept if change == "values" else kept[1:]))
    result = qprof.quantize(path, file, tmp_path / "q.onnx")
    assert result.plan.origin.checks == ()
    assert any(note.startswith("quality is estimated, not run: ") for note in map(str, result.plan.findings))
    assert result.passed


def test_a_plan_that_is_given_is_run_and_stays_as_it_is(tmp_path: Path) -> None:
    path = DIGITS / "model.onnx"
    profile = qprof.profile(path, DIGITS / "calibration")
    made = qprof.quantize(path, profile, tmp_path / "a.onnx", check_outputs="off")
    given = qprof.quantize(path, profile, tmp_path / "b.onnx", plan=made.plan)
    assert made.plan.origin.checks == ()
    assert given.plan.origin.checks
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_destroyed_output_is_an_alarm_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is given is written as it was asked for."""
    path = DIGITS / "model.onnx"
    profile = qprof.profile(path, DIGITS / "calibration")
    made = qprof.quantize(path, profile, tmp_path / "a.onnx")
    monkeypatch.setattr(plan_module, "DESTROYED", 1e-9)
    given = qprof.quantize(path, profile, tmp_path / "b.onnx", plan=made.plan)
    alarms = of_severity(given.findings, Severity.ALARM)
    assert [(alarm.code, alarm.subject) for alarm in alarms] == [(Code.OUTPUT_DESTROYED, "logits")]
    assert not given.passed


def test_a_plan_that_does_not_hold_and_gains_nothing_gives_way_to_weights_or_float(
    tmp_path: Path, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_shift, "MOST_MOVED", moved / 5.0)
    monkeypatch.setattr(closed_loop, "MIN_GAIN", 0.99)
    result = quantized(tmp_path / "q.onnx", bias_correction="off")
    (check,) = result.plan.origin.checks
    assert check.value <= check.limit
    assert not any(entry.kind.counts_as_quantized for entry in result.plan.nodes.values())
    assert any("as the float model" in note for note in map(str, result.plan.findings)), result.plan.findings


def test_a_model_that_is_not_good_and_gains_nothing_is_not_written_with_samples_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "gains_nothing", lambda verdict: True)
    broken = {"calibrator": "percentile:80", "check_outputs": "off", "equalization": "off"}
    result = quantized(tmp_path / "q.onnx", **broken, min_output_sqnr=0.0)
    assert result.verdict is not None
    said = "only weights are quantized, for the size: int8 is poor, output 'logits': "
    assert any(finding.text.startswith(said) for finding in result.verdict.findings)
    assert not any(entry.kind.counts_as_quantized for entry in result.plan.nodes.values())


@pytest.mark.parametrize("limit", [None, 30.0])
def test_no_column_is_lost_beside_a_larger_one_whatever_decibels_say(limit: float | None) -> None:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> npt.NDArray[np.float32]:
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    constants = {
        "w": weights(16, 64),
        "v": weights(64, 4),
        "unit": np.array([1.0, 1e3, 1e-3, 1.0], np.float32),
        "offset": np.array([0.0, 2e4, 0.0, 273.0], np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["b"]),
        helper.make_node("Mul", ["b", "unit"], ["c"]),
        helper.make_node("Add", ["c", "offset"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, 1, [8, size]) for n, size in (("x", 16), ("y", 4))]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "units", values[:1], values[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = [{"x": rng.normal(size=(8, 16)).astype(np.float32)} for _ in range(16)]
    profile = qprof.profile(model, samples, progress=False)
    wish = {} if limit is None else {"min_output_sqnr": limit}
    result = qprof.quantize(model, profile, target="qnn", **wish)
    float_y, int8_y = (
        np.concatenate([InferenceSession(content).run(None, sample)[0] for sample in samples])
        for content in (model.SerializeToString(), ir.to_proto(result.model).SerializeToString())
    )
    errors = (int8_y - float_y).std(axis=0) / float_y.std(axis=0)
    assert errors.max() < 0.2, (errors, result.checks)


def test_where_scales_are_those_of_a_batch_check_samples_are_run_in_batches() -> None:
    rng = np.random.default_rng(0)
    array = (
        rng.integers(-64, 65, (32, 8)).astype(np.float32) / 127.0
    )  # on the grid of 8 bits: only data are noisy
    array[:2] = [[1.0], [-1.0]]
    weights = numpy_helper.from_array(array, "w")
    values = [helper.make_tensor_value_info(n, 1, ["n", size]) for n, size in (("x", 32), ("y", 8))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "rows", values[:1], values[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    levels = np.logspace(-1.5, 0.0, 8)[:, None]
    samples = [{"x": (rng.normal(size=(8, 32)) * levels).astype(np.float32)} for _ in range(8)]
    profile = qprof.profile(model, samples, progress=False)
    assert {sample.arrays["x"].shape for sample in profile.held_samples} == {(1, 32)}
    result = qprof.quantize(model, profile, mode="dynamic", cost_model="off", min_output_sqnr=1.0)
    (check,) = result.checks
    assert check.samples == len(profile.held_samples)

    quantized = InferenceSession(ir.to_proto(result.model).SerializeToString())
    reference = InferenceSession(model.SerializeToString())
    rows = [{"x": sample.arrays["x"]} for sample in profile.held_samples]
    batch = {"x": np.concatenate([row["x"] for row in rows])}

    def sqnr(feeds: list[dict[str, npt.NDArray[np.float32]]]) -> float:
        shares = []
        for feed in feeds:
            f, q = (session.run(None, feed)[0].astype(float) for session in (reference, quantized))
            shares.append(float(np.square(q - f).sum() / np.square(f).sum()))
        return -10.0 * float(np.log10(np.mean(shares)))

    assert check.sqnr is not None
    assert abs(check.sqnr - sqnr([batch])) < 3.0 < sqnr(rows) - check.sqnr, (check, sqnr([batch]), sqnr(rows))


@pytest.fixture(scope="module")
def differences(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, qprof.Profile]:
    """Return a model of 82 kB that takes small differences of large numbers, and its profile: 8 bits of the
    first of its two weights destroy it."""
    folder, rng = tmp_path_factory.mktemp("differences"), np.random.default_rng(0)
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> apart (float[N, 256] x) => (float[N, 64] y)
        <float large = {1000.0}, int64[1] last = {-1}>
        { a = MatMul (x, w) s = ReduceSum (x, last) b = Mul (s, large) d = Sub (a, b) y = MatMul (d, v) }"""
    )
    weights = {"w": 1000.0 + rng.normal(size=(256, 64)), "v": rng.normal(size=(64, 64))}
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    save(model, folder / "m.onnx")
    samples = [{"x": rng.normal(size=(1, 256)).astype(np.float32)} for _ in range(32)]
    return folder / "m.onnx", qprof.profile(folder / "m.onnx", samples)


@pytest.mark.parametrize(("size", "is_destroyed"), [("50kB", True), ("76kB", False)])
def test_a_size_has_float_among_its_formats_where_the_others_are_too_noisy_as_run(
    size: str, differences: tuple[Path, qprof.Profile], tmp_path: Path, *, is_destroyed: bool
) -> None:
    path, profile = differences
    asked = {"config": "mixed", "fit_size": size, "target": "onnx"}
    result = qprof.quantize(path, profile, tmp_path / "q.onnx", **asked)
    (check,) = result.plan.origin.checks
    assert check.is_destroyed == is_destroyed
    kinds = {name: entry.kind for name, entry in result.plan.nodes.items()}
    # With 76 kB the first weight fits in float, with 50 kB only the other one.
    floats = {name for name in ("MatMul_a", "MatMul_y") if kinds[name] is Kind.FLOAT}
    assert floats == {"MatMul_y" if is_destroyed else "MatMul_a"}
    assert result.passed != is_destroyed
    assert (tmp_path / "q.onnx").stat().st_size <= 1000 * int(size.removesuffix("kB"))


def test_what_a_state_adds_to_the_next_step_is_run_of_a_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        steps (float[1, 64] x, float[1, 64] state) => (float[1, 16] y, float[1, 64] stateN)
        { a = MatMul (x, w) b = MatMul (state, r) c = Add (a, b) stateN = Tanh (c) y = MatMul (stateN, v) }"""
    )
    sizes = {"w": (64, 64), "r": (64, 64), "v": (64, 16)}
    for name, shape in sizes.items():
        array = (rng.normal(size=shape) * (3.0 if name == "r" else 1.0) / 8.0).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    save(model, tmp_path / "m.onnx")
    samples = [
        {
            "x": rng.normal(size=(1, 64)).astype(np.float32),
            "state": np.tanh(rng.normal(size=(1, 64))).astype("f4"),
        }
        for _ in range(64)
    ]
    profile = qprof.profile(tmp_path / "m.onnx", samples)
    asked = {"config": qprof.QuantConfig(cost_model="off")}

    def checked(name: str) -> plan_module.OutputCheck:
        result = qprof.quantize(tmp_path / "m.onnx", profile, tmp_path / name, **asked)  # type: ignore[arg-type]
        return next(check for check in result.plan.origin.checks if check.output == "y")

    several = checked("several.onnx")
    monkeypatch.setattr(closed_loop, "STATE_STEPS", 1)
    one = checked("one.onnx")
    assert several.samples == one.samples == 64
    assert several.value > 1.2 * one.value
