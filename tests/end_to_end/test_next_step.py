"""`quantize --data` prints one next step, and its command does what it promises."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest

from ..cli.running import printed
from .test_architectures import NETWORKS, built, drawn

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
STEP = re.compile(
    r"^(?:try +--.*: (?P<promise>\w+, .*) \(measured\)\n +qprof (?P<command>.*)"
    r"|deploy .*: (?P<page>docs/.*)"
    r"|.*(?:none is better|no other settings to try)(?:; the noisiest layer is (?P<layer>[^;\n]*))?"
    r"(?:; a score may decide: --.*)?"
    r"|verdict +none: .*; (?P<float>use the float model))$",
    re.MULTILINE,
)
KL = "--calibrator kl --set cost_model=off"
LSTM, LAST = (
    "convolutions before an LSTM, as speech is read",
    "an LSTM of which only the last hidden state is used",
)
GRU, RNN = "a GRU with its output and its states as outputs", "an RNN read by its mean over time"
MASK, DECODER = (
    "attention with a causal mask of float32's lowest",
    "a decoder layer with RMS norms, rotated positions and a gate",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("digits", f"{KL} --holdout-data {{}}/heldout", "promise"),
        ("digits", "--as int8-dynamic", "promise"),
        (GRU, "--as int8-dynamic", "promise"),
        ("a U-net", f"{KL} --as int8", "promise"),
        (LSTM, "", "page"),
        (LAST, "--as weight-only-2", "page"),
        (RNN, "", "layer"),
        (MASK, "", "layer"),
        ("group normalisation and SiLU", "", "layer"),
        ("a recommender with bags of embeddings", "", "layer"),
        (DECODER, "--as int8-dynamic", "float"),
    ],
)
def test_the_next_step_is_one_and_does_what_it_promises(
    name: str, options: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, data = DIGITS / "model.onnx", DIGITS / "calibration"
    if name != "digits":
        model, data = tmp_path / "my model.onnx", tmp_path / "my data"
        data.mkdir()
        onnx.save(built(NETWORKS[name]), model)
        for number, feed in enumerate(drawn(onnx.load(model))):
            np.savez(data / f"{number}.npz", **feed)
    told = printed(
        "quantize", model, "--data", data, *options.format(DIGITS).split(), "--no-latency", "-o", "q.onnx"
    )
    (step,) = STEP.finditer(told)
    assert step[kind], told
    if kind == "promise":
        result = printed(*shlex.split(step["command"]))
        verdict, (grade, figure) = result.splitlines()[0], step["promise"].split(", ", 1)
        figure, _, size = figure.rpartition(", ")
        found = re.sub(r" \(limit [^)]*\)", "", verdict)
        assert found.startswith(f"verdict   {grade}"), (step[0], verdict)
        assert figure in found, (step[0], verdict)
        assert f" -> {size}, " in result
    elif kind == "page":
        assert (ROOT / step["page"]).is_file()
        assert told.startswith("verdict   good")
    elif kind == "layer":
        cause = rf"^cause .*\b{re.escape(step['layer'])} (is the noisiest and )?adds "
        assert re.search(cause, told, re.MULTILINE)
