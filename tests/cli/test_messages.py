"""What a user reads about unusable input: where, what, and what to do, in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, CALIBRATION = DIGITS / "model.onnx", DIGITS / "calibration"
DATA = Path(__file__).parents[1] / "data"
PROFILE, PLAN = DATA / "profile-small.yaml", DATA / "plan-small.yaml"

CASES: dict[str, tuple[object, ...]] = {
    "a model that is none": ("dump-profile", "text.onnx", "--data", CALIBRATION, "-o", "p.yaml"),
    "samples that are not there": ("dump-profile", MODEL, "--data", "nowhere", "-o", "p.yaml"),
    "an empty folder of samples": ("dump-profile", MODEL, "--data", "empty", "-o", "p.yaml"),
    "a damaged sample": ("dump-profile", MODEL, "--data", "damaged", "-o", "p.yaml"),
    "pickled samples": ("dump-profile", MODEL, "--data", "pickled", "-o", "p.yaml"),
    "a module that is not there": ("dump-profile", MODEL, "--data", "no_module:f", "-o", "p.yaml"),
    "a profile of another model": ("quantize", MODEL, "--profile", PROFILE, "-o", "q.onnx"),
    "a plan for a profile": ("quantize", MODEL, "--profile", PLAN, "-o", "q.onnx"),
    "a profile that is no YAML": ("quantize", MODEL, "--profile", "broken.yaml", "-o", "q.onnx"),
    "YAML that makes objects": ("quantize", MODEL, "--profile", "objects.yaml", "-o", "q.onnx"),
    "a key that is unknown": (
        "quantize",
        MODEL,
        "--config",
        "key.yaml",
        "--profile",
        PROFILE,
        "-o",
        "q.onnx",
    ),
    "a target that is unknown": ("quantize", MODEL, "--target", "toaster", "--profile", PROFILE, "-o", "q"),
    "a plan of another model": ("quantize", MODEL, "--plan", PLAN, "-o", "q.onnx"),
    "labels that are not there": ("evaluate", MODEL, MODEL, "--data", CALIBRATION, "--labels", "no.txt"),
    "a metric that is unknown": ("evaluate", MODEL, MODEL, "--data", CALIBRATION, "--metric", "charm"),
    "profiles of two models": ("merge", PROFILE, "other.yaml", "-o", "m.yaml"),
    "a document that is neither": ("show", "key.yaml"),
    "a tensor that is not there": ("show", PROFILE, "nothing"),
    "a card that is none": ("verify", "key.yaml", MODEL),
    "a schema that is unknown": ("schema", "poem"),
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files of the cases, and be where they are."""
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "damaged", "pickled"):
        Path(folder).mkdir()
    Path("text.onnx").write_text("no model")
    Path("damaged/a.npy").write_bytes(b"\x93NUMPY\x01\x00")
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    Path("pickled/a.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header + b"cos\nsystem\n(S'false'\ntR.")
    Path("broken.yaml").write_text("format: qprof-profile/1\n: [")
    Path("objects.yaml").write_text("format: !!python/object/apply:os.system ['false']\n")
    Path("key.yaml").write_text("colour: red\n")
    Path("other.yaml").write_text(PROFILE.read_text().replace("sha256:", "sha256:0", 1))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_message_says_where_what_and_what_to_do(words: tuple[object, ...]) -> None:
    result = qprof(*words)
    assert result.exit_code == 2, result.output
    error = result.stderr.splitlines()[-1]
    assert re.fullmatch(r"error: .+?: .+[;.] .+", error), error
    assert "Traceback" not in result.output


def test_a_word_is_suggested_only_where_it_is_near() -> None:
    for command in (["quantzie"], ["quantize", "m.onnx", "--calibratr", "x"]):
        assert "Did you mean " in qprof(*command).output
    for command in (["inscribe"], ["quantize", "m.onnx", "--quantized", "x"]):
        assert "Did you mean " not in qprof(*command).output
