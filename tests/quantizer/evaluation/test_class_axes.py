import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import ConfigError, ModelError
from qprof_onnx.quantizer.evaluation.compare import OutputSums, answers, channel_axes, class_count, classes_of
from qprof_onnx.quantizer.noise.class_axes import NO_CLASSES, ClassAxis, class_axes


def axis_of(shape: str, body: str, opset: int = 17, **chosen) -> ClassAxis:
    """Return where the output y of a few nodes has its classes; c is a constant, x an input of rank 4."""
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    agraph (float[N, C, H, W] x, float[N, F] r) => (float[{shape}] y) <float c = {{2.0}}> {{ {body} }}"""
    return class_axes(ir.from_proto(parser.parse_model(text)), **chosen)["y"]


@pytest.mark.parametrize(
    ("shape", "body", "axis"),
    [
        ("N, F", "y = Softmax <axis = 1> (r)", 1),
        ("N, F", "y = Softmax (r)", -1),
        ("N, 150, 128, 128", "y = Softmax <axis = 1> (x)", 1),
        ("N, H, W, 150", "s = Softmax <axis = 1> (x) y = Transpose <perm = [0, 2, 3, 1]> (s)", 3),
        ("N, F", "y = Gemm (r, r)", -1),
        ("N, F", "m = MatMul (r, r) y = Add (m, c)", -1),
        ("N, F", "m = Gemm (r, r) y = Sigmoid (m)", -1),
    ],
)
def test_the_operator_says_where_the_classes_are(shape, body, axis) -> None:
    assert axis_of(shape, body) == ClassAxis(axis, True)


@pytest.mark.parametrize(
    ("shape", "body", "axis"),
    [
        ("N, 256, 8, 8", "y = Conv (x, x)", 1),
        ("N, 150, 128, 128", "m = Conv (x, x) y = Resize (m, , , c)", 1),
        ("N, 8, 8, 256", "m = Conv (x, x) y = Transpose <perm = [0, 2, 3, 1]> (m)", 3),
        ("N, T, 384", "m = MatMul (x, x) y = Add (m, c)", -1),
        ("N, T, 384", "y = LayerNormalization (x, c)", None),
        ("1, 22, N", "y = Concat <axis = 1> (x, x)", None),
        ("N, F", "y = Identity (r)", None),
        ("N, F", "y = Add (r, r)", None),
    ],
)
def test_the_largest_value_of_an_embedding_a_box_or_an_image_is_no_answer(shape, body, axis) -> None:
    assert axis_of(shape, body) == ClassAxis(axis, False)


def test_labels_make_it_an_answer_and_the_user_may_name_the_axis() -> None:
    assert axis_of("N, 256, 8, 8", "y = Conv (x, x)", output="y") == ClassAxis(1, True)
    assert axis_of("N, 8, 8, 256", "y = Identity (x)", output="y", axis=-1) == ClassAxis(-1, True)
    with pytest.raises(ConfigError, match="class axis 4: output 'y' has 4 axes; give -4 to 3"):
        axis_of("N, 8, 8, 256", "y = Identity (x)", output="y", axis=4)


def test_an_old_softmax_over_several_axes_has_no_classes() -> None:
    assert axis_of("N, 150, 128, 128", "y = Softmax <axis = 1> (x)", 11) == NO_CLASSES
    assert axis_of("N, 150, 1, 1", "y = Softmax <axis = 1> (x)", 11) == ClassAxis(1, True)
    assert axis_of("N, F", "y = Softmax (r)", 11) == ClassAxis(1, True)


@pytest.mark.parametrize("shape", [(1, 150, 128, 128), (1, 256, 8, 8)])
def test_the_class_axis_does_not_follow_from_sizes(shape) -> None:
    values = np.zeros(shape, np.float32)
    values[:, 7] = 1.0
    found = classes_of(values, ClassAxis(1, True), "output 'y'")
    assert (found == 7).all()
    assert (found.size, class_count(values, ClassAxis(1))) == (shape[2] * shape[3], shape[1])
    assert channel_axes(shape, ClassAxis(1)) == (1,)
    assert channel_axes(shape, NO_CLASSES) == (1, 3)
    with pytest.raises(ModelError, match=r"has no class axis .* name its axis with --class-axis"):
        classes_of(values, NO_CLASSES, "output 'y'")


def test_a_matrix_has_its_classes_along_its_only_other_axis() -> None:
    assert classes_of(np.eye(3, dtype=np.float32), NO_CLASSES, "y").tolist() == [0, 1, 2]
    assert answers(np.eye(3), NO_CLASSES) == ("", None)


@pytest.mark.parametrize("shape", [(2, 5, 16), (1, 22, 30), (4, 16)])
def test_embeddings_and_boxes_have_no_agreement(shape) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    sums = OutputSums()
    sums.add(values, values)
    assert sums.result("y").agreement is None
