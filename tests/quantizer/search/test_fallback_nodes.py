"""One node that cannot be written or run as written stays float, with its reason; the command goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import ModelError, PlanError
from qprof_onnx.quantizer.api import from_profile as quantization
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.api.results import QuantizeResult
from qprof_onnx.quantizer.evaluation import written_model
from qprof_onnx.quantizer.lowering.forms import qdq
from qprof_onnx.quantizer.lowering.writers import Task
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.planning.plan_model import model_facts
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.search.fallback_nodes import plan_that_runs
from qprof_onnx.quantizer.targets import conformance
from qprof_onnx.quantizer.targets.conformance import Breach
from qprof_onnx.quantizer.targets.loading import load_recipe

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,16] x) => (float[N,4] y) <float[16,16] w, float[16,4] v>
{ [first] a = MatMul (x, w) [second] y = MatMul (a, v) }"""


@pytest.fixture
def quantized(tmp_path: Path) -> Callable[..., QuantizeResult]:
    """A function that quantizes two products, given options of `write_quantized`."""
    rng = np.random.default_rng(1)
    model = parser.parse_model(TEXT)
    for name, shape in (("w", (16, 16)), ("v", (16, 4))):
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del model.graph.value_info[:]
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    samples = [{"x": rng.standard_normal((2, 16)).astype(np.float32)} for _ in range(3)]
    profile = profile_model(path, samples)
    recipe = load_recipe(None, {"min_output_sqnr": 0.0})
    return lambda **options: write_quantized(path, profile, tmp_path / "q.onnx", recipe=recipe, **options)


def test_both_products_are_quantized_where_nothing_fails(quantized: Callable[..., QuantizeResult]) -> None:
    assert {entry.kind for entry in quantized().plan.nodes.values()} == {Kind.QUANTIZED}


def _left_float(result: QuantizeResult, code: ReasonCode) -> str:
    first, second = result.plan.nodes["first"], result.plan.nodes["second"]
    assert (first.kind, second.kind) == (Kind.QUANTIZED, Kind.FLOAT)
    assert second.float_reason.code is code
    assert any(note.startswith("node 'second' stays float: ") for note in map(str, result.findings))
    return second.reason


def test_a_node_that_a_form_cannot_write_stays_float(
    quantized: Callable[..., QuantizeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = qdq.WRITERS[Kind.QUANTIZED, ""]

    def write(task: Task) -> bool:
        if task.node.name == "second":
            raise task.error("not today")
        return usual(task)

    monkeypatch.setitem(qdq.WRITERS, (Kind.QUANTIZED, ""), write)  # type: ignore[arg-type]
    reason = _left_float(quantized(), ReasonCode.NO_FORM)
    assert reason == "form qdq cannot write it: node 'second' (MatMul): not today"


def test_a_node_that_the_target_refuses_stays_float(
    quantized: Callable[..., QuantizeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(model: object, target: object) -> list[Breach]:
        names = [node.name for node in model.graph if node.op_type == "DequantizeLinear"]  # type: ignore[attr-defined]
        of_v = [n for n in names if "v" in n]
        return [(name, f"node '{name}': too wide") for name in of_v]

    monkeypatch.setattr(conformance, "CHECKS", (check,))
    assert "too wide" in _left_float(quantized(), ReasonCode.REFUSED_BY_TARGET)


def test_a_node_that_onnxruntime_does_not_run_stays_float(
    quantized: Callable[..., QuantizeResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries: list[str] = []

    def smoke_run(*given: object) -> None:
        tries.append("")
        if len(tries) == 1:
            raise ModelError(
                "q.onnx (not written): onnxruntime runs the float model and not this one: Name:'second_quant'"
            )

    monkeypatch.setattr(written_model, "smoke_run", smoke_run)
    assert "second_quant" in _left_float(quantized(check_outputs=False), ReasonCode.REFUSED_BY_RUNTIME)
    assert len(tries) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "q.onnx"]


def test_an_error_that_names_no_quantized_node_is_the_users(
    quantized: Callable[..., QuantizeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def smoke_run(*given: object) -> None:
        raise ModelError("q.onnx (not written): Name:'nobody'")

    monkeypatch.setattr(written_model, "smoke_run", smoke_run)
    with pytest.raises(ModelError, match="nobody"):
        quantized(check_outputs=False)


def test_a_model_that_ran_on_check_samples_is_written_as_it_ran_and_not_run_again(
    quantized: Callable[..., QuantizeResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quantized()
    before = (tmp_path / "q.onnx").read_bytes()
    monkeypatch.setattr(written_model, "smoke_run", lambda *given: pytest.fail("it is run again"))
    monkeypatch.setattr(quantization, "lower", lambda *given: pytest.fail("it is lowered again"))
    quantized()
    assert (tmp_path / "q.onnx").read_bytes() == before
    onnx.checker.check_model(str(tmp_path / "q.onnx"))


def test_the_plan_that_runs_has_such_a_node_in_float(
    quantized: Callable[..., QuantizeResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quantized()
    usual = qdq.WRITERS[Kind.QUANTIZED, ""]

    def write(task: Task) -> bool:
        if task.node.name == "second":
            raise task.error("not today")
        return usual(task)

    monkeypatch.setitem(qdq.WRITERS, (Kind.QUANTIZED, ""), write)  # type: ignore[arg-type]
    prepared = open_prepared(tmp_path / "model.onnx")
    rng = np.random.default_rng(2)
    samples = [{"x": rng.standard_normal((2, 16)).astype(np.float32)} for _ in range(3)]
    profile = profile_model(tmp_path / "model.onnx", samples)
    recipe = load_recipe(None, {"min_output_sqnr": 0.0})
    planned = plan_that_runs(model_facts(prepared, profile, recipe), tmp_path / "model.onnx")
    assert list(planned.known.unfit) == ["second"]
    assert planned.plan.nodes["second"].kind is Kind.FLOAT


def test_a_plan_that_is_given_is_not_changed(
    quantized: Callable[..., QuantizeResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = quantized().plan

    def write(task: Task) -> bool:
        raise task.error("not today")

    monkeypatch.setitem(qdq.WRITERS, (Kind.QUANTIZED, ""), write)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"^node 'first' \(MatMul\): not today"):
        write_quantized(tmp_path / "model.onnx", None, tmp_path / "q.onnx", plan=plan)
