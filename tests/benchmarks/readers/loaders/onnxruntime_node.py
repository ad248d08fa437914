"""onnxruntime-node: onnxruntime's own library in Node."""

from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime_web


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    loaded: Callable[[Mapping[str, Any]], list[Any]] = onnxruntime_web.load(model, feed, "onnxruntime-node")
    return loaded
