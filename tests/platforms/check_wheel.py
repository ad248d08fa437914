"""Check an installed wheel: its compiled counters are there, and examples/digits is profiled and quantized.

    python tests/platforms/check_wheel.py

For the workflow that builds wheels: nothing but the wheel and what it depends on is needed.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from qprof_onnx.profiles.observers import channel_counter, histogram_counter

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def qprof(*command: str | Path) -> None:
    """Run a command, which must succeed."""
    start = "from qprof_onnx.cli.entry import run; run()"
    subprocess.run([sys.executable, "-c", start, *map(str, command)], check=True)


def main() -> None:
    """Profile and quantize, in a temporary folder."""
    counters = (histogram_counter.IMPLEMENTATION, channel_counter.IMPLEMENTATION)
    print("counters:", *counters)
    assert "numpy" not in counters, "the compiled counters are missing"
    model = DIGITS / "model.onnx"
    with tempfile.TemporaryDirectory() as folder:
        profile, quantized = Path(folder) / "profile.yaml", Path(folder) / "model.int8.onnx"
        qprof("dump-profile", model, "--data", DIGITS / "calibration", "-o", profile)
        qprof("quantize", model, "--profile", profile, "-o", quantized)
        qprof("evaluate", model, quantized, "--data", DIGITS / "heldout", "--min-sqnr", "20")


if __name__ == "__main__":
    main()
