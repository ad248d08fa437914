import pytest
from qprof_onnx.profiles.runtime.providers import first_line

START = "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load model from a/model.onnx failed:"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{START}This is an invalid model. Type Error: Type 'x' is invalid.", "Type 'x' is invalid"),
        (f"{START}Node (conv) Op (Conv) [ShapeInferenceError] kernel", "Node (conv) Op (Conv) kernel"),
        (
            f"{START}/onnxruntime_src/core/graph.cc:1555 void onnxruntime::Graph::Make(int) "
            "node_arg was false.\n\nStacktrace",
            "node_arg was false",
        ),
        ("own:Twice(-1) is not a registered function/op", "own:Twice(-1) is not a registered function/op"),
        ("", "without a reason"),
    ],
)
def test_what_the_runtime_says_is_told_without_its_codes_and_source(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line


def test_a_long_text_of_the_runtime_is_shortened() -> None:
    assert len(first_line(RuntimeError("x" * 100_000))) < 420
