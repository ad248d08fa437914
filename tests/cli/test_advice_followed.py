"""The advice of messages, followed to the letter, leads to a model."""

from __future__ import annotations

import re
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.records.store import load_profile

from .running import qprof

LINE = re.compile(r"'((?:[a-z]+): [^']+)'")
"""A line of a recipe, as messages quote it."""

MOST_MESSAGES = 2


@pytest.fixture
def detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A voice detector as exporters write them, with a state and a rate, and recordings beside it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[B, T] input, float[B, 16] state, int64 sr) => (float[B, 1] output, float[B, 16] stateN)
        <int64[1] one = {1}, float zero = {0.0}> {
            signal = Unsqueeze (input, one)
            c = Conv <kernel_shape: ints = [64], strides: ints = [64]> (signal, k)
            r = Relu (c)
            f = ReduceMean <axes: ints = [2], keepdims: int = 0> (r)
            back = MatMul (state, w)
            h = Add (f, back)
            stateN = Tanh (h)
            rate = Cast <to: int = 1> (sr)
            nothing = Mul (rate, zero)
            a = MatMul (stateN, v)
            b = Add (a, nothing)
            output = Sigmoid (b)
        }"""
    )
    for name, shape in (("k", (16, 1, 64)), ("w", (16, 16)), ("v", (16, 1))):
        values = rng.normal(0.0, 0.3, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(model, "vad.onnx")
    (tmp_path / "wav").mkdir()
    for number in range(6):
        with wave.open(f"wav/{number}.wav", "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes((rng.normal(0.0, 3000.0, 16000)).astype("<i2").tobytes())
    return tmp_path / "vad.onnx"


def followed(*first_lines: str) -> tuple[list[str], str]:
    """Return the lines of a recipe after each message was followed, and what is printed in the end."""
    lines, words = [*first_lines], ["quantize", "vad.onnx", "--data", "wav", "-o", "q.onnx", "--no-latency"]
    for _ in range(MOST_MESSAGES):
        if lines:
            Path("r.yaml").write_text("\n".join(lines) + "\n")
            words = [*words[:7], "--preprocess", "r.yaml"]
        result = qprof(*words)
        if result.exit_code == 0:
            return lines, result.output
        assert result.exit_code == 2, result.output
        advised = LINE.findall(result.stderr.splitlines()[-1])
        assert advised, result.stderr
        lines += advised
    raise AssertionError(f"no model after {MOST_MESSAGES} messages: {lines}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "first_lines",
    [
        (),
        ("reader: audio", "rate: 16000"),
        ("reader: audio", "rate: 16000", "state: {stateN: state}", "constants: {sr: 16000}"),
    ],
)
def test_a_recipe_made_of_messages_feeds_a_state_back(detector: Path, first_lines: tuple[str, ...]) -> None:
    lines, _ = followed(*first_lines)
    assert {"state: {stateN: state}", "constants: {sr: 16000}", "window: 576", "hop: 512"} < {*lines}
    profile = load_profile(detector.parent / "q.qprof" / "profile.yaml")
    assert profile.inputs["state"].fed_by == "stateN"


@pytest.mark.slow
def test_a_state_of_zeros_is_told(detector: Path) -> None:
    lines = ("reader: audio", "rate: 16000", "window: 512", "constants: {state: zeros, sr: 16000}")
    _, printed = followed(*lines)
    assert "warning: input 'state': zero or empty in all samples" in printed
