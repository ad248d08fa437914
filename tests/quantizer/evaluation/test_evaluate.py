import math

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.evaluation.doubts import has_quantized_nodes
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.gates import timed_where_it_runs
from qprof_onnx.quantizer.evaluation.latency import measure
from qprof_onnx.quantizer.evaluation.options import Gate, Judge, LatencySettings, RuntimeName
from qprof_onnx.quantizer.model.files import model_bytes

NO_LATENCY = Judge(latency=None)

SHIFTED = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 3] x) => (float[N, 3] y) <float[3] c = {{{c}}}> {{ y = Add (x, c) }}"""

LOGITS = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 3] x) => (float[N, 3] y)
<float[3] c = {{{c}}}, float[3, 3] eye = {{1, 0, 0, 0, 1, 0, 0, 0, 1}}> {{
  m = MatMul (x, eye)
  y = Add (m, c)
}}"""

SAME = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 2] x) => (float[N, 2] y) { y = Identity (x) }"""

SHIFTED_BY_INT8 = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 3] x) => (float[N, 3] y) <int8[3] q = {1, 0, 0}, float s = {0.5}, int8 z = {0}> {
  c = DequantizeLinear (q, s, z)
  y = Add (x, c)
}"""


def shifted(*c: float) -> str:
    return SHIFTED.format(c=", ".join(map(str, c)))


def logits(*c: float) -> str:
    return LOGITS.format(c=", ".join(map(str, c)))


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str, padding: int = 0):
        path = tmp_path / name
        model = onnx.parser.parse_model(text)
        model.doc_string = "." * padding  # bytes, as the weights of a larger model
        onnx.save(model, path)
        return path

    return write


@pytest.fixture
def samples(tmp_path):
    def samples(*arrays, name="x"):
        folder = tmp_path / "data"
        folder.mkdir()
        for number, array in enumerate(arrays):
            np.savez(folder / f"{number}.npz", **{name: np.asarray(array, np.float32)})
        return folder

    return samples


def test_sqnr_is_accumulated_over_samples(write, samples) -> None:
    data = samples([[3.0, 0.0, 4.0]], [[0.0, 0.0, 0.0], [5.0, 5.0, 0.0]])
    a, b = write("a.onnx", logits(0, 0, 0)), write("b.onnx", logits(0.5, 0, 0))
    found = evaluate(a, b, data, measuring=NO_LATENCY)
    # signal 9 + 16 + 25 + 25 = 75; noise three rows of 0.25
    (output,) = found.outputs
    assert output.difference.sqnr == pytest.approx(20.0, rel=1e-12)  # exact sums, one log10
    assert (found.samples, output.agreement.total) == (2, 3)
    # the all-equal second row and the tie in the third go to the first on both sides
    assert output.agreement.same == 3


def test_an_output_without_classes_has_no_agreement(write, samples) -> None:
    a, data = write("a.onnx", SAME), samples([[1.0, 2.0]])
    assert evaluate(a, a, data, measuring=NO_LATENCY).outputs[0].agreement is None
    b = write("b.onnx", SAME.replace("Identity", "Softmax"))
    assert evaluate(b, b, data, measuring=NO_LATENCY).outputs[0].agreement.kind == "top-1"


def test_a_gate_says_what_failed_and_by_how_much(write, samples) -> None:
    a, b = write("a.onnx", shifted(0, 0, 0)), write("b.onnx", shifted(0.5, 0, 0))
    found = evaluate(a, b, samples([[3.0, 0.0, 4.0]]), measuring=NO_LATENCY, gate=Gate(min_sqnr=25.0))
    assert not found.passed
    (failure,) = found.failures
    assert (failure.demand, failure.where, failure.limit) == ("min_sqnr", "output 'y'", 25.0)
    assert failure.measured == pytest.approx(20.0, rel=1e-12)
    assert failure.missing == pytest.approx(5.0, rel=1e-12)


def test_rows_are_those_of_the_inputs_whatever_axis_an_output_begins_with(write, samples) -> None:
    text = """<ir_version: 8, opset_import: ["": 13]>
    agraph (float[N, 3] x) => (float[N, 3] y, float[2, N, 3] states) <int64[1] zero = {0}> {
      y = Relu (x)
      one = Unsqueeze (y, zero)
      states = Concat <axis = 0> (one, one)
    }"""
    found = evaluate(write("a.onnx", text), write("b.onnx", text), samples([[3, 0, 4]], [[1, 2, 0]]))
    assert (found.samples, found.rows) == (2, 2)


