"""Functions that lie in files of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, ModelError
from qprof_onnx.quantizer.plugins.exchange.join import join
from qprof_onnx.quantizer.prepare.prepare import open_prepared

HEAD = '<ir_version: 8, opset_import: ["": 17, "own": 1]>\n'
MODEL = HEAD + "net (float[N, 4] x) => (float[N, 4] y) { h = own.Outer(x)  y = own.Outer(h) }"
OUTER = (
    '\n<domain: "own", opset_import: ["": 17, "own": 1]> Outer (a) => (b) '
    "{ t = own.Inner <k: float = 0.5> (a)  b = Neg(t) }"
)
INNER = (
    '\n<domain: "own", opset_import: ["": 17]> Inner <k> (a) => (b) { b = LeakyRelu <alpha: float = @k> (a) }'
)
UNUSED = '\n<domain: "own", opset_import: ["": 17]> Unused (a) => (b) { b = Abs(a) }'


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def library(folder: Path, name: str, *functions: str) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL + "".join(functions)), folder / name)
    return folder / name


def test_the_functions_that_a_model_calls_are_put_into_it_from_other_files(
    model: Path, tmp_path: Path
) -> None:
    file = library(tmp_path, "library.onnx", OUTER, INNER, UNUSED)
    found = join([model], tmp_path / "whole.onnx", functions=[file])
    assert found.functions == ("own:Outer", "own:Inner")
    assert ("own", "Unused") not in [(f.domain, f.name) for f in onnx.load(tmp_path / "whole.onnx").functions]
    session = ort.InferenceSession(tmp_path / "whole.onnx", providers=["CPUExecutionProvider"])
    sample = np.array([[-2.0, 1.0, 0.5, -0.25]], np.float32)
    inner = -np.where(sample < 0, sample / 2, sample)
    np.testing.assert_array_equal(session.run(None, {"x": sample})[0], -np.where(inner < 0, inner / 2, inner))
    names = [node.name for node in open_prepared(tmp_path / "whole.onnx").model.graph]
    assert names[0] == "Outer_h/Inner_t/LeakyRelu_b"


def test_a_file_may_be_one_function_alone(model: Path, tmp_path: Path) -> None:
    functions = onnx.parser.parse_model(MODEL + OUTER + INNER).functions
    files = [tmp_path / "outer.onnx", tmp_path / "inner.onnx"]
    for file, function in zip(files, functions, strict=True):
        file.write_bytes(function.SerializeToString())
    assert join([model], tmp_path / "whole.onnx", functions=files).functions == ("own:Outer", "own:Inner")


def test_a_function_that_is_in_no_file_is_named(model: Path, tmp_path: Path) -> None:
    file = library(tmp_path, "library.onnx", OUTER)
    with pytest.raises(ModelError, match=r"whole\.onnx \(not written\): calls own:Inner, and has no such"):
        join([model], tmp_path / "whole.onnx", functions=[file])
    assert not (tmp_path / "whole.onnx").exists()


def test_a_file_without_functions_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model\.onnx: has no functions; give an ONNX model with functions"
    ):
        join([model], tmp_path / "whole.onnx", functions=[model])


def test_two_functions_of_one_name_are_refused(model: Path, tmp_path: Path) -> None:
    one = library(tmp_path, "one.onnx", OUTER, INNER)
    two = library(tmp_path, "two.onnx", OUTER, INNER.replace("LeakyRelu", "Elu"))
    with pytest.raises(
        ConfigError, match=r"two\.onnx: function own:Inner is another in .*one\.onnx; give one"
    ):
        join([model], tmp_path / "whole.onnx", functions=[one, two])
    with pytest.raises(
        ModelError, match=r"one\.onnx: has a function own:Inner, and that of .*two\.onnx is another"
    ):
        join([one], tmp_path / "whole.onnx", functions=[two])


def test_a_function_that_calls_itself_is_refused(model: Path, tmp_path: Path) -> None:
    again = INNER.replace("LeakyRelu <alpha: float = @k> (a)", "own.Outer(a)").replace(
        '"": 17', '"": 17, "own": 1'
    )
    file = library(tmp_path, "library.onnx", OUTER, again)
    with pytest.raises(ModelError, match=r"model\.onnx: function 'Outer' of domain 'own': calls itself"):
        join([model], tmp_path / "whole.onnx", functions=[file])


def test_a_function_whose_operator_the_model_s_opset_lacks_is_refused(model: Path, tmp_path: Path) -> None:
    newer = INNER.replace('"": 17', '"": 20').replace("LeakyRelu <alpha: float = @k>", "Gelu")
    file = library(tmp_path, "library.onnx", OUTER, newer)
    with pytest.raises(
        ModelError, match=r"of function 'Inner': is of opset 20, and opset 17 of the model has no"
    ):
        join([model], tmp_path / "whole.onnx", functions=[file])


def test_the_functions_of_parts_are_put_in_the_place_of_their_calls(model: Path, tmp_path: Path) -> None:
    file = library(tmp_path, "library.onnx", OUTER, INNER)
    text = '<ir_version: 8, opset_import: ["": 17]> net (float[N, 4] y) => (float[N, 4] z) { z = Neg(y) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "second.onnx")
    join([model, tmp_path / "second.onnx"], tmp_path / "whole.onnx", functions=[file])
    names = [node.name for node in onnx.load(tmp_path / "whole.onnx").graph.node]
    assert names[0] == "model:Outer_h/Inner_t/LeakyRelu_b"
    assert names[-1] == "second:Neg_z"
