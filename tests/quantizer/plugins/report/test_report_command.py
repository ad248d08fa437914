"""`qprof report`, and `--report` of other commands."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.quantizer.plugins.report import assemble, estimates
from qprof_onnx.quantizer.plugins.report import report as reporting
from qprof_onnx.quantizer.plugins.report.report import report
from qprof_onnx.quantizer.search.verdict import AGAINST
from qprof_onnx.quantizer.targets import cost_table, target
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.machine import Processor

from ....cli.running import qprof

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"
FILES = ["junit.xml", "report.html", "report.json", "report.md"]


def names(folder: Path) -> list[str]:
    """Return the names of the files in a folder, in order."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def made(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with plan.yaml, out.onnx, and the report of the quantization in q/."""
    folder = tmp_path_factory.mktemp("made")
    outputs = ("-o", folder / "out.onnx", "--save-plan", folder / "plan.yaml", "--report", folder / "q")
    result = qprof("quantize", MODEL, "--profile", profile, *outputs)
    assert result.exit_code == 0, result.output
    assert "report.html" in result.stderr
    return folder


def test_a_report_is_made_of_two_models_with_the_plan_beside(
    made: Path, profile: Path, tmp_path: Path
) -> None:
    result = qprof("report", MODEL, made / "out.onnx", "--profile", profile, "-o", tmp_path / "r")
    assert result.exit_code == 0, result.output
    assert names(tmp_path / "r") == FILES


def test_a_model_of_another_tool_has_one_verdict_in_report_and_evaluate(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "out.onnx", tmp_path / "alone.onnx")
    words = (MODEL, tmp_path / "alone.onnx", "--data", DIGITS / "heldout", "--limit", "4", "--no-latency")
    verdicts = [qprof("evaluate", *words), qprof("report", *words, "-o", tmp_path / "r")]
    first, second = (" ".join(one.stdout.splitlines()[0].split()) for one in verdicts)
    assert first == second
    assert first.startswith("verdict ")


@pytest.mark.slow
@pytest.mark.parametrize("code", AGAINST)
def test_a_finding_against_the_model_is_called_by_its_own_severity(
    made: Path, profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Code
) -> None:
    finding = Finding(code, "speaks against it")
    made_report = reporting.report

    def with_finding(*arguments: object, **keywords: object) -> object:
        found = made_report(*arguments, **keywords)
        return replace(found, verdict=replace(found.verdict, findings=(finding,)))

    monkeypatch.setattr(reporting, "report", with_finding)
    result = qprof("report", MODEL, made / "out.onnx", "--profile", profile, "-o", tmp_path / "r")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        [code.severity, "speaks", "against", "it"]
    ]


def test_a_gate_that_is_not_met_ends_with_1(made: Path, profile: Path, tmp_path: Path) -> None:
    measured = ("--data", DIGITS / "heldout", "--limit", "2")
    arguments = (*measured, "--no-latency", "--min-sqnr", "200", "-o", tmp_path / "r")
    result = qprof("report", MODEL, made / "out.onnx", "--profile", profile, *arguments)
    assert result.exit_code == 1, result.output
    assert 'failures="1"' in (tmp_path / "r" / "junit.xml").read_text()
    assert "--min-sqnr failed; output 'logits': " in result.stdout
    assert "FAILED     --min-sqnr 200 dB: output 'logits': " in result.stdout
    assert result.stdout.count("200") == 1


@pytest.mark.parametrize(("features", "how"), [(("avx2",), "predicted"), (("asimddp",), None)])
def test_times_are_predicted_by_the_kernels_of_this_processor_or_not_at_all(
    made: Path, profile: Path, monkeypatch: pytest.MonkeyPatch, features: tuple[str, ...], how: str | None
) -> None:
    monkeypatch.setattr(target, "costs_of", cost_table.costs_of)  # tests have no times, if they do not ask
    for module in (estimates, assemble):
        monkeypatch.setattr(module, "processor", lambda: Processor("x86_64", "", features))
    made_of = report(MODEL, made / "out.onnx", profile=profile, config=load_recipe())
    assert (None if made_of.speed is None else made_of.speed.how) == how
    assert made_of.speed is None or "avx512_vnni" not in made_of.speed.where


def test_quantize_writes_its_report(made: Path) -> None:
    assert names(made / "q") == FILES
    assert json.loads((made / "q" / "report.json").read_text())["tensors"]


def test_evaluate_writes_its_report(made: Path, tmp_path: Path) -> None:
    arguments = (MODEL, made / "out.onnx", "--data", DIGITS / "heldout", "--limit", "2", "--no-latency")
    result = qprof("evaluate", *arguments, "--min-sqnr", "10", "--report", tmp_path / "r")
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "r" / "report.json").read_text())
    assert [gate["name"] for gate in written["gates"]] == ["--min-sqnr"]


def test_diff_writes_its_report(profile: Path, tmp_path: Path) -> None:
    result = qprof("diff", profile, profile, "--max-clipping", "0.5", "--report", tmp_path / "r")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "r" / "report.json").read_text())["drift"]


def test_a_report_is_not_written_over_what_is_read(made: Path, profile: Path) -> None:
    (made / "report.json").write_bytes(profile.read_bytes())
    result = qprof("report", MODEL, made / "out.onnx", "--profile", made / "report.json", "-o", made)
    assert result.exit_code == 2
    assert "report.json" in result.stderr


def test_a_file_is_no_folder(made: Path, profile: Path) -> None:
    result = qprof("report", MODEL, made / "out.onnx", "--profile", profile, "-o", made / "plan.yaml")
    assert result.exit_code == 2


def test_a_report_that_cannot_be_written_is_refused_before_the_model_is(
    profile: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    outputs = ("-o", tmp_path / "out.onnx", "--report", tmp_path / "file" / "r")
    result = qprof("quantize", MODEL, "--profile", profile, *outputs)
    assert result.exit_code == 2
    assert "is a file, and no folder" in result.stderr
    assert names(tmp_path) == ["file"]