def test_a_gate_that_is_met_passes(write, samples) -> None:
    a, b = write("a.onnx", shifted(0, 0, 0), padding=999), write("b.onnx", SHIFTED_BY_INT8)
    assert evaluate(a, b, samples([[3.0, 0.0, 4.0]]), measuring=NO_LATENCY, gate=Gate(min_sqnr=19.9)).passed


def test_models_that_are_not_float_and_quantized_are_doubted_and_fail_any_gate(write, samples) -> None:
    small, large = write("small.onnx", shifted(0, 0, 0)), write("large.onnx", shifted(0, 0, 0), padding=999)
    quantized, data = write("q.onnx", SHIFTED_BY_INT8), samples([[3.0, 0.0, 4.0]])
    for first, second, doubt, without_gate in (
        (large, small, "small.onnx is the float model large.onnx again", True),
        (large, write("other.onnx", shifted(0, 0, 1)), "other.onnx: no node is quantized", True),
        (small, quantized, "q.onnx: larger than float: ", True),
        (quantized, large, "q.onnx is quantized and large.onnx is not: they look swapped", False),
    ):
        for gate, passed in ((Gate(), without_gate), (Gate(min_sqnr=10.0), False)):
            found = evaluate(first, second, data, measuring=NO_LATENCY, gate=gate)
            assert (found.passed, found.failures) == (passed, ())
            (one,) = found.doubts
            assert one.text.startswith(doubt)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.zeros((4, 3)), "input 'x' is 0 everywhere"),
        (np.ones((4, 1)) * [1, 2, 3], "all 4 samples are equal"),
    ],
)
def test_data_that_do_not_vary_prove_nothing(write, samples, rows, said) -> None:
    a, b = write("a.onnx", shifted(0, 0, 0), padding=999), write("b.onnx", SHIFTED_BY_INT8)
    found = evaluate(a, b, samples(rows), measuring=NO_LATENCY)
    (one,) = found.void
    assert one.text.startswith(said)
    assert not found.passed


def test_quantized_nodes_of_subgraphs_count() -> None:
    inside = ir.Node("", "QuantizeLinear", [])
    branch = ir.Graph([], [], nodes=[inside])
    node = ir.Node("", "If", [], [ir.AttrGraph("then_branch", branch)])
    assert has_quantized_nodes(ir.Model(ir.Graph([], [], nodes=[node]), ir_version=8))
    assert not has_quantized_nodes(ir.Model(ir.Graph([], [], nodes=[ir.Node("", "If", [])]), ir_version=8))


def test_accuracy_of_both_is_counted_against_labels(write, samples, tmp_path) -> None:
    data = samples([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]], [[1.0, 0.9, 0.0]])
    (tmp_path / "labels.txt").write_text("0\n1\n0\n")
    a, b = write("a.onnx", shifted(0, 0, 0)), write("b.onnx", shifted(0, 0.5, 0))  # turns the last row
    gate = Gate(max_drop=1.0)
    found = evaluate(a, b, data, labels=tmp_path / "labels.txt", measuring=NO_LATENCY, gate=gate)
    assert (found.metric, found.score.rows, found.score.float_score) == ("accuracy", 3, 100.0)
    assert found.score.drop == pytest.approx(100 / 3, rel=1e-12)
    assert found.score.drop_low < 0 < found.score.drop_high  # three rows prove nothing
    assert [f.demand for f in found.failures] == ["max_drop"]


def test_the_gate_on_accuracy_is_held_against_the_interval_and_says_how_many_rows_would_do(
    write, samples, tmp_path
) -> None:
    rows = np.eye(3, dtype=np.float32)[np.zeros(30, int)] * np.linspace(1, 2, 30, dtype=np.float32)[:, None]
    (tmp_path / "labels.txt").write_text("0\n" * 30)
    a, b = write("a.onnx", shifted(0, 0, 0), padding=999), write("b.onnx", SHIFTED_BY_INT8)
    data, labels = samples(rows), tmp_path / "labels.txt"
    few = evaluate(a, b, data, labels=labels, measuring=NO_LATENCY, gate=Gate(max_drop=5.0))
    assert few.score.drop == 0.0
    (failure,) = few.failures
    assert failure.measured == few.score.drop_high > 5.0
    assert "0.00 percentage points lost, but 30 rows cannot show that it is at most 5" in failure.reason
    assert "about 54 would, if they differ as often" in failure.reason
    wide = Gate(max_drop=math.ceil(few.score.drop_high))
    assert evaluate(a, b, data, labels=labels, measuring=NO_LATENCY, gate=wide).passed


