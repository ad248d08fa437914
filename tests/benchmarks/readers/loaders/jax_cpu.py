"""jaxonnxruntime: ONNX as functions of JAX."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import onnx
from jaxonnxruntime import call_onnx, config

config.update("jaxort_only_allow_initializers_as_static_args", False)
jax.config.update("jax_enable_x64", True)


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    function, params = call_onnx.call_onnx_model(onnx.load(model), dict(feed))
    return lambda feed: [np.asarray(one) for one in function(params, dict(feed))]
