"""What a written model says of itself, and who listens."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.profiles.base.findings import Code, Finding, Severity, of_severity
from qprof_onnx.profiles.base.tool import tool_name
from qprof_onnx.profiles.records.store import load_profile, save_profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import Gate, Judge
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.numerics.affine import INT4, QuantParams
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan
from qprof_onnx.quantizer.plan.provenance import plan_digest, profile_digest, read_provenance
from qprof_onnx.quantizer.plan.store import dumps, load_plan, loads
from qprof_onnx.quantizer.plugins.instrument.instrument import instrument
from qprof_onnx.quantizer.plugins.layers.layers import layers_of
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
DATA = DIGITS / "heldout"
FEW = Judge(limit=4, latency=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float model with metadata of its own, its profile, quantized model and plan."""
    folder = tmp_path_factory.mktemp("provenance")
    model = onnx.load(DIGITS / "model.onnx")
    model.metadata_props.add(key="classes", value="0 1 2")
    onnx.save(model, folder / "model.onnx")
    profile_model(folder / "model.onnx", DIGITS / "calibration", folder / "profile.yaml")
    out, plan, recipe = folder / "model.int8.onnx", folder / "plan.yaml", load_recipe("onnxruntime-x86")
    write_quantized(folder / "model.onnx", folder / "profile.yaml", out, save_plan=plan, recipe=recipe)
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    onnx.save(model, folder / "retrained.onnx")
    return folder


