"""tinygrad's importer of ONNX, compiled for the processor."""

import os
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("DEV", "CPU")
os.environ.setdefault("CPU", "1")

from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    runner = OnnxRunner(model)
    return lambda feed: [found.numpy() for found in runner({n: Tensor(a) for n, a in feed.items()}).values()]
