"""Who asks for 4 bits has them; the weights that get 8 are the fewest that a limit needs, and are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import ConfigError

SIZES = {"w": (128, 256), "w2": (256, 128), "w3": (128, 128), "w4": (128, 32)}
FOUR_BITS = {"mode": "weight-only", "weight_type": "int4"}


Files = tuple[Path, list[dict[str, np.ndarray]]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Return a perceptron whose output is below its default limit in 4 bits, and samples."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[n, 128] x) => (float[n, 32] y) {
        a = MatMul (x, w) r = Relu (a) b = MatMul (r, w2) s = Relu (b) c = MatMul (s, w3) t = Relu (c)
        y = MatMul (t, w4) }"""
    )
    rng = np.random.default_rng(1)
    for name, shape in SIZES.items():
        array = (rng.normal(size=shape) / 11.0).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx", [{"x": rng.normal(size=(4, 128)).astype(np.float32)} for _ in range(16)]


def bits(result: qprof.QuantizeResult) -> dict[str, int]:
    return {name: result.plan.tensors[name].qtype.bits for name in SIZES}


def test_what_an_output_keeps_by_default_widens_no_weight(files: Files) -> None:
    path, samples = files
    by_profile = qprof.quantize(path, qprof.profile(path, samples), **FOUR_BITS)  # type: ignore[arg-type]
    by_samples = qprof.quantize(path, samples, latency=False, **FOUR_BITS)  # type: ignore[arg-type]
    by_neither = qprof.quantize(path, **FOUR_BITS)  # type: ignore[arg-type]
    for result in (by_profile, by_samples, by_neither):
        assert bits(result) == dict.fromkeys(SIZES, 4)
        assert "8 bits" not in result.composition.text
    assert by_profile.expected[0].estimated < 18.0


def test_a_limit_that_is_asked_for_widens_few_bytes_and_says_so(files: Files) -> None:
    path, samples = files
    facts = qprof.profile(path, samples)
    free = qprof.quantize(path, facts, **FOUR_BITS).expected[0].estimated  # type: ignore[arg-type]
    limit = round(free + 1.0, 1)
    by_profile = qprof.quantize(path, facts, min_output_sqnr=limit, **FOUR_BITS)  # type: ignore[arg-type]
    by_samples = qprof.quantize(path, samples, latency=False, min_output_sqnr=limit, **FOUR_BITS)  # type: ignore[arg-type]
    assert by_profile.expected[0].estimated >= limit
    for result in (by_profile, by_samples):
        wide = [name for name, count in bits(result).items() if count == 8]
        assert 1 <= len(wide) <= 2
        text = result.composition.text
        assert f"int8 in {len(wide)} (" in text
        assert result.composition.int8_share is None


def test_a_limit_that_8_bits_do_not_keep_is_said(files: Files) -> None:
    path, samples = files
    result = qprof.quantize(path, qprof.profile(path, samples), min_output_sqnr=60, **FOUR_BITS)  # type: ignore[arg-type]
    assert bits(result) == dict.fromkeys(SIZES, 8)
    assert str(result.findings[0]).startswith("output 'y' has an estimated SQNR of ")


@pytest.mark.parametrize(
    ("limit", "said"), [({"min_output_sqnr": 25.0}, "min_output_sqnr 25"), ({"tolerance": 0.01}, "tolerance")]
)
def test_a_limit_is_refused_where_nothing_is_known_of_the_outputs(
    files: Files, limit: dict[str, float], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"{said}: the quality of the outputs is unknown without"):
        qprof.quantize(files[0], **limit, **FOUR_BITS)  # type: ignore[arg-type]


def convolution(path: Path, more: str = "") -> Path:
    """Write a convolution with Relu, and with `more` nodes that read r and make y; return the path."""
    rng = np.random.default_rng(2)
    result = "float[1, 32] y" if more else "float[1, 16, 8, 8] y"
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[1, 8, 8, 8] x) => ({result}) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, w) {"r" if more else "y"} = Relu (c) {more} }}"""
    )
    shapes = {"w": (16, 8, 3, 3)} | ({"v": (1024, 32)} if more else {})
    for name, shape in shapes.items():
        array = (rng.normal(size=shape) / 11.0).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def test_a_model_none_of_whose_weights_can_have_4_bits_is_refused_with_what_to_use(tmp_path: Path) -> None:
    path = convolution(tmp_path / "net.onnx")
    with pytest.raises(ConfigError, match=r"such weights of Conv.* use config='weight-only-8'") as refused:
        qprof.quantize(path, config="weight-only-4", target="onnxruntime-x86")
    assert "\n" not in str(refused.value)
    assert qprof.quantize(path, config="weight-only-8", target="onnxruntime-x86").plan.nodes


def test_a_size_gives_8_bits_to_weights_that_can_have_no_fewer(tmp_path: Path) -> None:
    path = convolution(tmp_path / "net.onnx")
    plan = qprof.quantize(path, config="mixed", fit_size="1MB", target="onnxruntime-x86").plan
    assert {params.qtype.name for params in plan.tensors.values()} == {"int8"}


def test_a_target_without_weights_of_8_bits_alone_does_not_name_them_instead(tmp_path: Path) -> None:
    path = convolution(tmp_path / "net.onnx")
    with pytest.raises(ConfigError, match=r"such weights of Conv.* use config='int8'$"):
        qprof.quantize(path, config="weight-only-nvfp4", target="tensorrt")


def test_weights_that_cannot_have_4_bits_have_8_beside_others(tmp_path: Path) -> None:
    path = convolution(tmp_path / "net.onnx", "f = Flatten (r) y = MatMul (f, v)")
    result = qprof.quantize(path, config="weight-only-4", target="onnxruntime-x86")
    assert {name: result.plan.tensors[name].qtype.bits for name in ("w", "v")} == {"w": 8, "v": 4}
    assert "int8 in 1 (" in result.composition.text


def test_an_output_below_0_db_has_its_estimate_too(tmp_path: Path) -> None:
    """The difference of two products that are nearly equal is smaller than the noise of 4 bits in each."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[n, 128] x) => (float[n, 64] y) {
        a = MatMul (x, w) b = MatMul (x, v) y = Sub (a, b) }"""
    )
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(128, 64)).astype(np.float32)
    other = weight + rng.normal(size=weight.shape).astype(np.float32) * 1e-3
    for name, array in (("w", weight), ("v", other)):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "net.onnx")
    samples = [{"x": rng.normal(size=(4, 128)).astype(np.float32)} for _ in range(8)]
    facts = qprof.profile(tmp_path / "net.onnx", samples)
    result = qprof.quantize(tmp_path / "net.onnx", facts, check_outputs="off", **FOUR_BITS)  # type: ignore[arg-type]
    (expected,) = result.expected
    assert expected.estimated < 0.0
