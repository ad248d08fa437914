"""Weights in files of their own, while arrays of them are in use."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ModelError, WritingError
from qprof_onnx.profiles.runtime.external_weights import load_weights, save_with_weights

SMALL, LARGE = np.arange(8, dtype=np.float32), np.arange(4096, dtype=np.float32)


def stored(folder: Path) -> ir.Model:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\n'
        "net (float[1] x) => (float[8] y, float[4096] z) { y = Add(x, small)  z = Add(x, large) }"
    )
    for name, array in (("small", SMALL), ("large", LARGE)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save_model(proto, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return ir.load(folder / "m.onnx")


def arrays(model: ir.Model) -> list[np.ndarray]:
    values = (model.graph.initializers[name].const_value for name in ("small", "large"))
    return [value.numpy() for value in values if value is not None]


def test_a_model_is_saved_while_its_arrays_are_in_use(tmp_path: Path) -> None:
    model = stored(tmp_path)
    in_use = arrays(model)
    (tmp_path / "copy").mkdir()
    save_with_weights(model, tmp_path / "copy/model.onnx")
    read = arrays(ir.load(tmp_path / "copy/model.onnx"))
    for found in (in_use, read, arrays(model)):
        np.testing.assert_array_equal(found[0], SMALL)
        np.testing.assert_array_equal(found[1], LARGE)


def test_weights_are_loaded_while_their_arrays_are_in_use(tmp_path: Path) -> None:
    model = stored(tmp_path)
    in_use = arrays(model)
    load_weights(model)
    (tmp_path / "m.data").unlink()
    assert not any(isinstance(v.const_value, ir.ExternalTensor) for v in model.graph.initializers.values())
    for found in (in_use, arrays(model)):
        np.testing.assert_array_equal(found[0], SMALL)
        np.testing.assert_array_equal(found[1], LARGE)


@pytest.mark.parametrize("in_files", [False, True])
def test_a_full_temporary_folder_is_named_with_tmpdir_and_the_bytes_of_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_files: bool
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("16384 requested and 1024 written")

    model = stored(tmp_path)
    if not in_files:
        load_weights(model)
    monkeypatch.setattr(ir, "save", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=4096))
    with pytest.raises(WritingError, match=r"no room for its 16,416 bytes; .* TMPDIR"):
        save_with_weights(model, tmp_path / "model.onnx")


def test_a_file_of_weights_that_is_too_short_is_no_full_folder(tmp_path: Path) -> None:
    model = stored(tmp_path)
    (tmp_path / "m.data").write_bytes(bytes(64))
    with pytest.raises(ModelError, match="check that its files of external data are complete"):
        save_with_weights(model, tmp_path / "model.onnx")
