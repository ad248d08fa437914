"""`qprof targets --measure` writes a table of costs, and refuses a machine that a target is not for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from qprof_onnx.quantizer.plugins.tune import kernel_times as microbenchmarks
from qprof_onnx.quantizer.plugins.tune.networks import Net
from qprof_onnx.quantizer.targets.cost_table import costs_of, read_table, save_table

from ....cli.running import qprof


def test_a_target_of_another_machine_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    result = qprof("targets", "glow", "--measure", str(tmp_path / "costs.json"))
    assert result.exit_code == 2
    assert "does not show the kernels of target glow" in result.output
    assert not list(tmp_path.iterdir())


def test_the_times_of_the_networks_become_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net((1, 16)).add("Neg").add("Abs", measure=False)
    monkeypatch.setattr(microbenchmarks, "SECONDS", 0.0)
    monkeypatch.setattr(microbenchmarks, "all_nets", lambda: (net,))
    monkeypatch.setattr(microbenchmarks, "MEMORY_ROWS", ())
    monkeypatch.setattr(microbenchmarks, "recurrent_nets", lambda: ())
    monkeypatch.setattr(microbenchmarks, "WIDTHS", ())
    monkeypatch.setattr(microbenchmarks, "check_machine", lambda target: None)
    path = tmp_path / "costs.json"
    result = qprof("targets", "onnxruntime-x86", "--measure", str(path))
    assert result.exit_code == 0, result.output
    table = read_table(path)
    assert set(table.kernels) == {"Neg:float", "Run"}
    assert table.conditions.threads == 1


def test_a_table_of_ones_own_decides_instead_of_the_targets(tmp_path: Path) -> None:
    """With integer convolutions that take a second each, all of the digits model stays float."""
    table = costs_of("onnxruntime-x86")
    assert table is not None
    kernels = {
        name: tuple((*point[:-1], 1e6) for point in points)
        for name, points in table.kernels.items()
        if name.endswith(("integer", "to-float"))
    }
    save_table(replace(table, kernels={**table.kernels, **kernels}), tmp_path / "costs.json")
    digits = Path(__file__).parents[4] / "examples" / "digits"
    model, profile, data = str(digits / "model.onnx"), str(tmp_path / "p.yaml"), str(digits / "calibration")
    made = qprof("dump-profile", model, "--data", data, "-o", profile)
    assert made.exit_code == 0, made.output
    options = ["--profile", profile, "--set", f"runtime.costs={tmp_path / 'costs.json'}", "--json"]
    found = qprof("quantize", model, *options, "-o", str(tmp_path / "m.onnx"))
    assert found.exit_code == 0, found.output
    assert "quantized" not in json.loads(found.stdout)["nodes"]
    (tmp_path / "mine.yaml").write_text("base: onnxruntime-x86\nruntime: {costs: costs.json}\n")
    options[2:4] = ["--config", str(tmp_path / "mine.yaml")]  # the table is beside the target's file
    again = qprof("quantize", model, *options, "-o", str(tmp_path / "m.onnx"))
    assert again.exit_code == 0, again.output
    assert "quantized" not in json.loads(again.stdout)["nodes"]
