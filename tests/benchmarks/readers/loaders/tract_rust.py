"""tract, Sonos' inference library in Rust, by its Python package."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tract


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    runnable = tract.onnx().load(model).into_model().into_runnable()
    # Its arrays carry Fortran's order over as they are.
    return lambda feed: [
        t.to_numpy() for t in runnable.run([np.ascontiguousarray(array) for array in feed.values()])
    ]
