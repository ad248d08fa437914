"""Exceptions that onnxruntime raises, and the first line of their text."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from onnxruntime.capi import onnxruntime_pybind11_state as state

RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(
        getattr(state, name)
        for name in (
            "EPFail",
            "Fail",
            "InvalidArgument",
            "InvalidGraph",
            "InvalidProtobuf",
            "NoSuchFile",
            "NotImplemented",
            "RuntimeException",
        )
    ),
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of onnxruntime for a model or a sample that it refuses; they have no base class in common."""


_NOISE = re.compile(
    r"^\[ONNXRuntimeError\] : -?\d+ : \w+ : |Load model from .*? failed:|This is an invalid model\. "
    r"|/onnxruntime_src/\S+ (?:\S+ )?onnxruntime::[^)]*\)(?: const)? |(?:Type )?Error: |\[\w+Error\] ?"
)
_LONGEST = 400


def load_refusal(name: str, error: Exception, libraries: Sequence[str] = ()) -> str:
    """Return the message for a model that onnxruntime does not load: what it says, and what to do.

    Args:
        name: of the model, for the user; the file may be a temporary one.
        error: one of `RUNTIME_ERRORS`.
        libraries: of custom operators, that are loaded.
    """
    text = first_line(error)
    unknown = re.search(r"(\S+)\(-?\d+\) is not a registered function/op", text)
    if unknown is not None:
        without = f", nor has {', '.join(map(os.path.basename, libraries))}" if libraries else ""
        return (
            f"{name}: onnxruntime has no operator {unknown[1]}{without}; load the library that brings it "
            "with --custom-ops LIB (in Python: load_custom_operators), or, where it is a function of another "
            "file, put that into the model: qprof join MODEL.onnx --functions FILE -o WHOLE.onnx"
        )
    return (
        f"{name}: onnxruntime cannot load it: {text}; check the model with onnx.checker, and that this "
        "onnxruntime has its operators"
    )


def first_line(error: Exception) -> str:
    """Return what onnxruntime says is wrong, on one line: without its codes and places in its source.

    The first line says it; what follows is often source code.
    """
    text = str(error).strip()
    line = _NOISE.sub("", text.splitlines()[0]).strip() if text else ""
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    return line.rstrip(".") or "it does not say why"