def entries(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


@pytest.mark.parametrize("form", FORMS)
def test_a_written_model_says_where_it_comes_from(folder: Path, tmp_path: Path, form: str) -> None:
    recipe = load_recipe("onnxruntime-x86", {"form": form})
    result = write_quantized(
        folder / "model.onnx", folder / "profile.yaml", tmp_path / "m.onnx", recipe=recipe
    )
    found = read_provenance(load_model(tmp_path / "m.onnx"))
    assert found is not None
    assert (found.tool, found.target, found.form, found.schema) == (
        tool_name(),
        "onnxruntime-x86",
        form,
        "asymmetric",
    )
    assert found.plan == plan_digest(result.plan)
    assert found.profile == profile_digest(load_profile(folder / "profile.yaml"))
    assert set(found.estimated_sqnr) == {"logits"}
    assert entries(tmp_path / "m.onnx")["classes"] == "0 1 2"
    assert sum(len(key) + len(value) for key, value in entries(tmp_path / "m.onnx").items()) < 3000


def test_a_saved_plan_writes_the_same_model(folder: Path, tmp_path: Path) -> None:
    write_quantized(folder / "model.onnx", None, tmp_path / "model.int8.onnx", plan=folder / "plan.yaml")
    assert (tmp_path / "model.int8.onnx").read_bytes() == (folder / "model.int8.onnx").read_bytes()


def test_an_edited_plan_has_another_digest_and_no_estimate(folder: Path) -> None:
    plan = load_plan(folder / "plan.yaml")
    assert loads(dumps(plan)).origin == plan.origin
    assert plan.origin.estimated_sqnr
    name = next(name for name, entry in plan.nodes.items() if entry.kind is Kind.QUANTIZED)
    edited = replace(plan, nodes={**plan.nodes, name: NodePlan(Kind.FLOAT, "by hand")})
    assert plan_digest(edited) != plan_digest(plan)
    text = dumps(edited).replace(plan_digest(edited), plan_digest(plan))  # what an editor leaves as it was
    assert not loads(text).origin.estimated_sqnr
    assert loads(text).origin.profile == plan.origin.profile


def test_one_scale_of_millions_of_blocks_is_another_digest(folder: Path) -> None:
    plan, blocks = load_plan(folder / "plan.yaml"), np.linspace(0.5, 1.0, 64, dtype=np.float32)
    params = QuantParams(blocks, np.zeros(64, np.int32), INT4, 0, 16)
    moved = np.append(blocks[:-1], np.float32(2.0))
    raised = np.append(np.zeros(63, np.int32), 1)
    several = [params, replace(params, scale=moved), replace(params, zero_point=raised)]
    digests = {plan_digest(replace(plan, tensors={"w": each})) for each in (*several, replace(params))}
    assert len(digests) == len(several)


def test_remarks_and_reasons_do_not_change_the_digest(folder: Path) -> None:
    plan = load_plan(folder / "plan.yaml")
    reasons = {name: replace(entry, because="other words") for name, entry in plan.nodes.items()}
    assert plan_digest(
        replace(plan, findings=(Finding(Code.OPSET_RAISED, "a note"),), tool="x", nodes=reasons)
    ) == plan_digest(plan)


def test_a_profile_that_was_written_and_read_has_the_same_digest(folder: Path, tmp_path: Path) -> None:
    profile = load_profile(folder / "profile.yaml")
    save_profile(replace(profile, tool="other"), tmp_path / "p.yaml")
    assert profile_digest(load_profile(tmp_path / "p.yaml")) == profile_digest(profile)
    fewer = replace(profile, tensors=dict(list(profile.tensors.items())[1:]))
    assert profile_digest(fewer) != profile_digest(profile)


def test_evaluate_doubts_other_weights_and_fails_any_gate(folder: Path) -> None:
    shown = evaluate(folder / "retrained.onnx", folder / "model.int8.onnx", DATA, measuring=FEW)
    (doubt,) = map(str, shown.doubts)
    assert doubt.startswith(
        "model.int8.onnx was made from another float model than retrained.onnx (other weights)"
    )
    gate = Gate(min_sqnr=-100.0)
    assert not evaluate(
        folder / "retrained.onnx", folder / "model.int8.onnx", DATA, measuring=FEW, gate=gate
    ).passed
    own = evaluate(folder / "model.onnx", folder / "model.int8.onnx", DATA, measuring=FEW, gate=gate)
    assert (own.passed, own.doubts) == (True, ())


def renamed(folder: Path, path: Path) -> Path:
    """Write the float model with other names of its nodes, as another export has."""
    model = onnx.load(folder / "model.onnx")
    for number, node in enumerate(model.graph.node):
        node.name = f"exported_{number}"
    onnx.save(model, path)
    return path


def test_another_graph_is_a_remark_and_fails_no_gate(folder: Path, tmp_path: Path) -> None:
    other = renamed(folder, tmp_path / "renamed.onnx")
    shown = evaluate(other, folder / "model.int8.onnx", DATA, measuring=FEW, gate=Gate(min_sqnr=-100.0))
    assert (shown.passed, shown.doubts) == (True, ())
    (remark,) = shown.findings
    assert remark.text.startswith("model.int8.onnx was made from another graph than that of renamed.onnx")
    layers = layers_of(other, folder / "model.int8.onnx", DATA, measuring=FEW)
    assert layers.findings == (remark,)


def test_a_quantized_model_in_the_place_of_the_float_one_is_doubted(folder: Path) -> None:
    both = folder / "model.int8.onnx"
    (doubt,) = map(str, evaluate(both, both, DATA, measuring=FEW).doubts)
    assert doubt.startswith("model.int8.onnx is a quantized model itself")


def test_compare_layers_doubts_another_float_model_and_another_plan(folder: Path, tmp_path: Path) -> None:
    other = layers_of(folder / "retrained.onnx", folder / "model.int8.onnx", DATA, measuring=FEW)
    assert [
        doubt.partition(" than ")[0] for doubt in map(str, of_severity(other.findings, Severity.DOUBT))
    ] == ["model.int8.onnx was made from another float model"]
    own = layers_of(
        folder / "model.onnx", folder / "model.int8.onnx", DATA, plan=folder / "plan.yaml", measuring=FEW
    )
    assert own.findings == ()
    plan = load_plan(folder / "plan.yaml")
    name = next(name for name, entry in plan.nodes.items() if entry.kind is Kind.QUANTIZED)
    changed = replace(plan, nodes={**plan.nodes, name: NodePlan(Kind.FLOAT, "by hand")})
    shown = layers_of(folder / "model.onnx", folder / "model.int8.onnx", DATA, plan=changed, measuring=FEW)
    assert [finding.text for finding in shown.findings] == [
        "model.int8.onnx was written by another plan than the one given; give the plan of this model"
    ]


def test_an_instrumented_model_says_so_and_is_neither_evaluated_nor_quantized(
    folder: Path, tmp_path: Path
) -> None:
    instrument(folder / "model.onnx", tmp_path / "i.onnx")
    found = read_provenance(load_model(tmp_path / "i.onnx"))
    own = read_provenance(load_model(folder / "model.int8.onnx"))
    assert found is not None
    assert own is not None
    assert (found.instrumented, found.float_model) == (True, own.float_model)
    for run in (
        lambda: evaluate(tmp_path / "i.onnx", folder / "model.int8.onnx", DATA, measuring=FEW),
        lambda: evaluate(folder / "model.onnx", tmp_path / "i.onnx", DATA, measuring=FEW),
        lambda: layers_of(folder / "model.onnx", tmp_path / "i.onnx", DATA, measuring=FEW),
        lambda: write_quantized(tmp_path / "i.onnx", folder / "profile.yaml", tmp_path / "q.onnx"),
    ):
        with pytest.raises(ModelError, match=r"i\.onnx: this model is instrumented"):
            run()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_models_in_every_form_are_evaluated_and_not_taken_for_instrumented(
    form: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "q.onnx"
    write_quantized(
        folder / "model.onnx", folder / "profile.yaml", path, recipe=load_recipe(overrides={"form": form})
    )
    assert evaluate(folder / "model.onnx", path, DATA, measuring=FEW).doubts == ()
    layers_of(folder / "model.onnx", path, DATA, measuring=FEW)
    for run in (
        lambda: instrument(path, tmp_path / "i.onnx"),
        lambda: write_quantized(path, folder / "profile.yaml", tmp_path / "q2.onnx"),
    ):
        with pytest.raises(ModelError, match="quantized already"):
            run()


@pytest.mark.parametrize(
    "spoiled", ['{"y": "many"}', '{"y": 1e999}', '{"y": 1' + "0" * 400 + "}", "[1]", "{"]
)
def test_spoiled_entries_count_as_none(folder: Path, tmp_path: Path, spoiled: str) -> None:
    shutil.copy(folder / "model.int8.onnx", tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    for key in ("qprof.estimated_sqnr", "qprof.sqnr_bands", "qprof.borders"):
        model.metadata_props[key] = spoiled
    found = read_provenance(model)
    assert found is not None
    assert found.estimated_sqnr == found.sqnr_bands == found.borders == {}
    del model.metadata_props["qprof.tool"]
    assert read_provenance(model) is None
