"""A short run of the fuzzer of damaged inputs, and every input that once failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.slow
def test_damaged_inputs_are_refused_in_one_clear_sentence_or_give_the_right_result() -> None:
    options = ("--seed", "1", "--count", "12", "--processes", "2", "--kept")
    run = subprocess.run(
        [sys.executable, FOLDER / "damaged_inputs.py", *options], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| all |" in run.stdout
