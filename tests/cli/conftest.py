"""What the commands' tests work on."""

from __future__ import annotations

from pathlib import Path

import pytest
from qprof_onnx.quantizer.api.profiling import profile_model

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a profile of the digits model; not to be changed."""
    path = tmp_path_factory.mktemp("profile") / "p.yaml"
    profile_model(DIGITS / "model.onnx", DIGITS / "calibration", path)
    return path
