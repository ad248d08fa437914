"""A short run of the fuzzer of damaged inputs, and every input that once failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
FAMILIES = (
    "profiles",
    "glow profiles",
    "plans",
    "configurations",
    "folders of samples",
    "values of options",
)
"""The families of the short run; the long one has all of them."""


def test_damaged_inputs_are_refused_in_one_clear_sentence_or_give_the_right_result() -> None:
    options = ("--seed", "1", "--count", "30", "--processes", "2", "--kept", "--families", *FAMILIES)
    run = subprocess.run(
        [sys.executable, FOLDER / "damaged_inputs.py", *options], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| all |" in run.stdout
