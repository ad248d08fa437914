"""Exceptions that onnxruntime raises, and the first line of their text."""

from __future__ import annotations

import re

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


def load_refusal(name: str, error: Exception) -> str:
    """Return the message for a model that onnxruntime does not load: what it says, and what to do.

    Args:
        name: of the model, for the user; the file may be a temporary one.
        error: one of `RUNTIME_ERRORS`.
    """
    text = first_line(error)
    unknown = re.search(r"(\S+)\(-?\d+\) is not a registered function/op", text)
    if unknown is not None:
        return (
            f"{name}: onnxruntime has no operator {unknown[1]}; load the library that brings it with "
            "--custom-ops LIB (in Python: load_custom_operators)"
        )
    return (
        f"{name}: onnxruntime cannot load it: {text}; check the model with onnx.checker, and that this "
        "onnxruntime has its operators"
    )


def first_line(error: Exception) -> str:
    """Return the first line of an error's text: the rest of an onnxruntime error is often its source code."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
