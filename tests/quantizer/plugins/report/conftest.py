"""A report of the digits model: estimates with the target's times, and what was measured on new images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.options import Gate
from qprof_onnx.quantizer.plugins.report.content import Report
from qprof_onnx.quantizer.plugins.report.report import report
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.target import Recipe

DIGITS = Path(__file__).parents[4] / "examples" / "digits"


@pytest.fixture(scope="session")
def timed() -> Recipe:
    """Return the default recipe with the times of its kernels, which tests are planned without."""
    recipe = load_recipe()
    return replace(recipe, measured=costs_of(recipe.target.costs))


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with profile.yaml, plan.yaml and model.int8.onnx of the digits model."""
    folder = tmp_path_factory.mktemp("digits")
    profile_model(DIGITS / "model.onnx", DIGITS / "calibration", folder / "profile.yaml")
    model, plan = folder / "model.int8.onnx", folder / "plan.yaml"
    write_quantized(DIGITS / "model.onnx", folder / "profile.yaml", model, save_plan=plan)
    return folder


@pytest.fixture(scope="session")
def estimated(files: Path, timed: Recipe) -> Report:
    """Return the report of the estimates."""
    return report(DIGITS / "model.onnx", files / "model.int8.onnx", config=timed)


@pytest.fixture(scope="session")
def whole(files: Path, timed: Recipe) -> Report:
    """Return the report with what was measured, and gates."""
    return report(
        DIGITS / "model.onnx",
        files / "model.int8.onnx",
        str(DIGITS / "heldout"),
        gate=Gate(min_sqnr=10.0, max_size=10.0),
        limit=20,
        latency=False,
        config=timed,
    )
