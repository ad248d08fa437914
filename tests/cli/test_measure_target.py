"""`qprof measure-target` writes a table of costs, and refuses a machine that a target is not for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from qprof_onnx.cli.main import main
from qprof_onnx.quantizer.cost_table.table import read_table
from qprof_onnx.quantizer.speed import microbenchmarks
from qprof_onnx.quantizer.speed.benchmark_net import Net


def test_a_target_of_another_machine_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["measure-target", "glow", "-o", str(tmp_path / "costs.json")])
    assert result.exit_code == 2
    assert "says nothing about the kernels of target glow" in result.output
    assert not list(tmp_path.iterdir())


def test_the_times_of_the_networks_become_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net("Neg", (1, 16)).add("Neg").add("Abs", measure=False)
    monkeypatch.setattr(microbenchmarks, "SECONDS", 0.0)
    monkeypatch.setattr(microbenchmarks, "all_nets", lambda: (net,))
    monkeypatch.setattr(microbenchmarks, "memory_nets", lambda: ())
    monkeypatch.setattr(microbenchmarks, "check_machine", lambda target: None)
    path = tmp_path / "costs.json"
    result = CliRunner().invoke(main, ["measure-target", "onnxruntime-x86", "-o", str(path)])
    assert result.exit_code == 0, result.output
    table = read_table(path)
    assert set(table.kernels) == {"Neg:float", "Call"}
    assert table.conditions.threads == 1
