"""TensorRT's calibration cache: read as TensorRT documents it, written so that it reads back to the bit."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.records.histogram import UNKNOWN_BINS
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.quantizer.numerics.affine import INT8
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params
from qprof_onnx.quantizer.plan.documents import profile_in
from qprof_onnx.quantizer.plugins.exchange import tensorrt as tensorrt_cache

MNIST = Path(__file__).parent / "data" / "mnist.cache"
HEAD = "TRT-8601-EntropyCalibration2\n"
MODEL = ir.Model(ir.Graph((), (), nodes=()), ir_version=8)

TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("C", "Z")), min_size=1)
ENDS = st.tuples(st.floats(-(2.0**99), 0.0, width=32), st.floats(2.0**-99, 2.0**99, width=32))


def read(text: str) -> Profile:
    return profile_in(text.encode(), "m.cache")


def ranges(**pairs: tuple[float, float]) -> Profile:
    found = {n: TensorProfile("float", None, *p, 1, 0, 0, 0, UNKNOWN_BINS) for n, p in pairs.items()}
    return Profile(ModelId("", "", 0), DataId(), found, "tensorrt-cache")


def test_the_documented_file_is_read_as_the_largest_magnitudes() -> None:
    found = profile_in(MNIST.read_bytes(), MNIST.name)
    assert (found.tool, found.origin) == ("TensorRT 7000 (EntropyCalibration2)", "tensorrt-cache")
    assert list(found) == ["data", "conv1", "pool1", "conv2", "pool2", "ip1", "ip2", "prob"]
    assert found["data"].maximum == -found["data"].minimum == 127 * np.float64(np.float32(0.00784518))


def test_a_file_is_written_again_as_it_was() -> None:
    text = MNIST.read_text()
    again = tensorrt_cache.write(read(text), MODEL)
    assert isinstance(again, str)
    assert again.partition("\n")[2] == text.partition("\n")[2]


@given(st.floats(2.0**-126, 2.0**120, width=32))
def test_every_scale_survives_to_the_bit_and_is_nearly_that_of_symmetric_int8(scale: float) -> None:
    limit = scale * 127
    text = tensorrt_cache.write(ranges(x=(-limit, limit)), MODEL)
    found = read(str(text))["x"]
    assert (found.minimum, found.maximum) == (-limit, limit)
    assert choose_params(-limit, limit, SCHEMAS["symmetric"], INT8).tensor_scale == pytest.approx(
        scale, rel=2.0**-22
    )


@given(
    st.dictionaries(
        TEXTS, st.tuples(st.floats(-(2.0**99), 0.0, width=32), st.floats(2.0**-99, 2.0**99, width=32))
    )
)
def test_a_range_becomes_symmetric_and_keeps_its_larger_end(pairs: dict[str, tuple[float, float]]) -> None:
    found = read(str(tensorrt_cache.write(ranges(**pairs), MODEL)))
    assert list(found) == list(pairs)
    for name, (low, high) in pairs.items():
        assert found[name].maximum == pytest.approx(max(-low, high), rel=1e-6)
        assert found[name].minimum == -found[name].maximum


def test_empty_scales_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    text = f"{HEAD}x: 3c008912\nnothing: 0\n"
    assert list(read(text)) == ["x"]
    assert caplog.messages == [
        "m.cache: ranges are symmetric: half of a range is unused if a tensor is never negative and "
        "its operator does not imply it",
        "m.cache: left out 1 tensors whose scale is 0: 'nothing'",
    ]


def test_a_tensor_that_is_always_zero_has_no_entry() -> None:
    text = str(tensorrt_cache.write(ranges(x=(0.0, 1.0), none=(0.0, 0.0)), MODEL))
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == ["x"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("TRT-8601\nx: 3c008912\n", "line 1: 'TRT-8601' is not TRT-VERSION-CALIBRATOR"),
        (f"{HEAD}x 3c008912\n", "line 2: 'x 3c008912' is not NAME: SCALE"),
        (f"{HEAD}x: 3c00891200\n", "line 2: .* is not NAME: SCALE"),
        (f"{HEAD}x: 3c008912\nx: 3c008912\n", "tensor 'x': is repeated in the file"),
        (f"{HEAD}x: 7fc00000\n", "tensor 'x': the range nan .. nan is not finite"),
        (f"{HEAD}x: 7f800000\n", "tensor 'x': the range -inf .. inf is not finite"),
        (f"{HEAD}x: bc008912\n", "tensor 'x': minimum 0.99.* is greater than maximum -0.99"),
    ],
)
def test_each_malformed_file_has_its_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ProfileError, match=rf"^m\.cache: {sentence}.*; .+"):
        read(text)


def test_a_name_that_a_line_cannot_hold_is_refused() -> None:
    with pytest.raises(ProfileError, match="its name contains an end of line; rename"):
        tensorrt_cache.write(ranges(**{"a\nb": (0.0, 1.0)}), MODEL)