def test_labels_that_do_not_match_name_both_counts(write, samples, tmp_path) -> None:
    data = samples(np.eye(3), np.eye(3))
    a = write("a.onnx", shifted(0, 0, 0))
    for count in (5, 7):
        (tmp_path / "labels.txt").write_text("0\n" * count)
        with pytest.raises(DataError, match=rf"{count} labels, but the samples have 6 rows"):
            evaluate(a, a, data, labels=tmp_path / "labels.txt", measuring=NO_LATENCY)


def test_samples_without_rows_cannot_have_labels(write, samples, tmp_path) -> None:
    (tmp_path / "labels.txt").write_text("")
    a = write("a.onnx", shifted(0, 0, 0))
    with pytest.raises(DataError, match=r"0\.npz: is a batch of no rows; leave the sample out"):
        evaluate(a, a, samples(np.zeros((0, 3))), labels=tmp_path / "labels.txt", measuring=NO_LATENCY)


@pytest.mark.parametrize("metric", [None, "top-1"])
def test_labels_are_those_of_the_samples_that_a_limit_drew(write, samples, tmp_path, metric) -> None:
    classes = np.random.default_rng(0).integers(0, 3, 24)
    data = samples(*(np.eye(3)[classes[at : at + 2]] for at in range(0, 24, 2)))
    (tmp_path / "labels.txt").write_text("\n".join(map(str, classes)))
    a, b = write("a.onnx", shifted(0, 0, 0)), write("b.onnx", shifted(9, 0, 0))
    measuring = Judge(limit=5, latency=None, metric=metric)
    found = evaluate(a, b, data, labels=tmp_path / "labels.txt", measuring=measuring)
    assert (found.samples, found.score.float_score) == (5, 100.0)


def test_labels_may_belong_to_another_output(write, samples, tmp_path) -> None:
    text = """<ir_version: 8, opset_import: ["": 13]>
    agraph (float[N, 3] x) => (float[N, 3] y, int64[N] best) {
      y = Identity (x)
      best = ArgMax <axis = 1, keepdims = 0> (x)
    }"""
    (tmp_path / "labels.txt").write_text("0\n1\n1\n")
    a = write("a.onnx", text)
    found = evaluate(
        a,
        a,
        samples(np.eye(3)),
        labels=tmp_path / "labels.txt",
        measuring=Judge(scored_output="best", latency=None),
    )
    assert (found.scored, found.score.float_score) == ("best", pytest.approx(200 / 3))
    integers = found.outputs[1]
    assert (integers.difference, integers.agreement.kind, integers.agreement.ratio) == (None, "equal", 1.0)
    with pytest.raises(ModelError, match=r"no output of this name; .* Did you mean 'best'"):
        evaluate(a, a, tmp_path / "data", measuring=Judge(scored_output="bets"))


def test_an_output_without_classes_cannot_have_labels(write, samples, tmp_path) -> None:
    a = write("a.onnx", SAME.replace("[N, 2]", "[N]"))
    (tmp_path / "labels.txt").write_text("0\n")
    with pytest.raises(ModelError, match=r"output 'y': float32 of shape \[1\] has no class axis"):
        evaluate(a, a, samples([1.0]), labels=tmp_path / "labels.txt", measuring=NO_LATENCY)


