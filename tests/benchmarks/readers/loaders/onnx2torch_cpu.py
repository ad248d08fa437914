"""onnx2torch: ONNX as modules of PyTorch."""

from collections.abc import Callable, Mapping
from typing import Any

import onnx2torch
import torch


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    module = onnx2torch.convert(model)

    def run(feed: Mapping[str, Any]) -> list[Any]:
        with torch.no_grad():
            found = module(*(torch.from_numpy(array) for array in feed.values()))
        return [one.numpy() for one in (found if isinstance(found, tuple | list) else (found,))]

    return run
