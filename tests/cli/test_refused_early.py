"""A wrong value of an option is refused before samples are profiled, and before a trial of a tuning.

`WRONG` has one for each option whose value belongs to the model or to its samples; values that are wrong by
themselves are refused when the command line is read (test_options.py).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import Result
from qprof_onnx.quantizer.api import profiling
from qprof_onnx.quantizer.plugins.tune import trial

from .running import printed, qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA, LABELS = DIGITS / "model.onnx", DIGITS / "calibration", DIGITS / "heldout" / "labels.txt"

SETTINGS = [
    ("--keep-float", "Cnv", "keep_float 'Cnv': no node of the model has this name"),
    ("--keep-float", "nope*", "keep_float 'nope*': no node of the model has this name"),
    (
        "--set",
        "output_kind=[logit=decision]",
        "output_kind 'logit': the model has no such output; it has logits",
    ),
    ("--set", "kv_cache=int8", "kv_cache int8: the model has no"),
]
JUDGING = [
    ("--set", "scored_output=logit", "'logit'"),
    ("--set", "class_axis=7", "class axis 7: output 'logits' has 2 axes"),
    ("--metric", "score.py:nope", "score.py:nope: 'score.py' has no function 'nope'"),
    ("--metric", "score.py:broken", "--metric score.py:broken: raised ValueError: oops"),
    pytest.param(
        *("--metric", "map50", "are not boxes of a known form"),
        marks=pytest.mark.skipif(find_spec("pycocotools") is None, reason="of the extra metrics"),
    ),
    ("--metric", "perplexity", "which input has the tokens is not known"),
    ("--metric", "psnr", "metric 'psnr': needs labels"),
    ("--labels", "few.txt", "few.txt: 3 labels, but the samples have 400 rows"),
    ("--labels", "words.txt", "words.txt, line 1: 'cat' is not an integer label"),
    ("--labels", "high.txt", "high.txt, line 1: label 99 is not one of the output's 10 classes"),
]
RUNTIME = [("--set", "runtime=tvm", "runtime: is 'tvm'; give 'onnxruntime' or 'openvino'")]
HOLDOUT = [("--holdout-data", "nothing", "nothing: no such folder or file")]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("few.txt").write_text("1\n2\n3\n")
    Path("words.txt").write_text("cat\n" * 400)
    Path("high.txt").write_text("99\n" * 400)
    Path("score.py").write_text("def broken(outputs, indices):\n    raise ValueError('oops')\n")
    return tmp_path


def is_refused(result: Result, sentence: str) -> None:
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(("option", "value", "sentence"), [*SETTINGS, *JUDGING, *RUNTIME, *HOLDOUT])
def test_quantize_refuses_it_before_samples_are_profiled(
    option: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(profiling, "calibrate", None)
    before = {*place.iterdir()}
    data = DIGITS / "heldout" if option == "--labels" else DATA
    is_refused(qprof("quantize", MODEL, "--data", data, "-o", "q.onnx", option, value), sentence)
    assert {*place.iterdir()} == before


@pytest.fixture(scope="module")
def plan(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made") / "q.yaml"
    printed("quantize", MODEL, "--profile", profile, "-o", made.with_suffix(".onnx"), "--save-plan", made)
    return made


@pytest.mark.parametrize(("option", "value", "sentence"), [*SETTINGS, *JUDGING, *HOLDOUT])
def test_tune_refuses_it_before_a_trial(
    option: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch, profile: Path
) -> None:
    monkeypatch.setattr(trial, "plan_from", None)
    data = DIGITS / "heldout" if option == "--labels" else DATA
    is_refused(qprof("tune", MODEL, "--profile", profile, "--data", data, option, value), sentence)


IDLE = [
    ("quantize --profile {profile} -o q.onnx --preprocess imagenet", "--preprocess is for --data"),
    ("report {model} -o page --labels few.txt", "report: labels is for measurements"),
    ("report {model} -o page --limit 3", "report: limit is for measurements"),
]
"""Commands with an option that nothing would read."""


@pytest.mark.parametrize(("command", "sentence"), IDLE)
def test_an_option_that_nothing_would_read_is_refused(
    command: str, sentence: str, profile: Path, plan: Path
) -> None:
    name, *words = command.format(data=DATA, profile=profile, plan=plan, model=MODEL).split()
    is_refused(qprof(name, MODEL, *words), sentence)


def test_a_setting_that_nothing_reads_is_told(place: Path) -> None:
    result = qprof("quantize", MODEL, "--as", "int8-dynamic", "--calibrator", "kl", "-o", "q.onnx")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "warning: calibrator kl does nothing: mode dynamic takes the ranges of activations while the model "
        "runs; leave it out"
    ]


def test_labels_at_chance_are_told_before_samples_are_profiled(place: Path) -> None:
    numbers = [int(line) for line in LABELS.read_text().split()]
    Path("turned.txt").write_text("".join(f"{number}\n" for number in numbers[7:] + numbers[:7]))
    data = DIGITS / "heldout"
    result = qprof(
        "quantize", MODEL, "--data", data, "--labels", "turned.txt", "-o", "q.onnx", "--no-latency"
    )
    first = next(line for line in result.stderr.splitlines() if not line.startswith("reading"))
    assert first.startswith(
        "warning: turned.txt: the float model scores 11.5 % with the truth of its 200 rows, "
    ), first
