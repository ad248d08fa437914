"""onnxruntime with its graph optimisations."""

from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime as ort

PACKAGES = ("onnxruntime",)


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, dict(feed))
