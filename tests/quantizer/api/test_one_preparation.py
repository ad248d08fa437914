"""A command reads each model once, and prepares the float one once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from qprof_onnx.quantizer.prepare import prepare as preparing

from ...cli.running import qprof

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL, CALIBRATION, HELD_OUT = (str(DIGITS / name) for name in ("model.onnx", "calibration", "heldout"))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the models that are read, by file name, and those that are prepared."""
    counts = Counter[str]()
    read, prepare = preparing.load_model, preparing.prepare

    def reads(path: str | Path) -> preparing.ir.Model:
        counts[Path(path).name] += 1
        return read(path)

    def prepares(model: preparing.ir.Model) -> preparing.Prepared:
        counts["prepared"] += 1
        return prepare(model)

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "load_model", reads)
        patch.setattr(preparing, "prepare", prepares)
        yield counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile, a plan, a quantized model and a card of it, as q.*."""
    folder = tmp_path_factory.mktemp("made")
    run(f"dump-profile {MODEL} --data {CALIBRATION} --limit 8 -o {folder}/q.yaml")
    files = f"-o {folder}/q.onnx --save-plan {folder}/plan.yaml"
    run(f"quantize {MODEL} --profile {folder}/q.yaml {files}")
    run(f"evaluate {MODEL} {folder}/q.onnx --data {HELD_OUT} --limit 2 --no-latency --card {folder}/q.json")
    return folder


def run(arguments: str) -> None:
    ended = qprof(*arguments.split())
    assert ended.exit_code == 0, ended.output


FEW = f"--data {HELD_OUT} --limit 2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "quantized"),
    [
        (f"dump-profile {MODEL} --data {CALIBRATION} --limit 8 -o DIR/p.yaml", ""),
        (f"quantize {MODEL} --profile DIR/q.yaml -o DIR/a.onnx", ""),
        (f"quantize {MODEL} --plan DIR/plan.yaml -o DIR/b.onnx", ""),
        (f"quantize {MODEL} --data {CALIBRATION} --no-latency -o DIR/c.onnx", "file.onnx"),
        (f"quantize {MODEL} --data {CALIBRATION} --no-latency --report DIR -o DIR/d.onnx", "file.onnx"),
        (f"compare-layers {MODEL} DIR/q.onnx {FEW}", "q.onnx"),
        (f"show DIR/plan.yaml logits --model {MODEL} --profile DIR/q.yaml", ""),
        (f"evaluate {MODEL} DIR/q.onnx {FEW} --no-latency --report DIR --card DIR/e.json", "q.onnx"),
        (f"verify DIR/q.json DIR/q.onnx --model {MODEL} --data {HELD_OUT} --no-latency", "q.onnx"),
        (f"report {MODEL} DIR/q.onnx --profile DIR/q.yaml {FEW} --no-latency -o DIR", "q.onnx"),
        (f"diff DIR/q.yaml DIR/q.yaml --model {MODEL}", ""),
        (
            f"tune {MODEL} --profile DIR/q.yaml --data {HELD_OUT} --set budget=1 --max-drop 50 -o DIR/t.onnx",
            "",
        ),
    ],
    ids=lambda value: value.partition(" ")[0],
)
def test_a_command_reads_each_model_once_and_prepares_the_float_one_once(
    command: str, quantized: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as counts:
        run(command.replace("DIR", str(folder)))
    expected = {"model.onnx": 1, "prepared": 1} | ({quantized: 1} if quantized else {})
    assert counts == expected
