"""An output that would overwrite the weights of the model that is read is refused, under whatever name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx import instrument, quantize
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.model.files import load_model
from qprof_onnx.quantizer.model.outputs import check_output

REFUSED = r"its weights would go to '.*\.data', which holds the weights of the model that is read; choose"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\n'
        "net (float[1, 64] x) => (float[1, 64] y) { y = MatMul(x, w) }"
    )
    array = np.ones((64, 64), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    path = tmp_path / "float.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    return path


def test_an_output_beside_the_data_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match=REFUSED):
        check_output(model.with_name("m.onnx"), model)


def test_an_output_that_is_the_data_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"m\.onnx\.data: holds weights of the model that is read; choose"):
        check_output(model.with_name("m.onnx.data"), model)


def test_other_outputs_are_not(model: Path) -> None:
    check_output(model.with_name("other.onnx"), model)
    check_output(None, model)
    check_output(model.with_name("m.onnx"), model.with_name("absent.onnx"))


def test_a_hard_link_to_the_data_is_the_data(model: Path) -> None:
    model.with_name("other.onnx.data").hardlink_to(model.with_name("m.onnx.data"))
    with pytest.raises(ConfigError, match=REFUSED):
        check_output(model.with_name("other.onnx"), model)


def test_a_symbolic_link_to_the_data_is_the_data(model: Path) -> None:
    model.with_name("other.onnx.data").symlink_to("m.onnx.data")
    with pytest.raises(ConfigError, match=REFUSED):
        check_output(model.with_name("other.onnx"), model)


def test_an_output_reached_by_a_link_to_its_folder_is_found(model: Path) -> None:
    link = model.parent / "link"
    link.symlink_to(model.parent, target_is_directory=True)
    with pytest.raises(ConfigError, match=REFUSED):
        check_output(link / "m.onnx", model)


def test_an_output_that_links_to_a_file_beside_the_data_is_refused(model: Path) -> None:
    (model.parent / "sub").mkdir()
    link = model.parent / "sub" / "q.onnx"
    link.symlink_to(model.with_name("m.onnx"))
    with pytest.raises(ConfigError, match=REFUSED):
        check_output(link, model)


def test_a_model_in_memory_has_its_weights_where_it_was_read(model: Path) -> None:
    loaded: ir.Model = load_model(model)
    for run in (
        lambda: quantize(loaded, None, model.with_name("m.onnx"), mode="dynamic"),
        lambda: instrument(loaded, model.with_name("m.onnx")),
    ):
        with pytest.raises(ConfigError, match=REFUSED):
            run()
    assert not model.with_name("m.onnx").exists()
