"""Joined models under other settings, and with weights in files of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import ConfigError, ModelError
from qprof_onnx.quantizer.model import loading as reading
from qprof_onnx.quantizer.model import saving
from qprof_onnx.quantizer.plugins.exchange.join import join
from qprof_onnx.quantizer.plugins.exchange.split import split

from .test_parts import Arrays, outputs

HEAD = '<ir_version: 8, opset_import: ["": 17]> net '
FIRST = HEAD + "(T[N, 8, 16] x) => (T[N, 8, 16] h) <T[16, 16] w> { a = MatMul(x, w)  h = Add(a, x) }"
SECOND = HEAD + "(T[N, 8, 16] h) => (T[N, 8, 16] y) <T[16, 16] v> { y = MatMul(h, v) }"


def save(folder: Path, name: str, text: str, dtype: str = "float") -> Path:
    """Write a model whose declared values are weights, each with values of its own."""
    model, rng = parser.parse_model(text.replace("T[", f"{dtype}[")), np.random.default_rng(len(name))
    for info in model.graph.value_info:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        model.graph.initializer.append(
            numpy_helper.from_array(rng.standard_normal(shape).astype(kind), info.name)
        )
    del model.graph.value_info[:]
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def joined(folder: Path, dtype: str = "float") -> Path:
    files = [save(folder, "first", FIRST, dtype), save(folder, "after_it", SECOND, dtype)]
    join(files, folder / "whole.onnx")
    return folder / "whole.onnx"


def samples(count: int = 8) -> list[Arrays]:
    """Return samples with two channels that are far larger than the others."""
    rng, sizes = np.random.default_rng(1), np.ones(16, np.float32)
    sizes[[3, 7]] = 40.0, 25.0
    return [{"x": sizes * rng.standard_normal((2, 8, 16), dtype=np.float32)} for _ in range(count)]


def check_parts(whole: Path, result: qprof.QuantizeResult, folder: Path) -> list[Path]:
    """Check that the parts one after the other compute what the whole does; return their files."""
    result.save(folder / "q.onnx")
    files = [part.file for part in split(whole, result.plan, folder / "parts")]
    for sample in samples(2):
        found = outputs(files[1], outputs(files[0], sample))
        np.testing.assert_array_equal(found["y"], outputs(folder / "q.onnx", sample)["after_it:y"])
    return files


def test_a_mul_that_equalization_adds_after_a_part_is_in_the_part_that_reads_it(tmp_path: Path) -> None:
    whole = joined(tmp_path)
    result = qprof.quantize(whole, qprof.profile(whole, samples()))
    assert "first:h_scaled" in result.plan.nodes, "the name is that of the first part"
    files = check_parts(whole, result, tmp_path)
    muls = ["first:h_scaled" in {node.name for node in onnx.load(file).graph.node} for file in files]
    assert muls == [False, True]


@pytest.mark.parametrize("mode", ["dynamic", "weight-only"])
def test_parts_of_a_plan_of_another_mode_compute_what_the_whole_does(mode: Any, tmp_path: Path) -> None:
    whole = joined(tmp_path)
    result = qprof.quantize(whole, qprof.profile(whole, samples()), mode=mode, cost_model="off")
    assert {"first", "after_it"} <= {name.split(":")[0] for name in result.plan.nodes}
    check_parts(whole, result, tmp_path)


def test_labels_belong_to_the_output_of_the_last_part(tmp_path: Path) -> None:
    whole = joined(tmp_path)
    result = qprof.quantize(whole, qprof.profile(whole, samples()))
    labels = [outputs(whole, sample)["after_it:y"].argmax(-1).reshape(2, -1)[:, :1] for sample in samples(3)]
    seen: list[tuple[str, ...]] = []

    def first_token(found: Any, indices: Any) -> list[float]:
        seen.extend(tuple(out) for out in found)
        pairs = zip(found, indices, strict=True)
        return [
            100.0 * float(np.mean(next(iter(out.values()))[:, 0].argmax(-1) == labels[i][:, 0]))
            for out, i in pairs
        ]

    scored = qprof.evaluate(whole, result, samples(3), metric=first_token, latency=False)
    assert seen[0] == ("after_it:y", "first:h")
    assert scored.to_dict()


def with_external_data(folder: Path) -> list[Path]:
    files = [save(folder, "first", FIRST), save(folder, "after_it", SECOND)]
    for file in files:
        onnx.save(
            onnx.load(file),
            file,
            save_as_external_data=True,
            location=f"{file.stem}.weights",
            size_threshold=0,
        )
    return files


def test_weights_in_files_of_their_own_stay_in_such_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = with_external_data(tmp_path)
    monkeypatch.setattr(reading, "SMALL", 0)
    monkeypatch.setattr(saving, "MIN_EXTERNAL_MODEL_BYTES", 1)
    monkeypatch.setattr(saving, "MIN_EXTERNAL_BYTES", 1)
    join(files, tmp_path / "whole.onnx")
    assert len(list(tmp_path.glob("whole.onnx.*.data"))) == 1
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", 16)  # in place of 2 GiB
    result = qprof.quantize(tmp_path / "whole.onnx", qprof.profile(tmp_path / "whole.onnx", samples()))
    parts = check_parts(tmp_path / "whole.onnx", result, tmp_path)
    for part in parts:
        assert len(list(part.parent.glob(f"{part.name}.*.data"))) == 1


def test_no_file_of_weights_is_left_where_a_part_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", 16)
    monkeypatch.setattr(saving, "MIN_EXTERNAL_BYTES", 1)
    join(with_external_data(tmp_path), tmp_path / "whole.onnx")
    plan = qprof.quantize(tmp_path / "whole.onnx", qprof.profile(tmp_path / "whole.onnx", samples())).plan
    move, moved = os.replace, list[str]()

    def failing(source: str, target: str) -> None:
        """Rename a file; the third is the disk that is full."""
        moved.append(str(target))
        if len(moved) == 3:
            raise OSError(28, "No space left on device")
        move(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        split(tmp_path / "whole.onnx", plan, tmp_path / "parts")
    assert len(moved) >= 3
    assert not (tmp_path / "parts").exists()


def test_parts_in_float16_are_not_split(tmp_path: Path) -> None:
    whole = joined(tmp_path, "float16")
    inputs = [{"x": sample["x"].astype(np.float16)} for sample in samples()]
    plan = qprof.quantize(whole, qprof.profile(whole, inputs)).plan
    with pytest.raises(ModelError, match=r"is in float16, and only float32 models are split; export the"):
        split(whole, plan, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
