"""wonnx: ONNX in WebGPU, here on Mesa's software driver of Vulkan."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import wonnx


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    session = wonnx.Session.from_path(model)
    return lambda feed: [
        np.asarray(found, np.float32)
        for found in session.run({n: a.ravel().tolist() for n, a in feed.items()}).values()
    ]
