"""Models with weights in a file of their own are replaced whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.output_files import replacing_together
from qprof_onnx.quantizer.model import saving
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.model.saving import save_model


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", 10000)


def model(seed: int) -> ir.Model:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }'
    )
    weights = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return ir.from_proto(proto)


def weights(path: Path) -> float:
    constant = load_model(path).graph.initializers["w"].const_value
    assert constant is not None
    return float(constant.numpy().flat[0])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_weights_of_the_model_before_go_with_it(tmp_path: Path) -> None:
    save_model(model(0), tmp_path / "m.onnx")
    first = names(tmp_path)
    save_model(model(1), tmp_path / "m.onnx")
    assert len(first) == len(names(tmp_path)) == 2
    assert first != names(tmp_path)
    assert weights(tmp_path / "m.onnx") == weights_of(1)


def weights_of(seed: int) -> float:
    return float(np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32).flat[0])


def test_an_interruption_between_weights_and_model_leaves_the_old_model_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(model(0), tmp_path / "m.onnx")
    before = names(tmp_path)
    replace = os.replace

    def interrupted(source: str | Path, target: str | Path) -> None:
        if Path(target).name == "m.onnx":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(model(1), tmp_path / "m.onnx")
    assert names(tmp_path) == before
    assert weights(tmp_path / "m.onnx") == weights_of(0)


def test_a_kill_between_weights_and_model_leaves_the_old_model_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(model(0), tmp_path / "m.onnx")
    replace, places = os.replace, [tmp_path, tmp_path.with_name("killed")]

    def watched(source: str | Path, target: str | Path) -> None:
        if Path(target).name == "m.onnx":
            shutil.copytree(*places)  # what a process that is killed here leaves
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    save_model(model(1), tmp_path / "m.onnx")
    assert weights(places[1] / "m.onnx") == weights_of(0)


def test_weights_that_are_read_stay(tmp_path: Path) -> None:
    save_model(model(0), tmp_path / "m.onnx")
    shutil.copy(tmp_path / "m.onnx", tmp_path / "float.onnx")
    [data] = tmp_path.glob("*.data")
    with replacing_together(lambda: [data]) as batch:
        save_model(model(1), tmp_path / "m.onnx", batch=batch)
    assert weights(tmp_path / "float.onnx") == weights_of(0)
    assert weights(tmp_path / "m.onnx") == weights_of(1)


def test_files_of_others_beside_a_model_stay(tmp_path: Path) -> None:
    for name in ("m.onnx.data", "m.onnx.0123456789abcdef.data", "m.onnx.notes.data"):
        (tmp_path / name).write_bytes(b"x")
    save_model(model(0), tmp_path / "m.onnx")
    save_model(model(1), tmp_path / "m.onnx")
    assert len(names(tmp_path)) == 5


def test_the_longest_name_has_room_for_weights(tmp_path: Path) -> None:
    path = tmp_path / ("\u00e9" * 125 + ".onnx")
    save_model(model(0), path)
    assert weights(path) == weights_of(0)


@pytest.mark.parametrize("keep", [1000, 1 << 20], ids=["in files of their own", "in the model file"])
def test_weights_that_are_in_use_are_written(
    keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", 1 << 30)
    monkeypatch.setattr(saving, "MIN_EXTERNAL_MODEL_BYTES", keep)
    proto = ir.to_proto(model(0))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(64, np.float32), "small"))
    onnx.save_model(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    read = ir.load(tmp_path / "m.onnx")
    in_use = [value.const_value.numpy() for value in read.graph.initializers.values() if value.const_value]
    save_model(read, tmp_path / "copy.onnx")
    assert weights(tmp_path / "copy.onnx") == weights_of(0) == float(in_use[0].flat[0])
