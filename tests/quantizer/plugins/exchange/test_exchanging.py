"""Ranges of other tools bound to a model, quantized from, and profiles and plans written for them."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.errors import ConfigError, ProfileError
from qprof_onnx.profiles.records.histogram import UNKNOWN_BINS
from qprof_onnx.quantizer.plan.documents import load_profile
from qprof_onnx.quantizer.plugins.exchange.formats import FORMATS

from ....cli.running import qprof as run

ROOT = Path(__file__).parents[4]
DIGITS = ROOT / "examples" / "digits"
MODEL = DIGITS / "model.onnx"
DATA = Path(__file__).parent / "ranges" / "data"
MINMAX = DATA / "digits-minmax.json"
WRITTEN = [entry.name for entry in FORMATS.values() if entry.holds == "ranges" and entry.is_read]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the profile of the digits."""
    file = tmp_path_factory.mktemp("own") / "profile.yaml"
    qprof.profile(MODEL, DIGITS / "calibration", file, limit=100)
    return file


@pytest.mark.parametrize("end", ["minmax.json", "entropy.json"])
def test_a_model_is_quantized_from_a_file_of_onnxruntime_itself(end: str) -> None:
    result = qprof.quantize(MODEL, DATA / f"digits-{end}", target="onnxruntime-x86")
    found = qprof.evaluate(MODEL, result, DIGITS / "heldout", limit=50, latency=False)
    assert (found.worst_sqnr or 0.0) > 30.0
    assert any("has only ranges" in note for note in map(str, result.findings)) == ("minmax" in end)


def test_ranges_give_the_parameters_that_the_own_profile_gives_with_minmax(own: Path) -> None:
    table = qprof.quantize(MODEL, MINMAX)
    mine = qprof.quantize(MODEL, own, calibrator="minmax", equalization="off", bias_correction="off")
    assert table.plan.tensors["image"] == mine.plan.tensors["image"]


def test_what_the_model_and_the_file_lack_is_noted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"image": [0, 16], "other": [0, 1], "logits": [-1, 1]}')
    found = qprof.import_profile(tmp_path / "r.json", MODEL)
    assert {"image", "logits"} <= found.keys()
    assert "left out 1 entries without a tensor in the prepared model: 'other'" in caplog.messages[0]
    assert any("has no entry for " in message for message in caplog.messages)


def test_a_file_for_another_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"a": [0, 16]}')
    with pytest.raises(ProfileError, match=r"none of its 1 entries \('a'\) belongs"):
        qprof.quantize(MODEL, tmp_path / "r.json")


@pytest.mark.parametrize(
    "settings",
    [{"calibrator": "kl"}, {"calibrator": "mse"}, {"min_tensor_sqnr": 10.0}, {"min_output_sqnr": 20.0}],
)
def test_a_setting_that_needs_histograms_says_so(settings: dict[str, object]) -> None:
    with pytest.raises(ProfileError, match=r"needs histograms, but the profile from .* has only ranges"):
        qprof.quantize(MODEL, MINMAX, **settings)  # type: ignore[arg-type]


def test_an_imported_profile_says_where_it_is_from_and_is_read_again(tmp_path: Path) -> None:
    result = run("import", MINMAX, "--model", MODEL, "-o", tmp_path / "p.yaml")
    assert result.exit_code == 0, result.output
    assert f"{tmp_path / 'p.yaml'}: 17 tensors, 0 with histograms, of onnxruntime (MinMax)" in result.output
    found = load_profile(tmp_path / "p.yaml")
    assert (found.origin, found.tool) == ("onnxruntime", "onnxruntime (MinMax)")
    assert found["image"].histogram == UNKNOWN_BINS
    plans = [qprof.quantize(MODEL, profile).plan for profile in (tmp_path / "p.yaml", MINMAX)]
    assert plans[0].tensors == plans[1].tensors


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_read_as_the_same_ranges(name: str, own: Path, tmp_path: Path) -> None:
    output = tmp_path / "file"
    result = run("export", own, "--model", MODEL, "--format", name, "-o", output)
    assert result.exit_code == 0, result.output
    assert f"note: {name}: losses: {FORMATS[name].lost_writing}" in result.output
    before, after = load_profile(own), qprof.import_profile(output, MODEL)
    assert after.origin == name
    for tensor, found in after.items():
        largest = max(abs(before[tensor].minimum), abs(before[tensor].maximum))
        assert max(abs(found.minimum), abs(found.maximum)) == pytest.approx(largest, rel=1e-6)


def test_of_a_plan_the_ranges_are_those_that_it_represents(own: Path, tmp_path: Path) -> None:
    plan = qprof.quantize(MODEL, own, target="openvino", schema="symmetric", activation_type="int8").plan
    qprof.export(plan, MODEL, "tensorrt-cache", tmp_path / "m.cache")
    found = load_profile(tmp_path / "m.cache")
    for name, tensor in found.items():
        assert tensor.maximum == pytest.approx(128 * plan.tensors[name].tensor_scale, rel=1e-6)


def test_show_prints_a_file_of_another_tool() -> None:
    result = run("show", MINMAX)
    assert result.output.startswith("model, 20 tensors, 0 samples")
    assert "onnxruntime (MinMax)" in result.output


@pytest.mark.parametrize("command", ["merge", "diff"])
def test_what_needs_exact_histograms_says_who_has_none(command: str, own: Path, tmp_path: Path) -> None:
    words = ["-o", tmp_path / "m.yaml"] if command == "merge" else []
    result = run(command, own, MINMAX, *words)
    assert result.exit_code == 2
    assert "comes from onnxruntime (MinMax), which has no" in result.stderr


def test_a_report_and_an_explanation_are_made_of_ranges(tmp_path: Path) -> None:
    result = qprof.quantize(MODEL, MINMAX)
    assert qprof.explain(result.plan, "logits", model=MODEL, profile=MINMAX).observed is not None
    qprof.report(MODEL, result, profile=MINMAX).save(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 0


def test_a_format_whose_module_is_not_installed_is_passed_over_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = {
        name: replace(entry, module="absent") for name, entry in FORMATS.items() if name != "onnxruntime"
    }
    for name, entry in absent.items():
        monkeypatch.setitem(FORMATS, name, entry)  # type: ignore[arg-type]
    assert load_profile(MINMAX).origin == "onnxruntime"
    with pytest.raises(ConfigError, match="format 'glow' is not installed; install all of qprof-onnx"):
        FORMATS["glow"].load()


def test_a_file_that_is_none_is_an_error(own: Path) -> None:
    with pytest.raises(ProfileError, match="is of no format that is read as ranges"):
        qprof.import_profile(own, MODEL)
    with pytest.raises(ConfigError, match=r"'tensorrt': no such format; .* mean 'tensorrt-cache'"):
        qprof.export(own, MODEL, "tensorrt")


def test_the_table_of_formats_needs_no_library() -> None:
    code = (
        "import sys, qprof_onnx.quantizer.plugins.exchange.formats\n"
        "print([name for name in ('numpy', 'onnx', 'yaml') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