KEPT = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N] x) => (float[M] y, int64[1, M] at) <float c = {{{c}}}> {{
  up = Greater (x, c)
  y = Compress (x, up)
  at = NonZero (up)
}}"""


def test_outputs_of_other_shapes_are_counted(write, samples) -> None:
    a, b = write("a.onnx", KEPT.format(c=0.5)), write("b.onnx", KEPT.format(c=0.7))
    data = samples([0.1, 0.6, 0.9], [0.1, 0.2, 0.9])
    y, at = evaluate(a, b, data, measuring=NO_LATENCY).outputs
    assert (y.shape_mismatches, at.shape_mismatches) == (1, 1)
    assert (at.agreement.same, at.agreement.total) == (1, 3)


def test_outputs_of_other_lengths_are_compared_on_their_common_part(write, samples) -> None:
    """A decoder that stops one step earlier is as good up to there."""
    text = """<ir_version: 8, opset_import: ["": 13]>
    agraph (float[N] x) => (float[M] y, int64[M] t) <int64[1] s = {{0}}, int64[1] e = {{{end}}}> {{
      y = Slice (x, s, e)
      t = Cast <to = 7> (y)
    }}"""
    a, b = write("a.onnx", text.format(end=3)), write("b.onnx", text.format(end=2))
    data = samples([1.0, 2.0, 3.0], [1.0, 2.0])
    y, t = evaluate(a, b, data, measuring=NO_LATENCY).outputs
    assert (y.difference.sqnr, y.shape_mismatches) == (math.inf, 1)
    assert (t.agreement.same, t.agreement.total, t.shape_mismatches) == (4, 5, 1)
    y, t = evaluate(b, a, data, measuring=NO_LATENCY).outputs
    assert (t.agreement.same, t.agreement.total) == (4, 5)  # what is too much is not the same either


def test_an_output_of_another_shape_on_some_samples_fails_a_gate_on_sqnr(write, samples) -> None:
    a, b = write("a.onnx", KEPT.format(c=0.5)), write("b.onnx", KEPT.format(c=0.7))
    data = samples([0.1, 0.6, 0.9], [0.1, 0.2, 0.9])  # the second sample is equal in both
    found = evaluate(a, b, data, measuring=NO_LATENCY, gate=Gate(min_sqnr=-1000.0))
    (failure,) = found.failures
    assert (failure.demand, failure.where, failure.measured) == ("min_sqnr", "output 'y'", None)
    assert failure.reason == "has another shape than float's in 1 of 2 samples"
    assert failure.result == "not proven"


def test_a_quantized_model_that_makes_nan_fails_any_gate(write, samples) -> None:
    text = SAME.replace("Identity", "Log")
    a, b = write("a.onnx", SAME), write("b.onnx", text)
    found = evaluate(a, b, samples([[-1.0, 1.0]]), measuring=NO_LATENCY, gate=Gate(min_sqnr=-1000.0))
    assert found.outputs[0].difference.non_finite == 1
    (failure,) = found.failures
    assert (failure.measured, failure.result) == (None, "not proven")
    assert failure.reason == "1 elements are NaN or Inf in one of the models only"


def test_a_missing_output_is_named(write, samples) -> None:
    a = write("a.onnx", SAME)
    b = write("b.onnx", SAME.replace("] y)", "] z)").replace("y =", "z ="))
    with pytest.raises(ModelError, match=r"b\.onnx: has no output 'y'"):
        evaluate(a, b, samples([[1.0, 2.0]]))


def test_an_extra_input_is_named(write, samples) -> None:
    a = write("a.onnx", SAME)
    b = write("b.onnx", SAME.replace("(float[N, 2] x)", "(float[N, 2] x, float[N, 2] extra)"))
    with pytest.raises(ModelError, match=r"b\.onnx: has input 'extra'"):
        evaluate(a, b, samples([[1.0, 2.0]]))


def test_outputs_of_another_kind_are_refused(write, samples) -> None:
    a = write("a.onnx", SAME)
    b = write(
        "b.onnx", SAME.replace("(float[N, 2] y)", "(int64[N, 2] y)").replace("Identity", "Cast <to = 7>")
    )
    with pytest.raises(
        ModelError, match=r"output 'y' is a tensor\(int64\), in .*a\.onnx it is a tensor\(float\)"
    ):
        evaluate(a, b, samples([[1.0, 2.0]]))


def test_sqnr_cannot_be_asked_of_integers(write, samples) -> None:
    a = write(
        "a.onnx", SAME.replace("(float[N, 2] y)", "(int64[N, 2] y)").replace("Identity", "Cast <to = 7>")
    )
    with pytest.raises(ConfigError, match="has no float output"):
        evaluate(a, a, samples([[1.0, 2.0]]), gate=Gate(min_sqnr=1.0), measuring=NO_LATENCY)


def test_latency_of_both_is_measured_and_can_fail_a_gate(write, samples) -> None:
    a = write("a.onnx", SAME)
    measuring, gate = Judge(latency=LatencySettings(rounds=3)), Gate(min_speedup=1e6)
    found = evaluate(a, a, samples([[1.0, 2.0]], [[3.0, 4.0]]), measuring=measuring, gate=gate)
    assert found.latency.float_ms > 0
    assert found.latency.speedup_low <= found.latency.speedup <= found.latency.speedup_high
    assert (found.latency.rounds, found.latency.samples, found.latency.threads) == (3, 2, 1)
    assert [f.demand for f in found.failures] == ["min_speedup"]


@pytest.mark.parametrize(
    ("precision", "gate"), [(0.05, Gate()), (0.0, Gate()), (0.05, Gate(min_speedup=1.0))]
)
def test_runs_on_samples_are_rounds_if_no_number_of_rounds_is_asked_for(
    write, samples, monkeypatch, precision: float, gate: Gate
) -> None:
    a, seen = write("a.onnx", SAME), list[int]()

    def measured(run_float, run_quantized, samples, settings, before, *, clock):
        seen.append(len(before))
        return measure(run_float, run_quantized, samples, settings, before, clock=clock)

    monkeypatch.setattr("qprof_onnx.quantizer.evaluation.evaluate.measure", measured)
    measuring = Judge(latency=LatencySettings(rounds=3, precision=precision))
    evaluate(a, a, samples(*([[float(at), 1.0]] for at in range(3))), measuring=measuring, gate=gate)
    assert seen == [2 if precision and not gate.has_limit else 0]


def test_sizes_have_external_data_in_them(write, tmp_path) -> None:
    path = write("a.onnx", shifted(1, 2, 3))
    model = onnx.load(path)
    (weight,) = model.graph.initializer
    weight.CopyFrom(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight), weight.name)
    )  # as raw bytes
    onnx.save(model, tmp_path / "b.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    outside = (tmp_path / "w.bin").stat().st_size
    assert outside >= 12
    assert model_bytes(tmp_path / "b.onnx") == (tmp_path / "b.onnx").stat().st_size + outside
    assert model_bytes(path) == path.stat().st_size


def test_progress_is_told_after_every_sample(write, samples) -> None:
    seen = []
    a = write("a.onnx", SAME)
    data = samples([[1.0, 2.0]], [[1.0, 2.0]])
    evaluate(a, a, data, measuring=NO_LATENCY, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("target", "runtime", "is_timed"),
    [
        ("onnxruntime-x86", "onnxruntime", True),
        ("tensorrt", "onnxruntime", False),
        ("openvino", "onnxruntime", False),
        ("openvino", "openvino", True),
        ("onnx", "onnxruntime", False),
        ("onnxruntime-x86", "openvino", False),
        ("", "onnxruntime", True),
        ("my-own", "onnxruntime", True),
    ],
)
def test_latency_is_measured_where_the_target_runs(target: str, runtime: RuntimeName, is_timed: bool) -> None:
    measuring = timed_where_it_runs(Judge(runtime=runtime), Gate(), target)
    assert (measuring.latency is not None) == is_timed


def test_a_limit_on_the_time_of_another_runtime_is_refused() -> None:
    with pytest.raises(ConfigError, match="times in onnxruntime do not apply to tensorrt"):
        timed_where_it_runs(Judge(), Gate(min_speedup=1.0), "tensorrt")


SPLIT = """<ir_version: 8, opset_import: ["": 13]>
agraph (float[N, 2] x) => (seq(float[N, 1]) parts, float[N, 2] y) {
  parts = SplitToSequence <axis = 1> (x)
  y = Identity (x)
}"""

MAPS = """<ir_version: 8, opset_import: ["": 13, "ai.onnx.ml": 2]>
agraph (float[N, 2] x) => (seq(map(int64, float[N])) maps, float[N, 2] y) {
  maps = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (x)
  y = Identity (x)
}"""


def test_an_output_that_is_a_sequence_is_not_compared_and_that_is_told(write, samples) -> None:
    path = write("split.onnx", SPLIT)
    result = evaluate(path, path, samples([[1.0, 2.0]]), measuring=NO_LATENCY)
    assert [output.name for output in result.outputs] == ["y"]
    (told,) = [str(one) for one in result.findings if one.code is Code.UNCOMPARED_OUTPUT]
    assert told == "output 'parts' is a seq(tensor(float)): it is not compared"


def test_an_output_of_maps_is_told_with_the_option_that_exports_an_array(write, samples) -> None:
    path = write("maps.onnx", MAPS)
    result = evaluate(path, path, samples([[0.25, 0.75]]), measuring=NO_LATENCY)
    (told,) = [str(one) for one in result.findings if one.code is Code.UNCOMPARED_OUTPUT]
    assert told == (
        "output 'maps' is a seq(map(int64,tensor(float))): it is not compared; "
        "zipmap=False of skl2onnx exports an array"
    )


def test_a_model_of_sequences_alone_is_refused(write, samples) -> None:
    path = write("split.onnx", SPLIT.replace(", float[N, 2] y", "").replace("y = Identity (x)", ""))
    with pytest.raises(ModelError, match="output 'parts' is a seq"):
        evaluate(path, path, samples([[1.0, 2.0]]), measuring=NO_LATENCY)
