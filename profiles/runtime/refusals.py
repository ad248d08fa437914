"""Exceptions that onnxruntime raises, and the first line of their text."""

from __future__ import annotations

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


def first_line(error: Exception) -> str:
    """Return the first line of an error's text: the rest of an onnxruntime error is often its source code."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
