"""examples/tools: each script runs with the package that it is for, where that is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

TOOLS = Path(__file__).parent.parent / "examples" / "tools"


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder and return what it prints."""
    found = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout


@pytest.mark.parametrize(
    ("script", "packages", "output"),
    [
        ("torch_loader", ("torch", "sklearn"), "loader.int8.onnx"),
        ("hugging_face_dataset", ("datasets", "PIL", "sklearn"), "dataset.int8.onnx"),
        ("pandas_frame", ("pandas", "sklearn"), "frame.int8.onnx"),
    ],
)
def test_samples_of_another_tool_give_a_good_model(
    script: str, packages: tuple[str, ...], output: str, tmp_path: Path
) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is large, and no test but this needs it")
    printed = run([sys.executable, str(TOOLS / f"{script}.py")], tmp_path)
    assert "good: accuracy" in printed
    onnx.checker.check_model(tmp_path / output)


def test_olive_runs_the_pass(tmp_path: Path) -> None:
    pytest.importorskip("olive", reason="olive-ai is large, and no test but this needs it")
    config = json.loads((TOOLS / "olive.json").read_text())
    digits = TOOLS.parent / "digits"
    config["input_model"]["model_path"] = str(digits / "model.onnx")
    config["passes"]["int8"]["data"] = str(digits / "calibration")
    (tmp_path / "olive.json").write_text(json.dumps(config))
    run(
        [
            *(sys.executable, "-m", "olive", "run", "--config", "olive.json"),
            *("--package-config", str(TOOLS / "olive_package.json")),
        ],
        tmp_path,
    )
    assert any("qprof" in entry.key for entry in onnx.load(tmp_path / "out" / "model.onnx").metadata_props)


def test_a_data_yaml_means_what_ultralytics_reads_in_it(tmp_path: Path) -> None:
    pytest.importorskip("ultralytics", reason="ultralytics is large, and no test but this needs it")
    from PIL import Image
    from qprof_onnx.profiles.samples.picture_files import box_files
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.data.utils import check_det_dataset

    for split, number in (("train", 3), ("val", 2)):
        for kind in ("images", "labels"):
            (tmp_path / "set" / kind / split).mkdir(parents=True)
        for at in range(number):
            Image.new("RGB", (40, 30)).save(tmp_path / f"set/images/{split}/{at}.jpg")
            (tmp_path / f"set/labels/{split}/{at}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    file = tmp_path / "data.yaml"
    file.write_text(f"path: {tmp_path}/set\ntrain: images/train\nval: images/val\nnames: {{0: thing}}\n")
    info = check_det_dataset(str(file), autodownload=False)
    for split in ("train", "val"):
        theirs = YOLODataset(img_path=info[split], data=info, imgsz=32, augment=False)
        ours = box_files(f"{file}:{split}").values()
        expected = zip(theirs.im_files, theirs.label_files, strict=True)
        assert sorted(map(tuple, ours)) == sorted((Path(a), Path(b)) for a, b in expected)


def voice(seed: int, rate: int) -> np.ndarray:
    """Return vowels, harmonics of a gliding pitch under three resonances, between silences."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(3):
        parts.append(rng.normal(0.0, 1e-3, rate // 2))
        for _ in range(4):
            pitch = rng.uniform(95.0, 180.0) * (1.0 + 0.1 * np.sin(6.0 * np.pi * np.arange(rate // 5) / rate))
            orders = np.arange(1, 40)[:, None]
            places = rng.uniform((300, 900, 2300), (800, 2000, 3000))[:, None, None]
            widths = np.array([60, 90, 150])[:, None, None]
            distance = (orders * pitch - places) / widths
            sound = (
                (1.0 / (1.0 + distance**2)).sum(0) * np.cos(2 * np.pi * orders * np.cumsum(pitch) / rate)
            ).sum(0)
            parts.append(0.6 * sound / np.abs(sound).max() * np.hanning(len(sound)) ** 0.5)
    return np.concatenate(parts)


def test_sherpa_onnx_hears_the_same_speech_in_int8(tmp_path: Path) -> None:
    package = importlib.util.find_spec("silero_vad")  # it imports PyTorch, which its weights do not need
    if package is None or package.origin is None:
        pytest.skip("needs the weights of silero-vad, as no other test does")
    pytest.importorskip("sherpa_onnx", reason="no test but this needs it")
    soundfile = pytest.importorskip("soundfile", reason="of the extra test-all")
    model = Path(package.origin).parent / "data" / "silero_vad_16k_op15.onnx"
    for seed in range(8):
        soundfile.write(tmp_path / f"{seed}.wav", voice(seed, 16000), 16000)
    words = (
        "quantize",
        model,
        "--data",
        tmp_path,
        "--preprocess",
        TOOLS / "silero_vad.yaml",
        "-o",
        "vad.onnx",
    )
    run([sys.executable, "-c", "from qprof_onnx.cli.entry import run; run()", *map(str, words)], tmp_path)
    printed = run(
        [sys.executable, str(TOOLS / "sherpa_onnx_vad.py"), str(model), "vad.onnx", str(tmp_path)], tmp_path
    )
    assert 10.0 < float(printed.split()[1]) < 30.0
    assert float(printed.split("the same for ")[1].split()[0]) > 90.0
